"""How well probes tell same from different objects: by layer, model, distance and rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK
from bindscope.figures.facets import Look, broken, facets, lines, wrapped
from bindscope.figures.figure import curves_of, figure, some
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    legend_below,
    looks,
    new_figure,
    note_above,
    paper_entry,
    values_along_x,
)
from bindscope.studies.same_object.published import (
    NOT_COMPARED,
    describe_undrawn,
    read_comparison,
    select_drawn,
)
from bindscope.studies.same_object.quantities import ALL, DISTANCES
from bindscope.studies.same_object.scores import ACCURACY
from bindscope.studies.same_object.tables import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.studies.same_object.views import (
    at_best_layers,
    best_layers,
    of_tokens,
    panels_of,
    quote,
    read_models,
    read_quoted,
)
from bindscope.tables.quoted import Quoted
from bindscope.tables.rows import rows_with
from bindscope.tables.write import read_table

# Family -> its name in legends, and its look; in the order of legends.
_FAMILIES: Final[dict[str, tuple[str, Look]]] = {
    "quadratic": ("quadratic", {"color": BLUE, "marker": "o"}),
    "diagonal": ("diagonal", {"color": ORANGE, "marker": "s"}),
    "linear": ("linear", {"color": GREY, "marker": "v"}),
    "class_pointwise": ("class", {"color": PINK, "marker": "D"}),
    "class_position": ("class + position", {"color": PINK, "marker": "^"}),
    "identity_pointwise": ("identity", {"color": GREEN, "marker": "P"}),
    "quadratic_position": ("quadratic + position", {"color": BLUE, "marker": "^"}),
    "cosine": ("cosine", {"color": AMBER, "marker": ">"}),
    "dot": ("dot product", {"color": AMBER, "marker": "<"}),
}
# Column -> name in legends, how it is drawn.
LINES: Final[dict[str, tuple[str, Look]]] = {
    "class_oracle_accuracy": ("true classes", {"linestyle": (0, (6, 2)), "color": PINK}),
    "image_majority_accuracy": (
        "majority of each image",
        {"linestyle": (0, (3, 1, 1, 1)), "color": GREY},
    ),
    "majority_accuracy": ("majority", {"linestyle": (0, (1, 1.5)), "color": GREY}),
}
# How the released code grades the class probe: on pairs of one class, not of one object.
_BY_NAMES: Final = "class, on classes (released)"
_NAMED: Final[dict[str, Any]] = {"linestyle": (0, (1, 1)), "color": PINK, "linewidth": 1.0}
_POSITION: Final[dict[str, Any]] = {"linestyle": (0, (4, 1.5)), "color": INK, "linewidth": 1.0}
_COLUMNS = 4
_MEASURES = {
    "accuracy": ("accuracy, %", 100.0),
    "auc_within": ("area under ROC\nwithin images", 1.0),
}


def _by_panel(rows: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Add the name of each model's panel, and sort by dataset and the order of models."""
    panels = panels_of(rows, models, ("model", "dataset"))
    return pd.concat([part.assign(panel=name) for name, part in panels.items()])


def _probes(rows: pd.DataFrame) -> dict[str, Look]:
    """Return the look of each probe, that of its family."""
    families = rows.drop_duplicates("probe").set_index("probe")["family"]
    return {str(probe): _FAMILIES[family][1] for probe, family in families.items()}


def _families(rows: pd.DataFrame, **style: Any) -> dict[str, Look]:
    """Return the looks of the families that there are by the names in legends, in their order."""
    there = set(rows["family"])
    return {
        name: {**look, "markersize": 4, **style}
        for family, (name, look) in _FAMILIES.items()
        if family in there
    }


def _rivals(positions: pd.DataFrame) -> list[Any]:
    """Return legend entries of what reads no token."""
    alone = [handle("positions only", **_POSITION)] if len(positions) else []
    return [*alone, *(handle(name, linewidth=1.0, **look) for name, look in LINES.values())]


def _reference(line: Callable[..., Any], rows: pd.DataFrame) -> None:
    """Draw what is known without a probe, in percent."""
    for column, (_, look) in LINES.items():
        if rows[column].notna().any():
            line(100 * rows[column].mean(), linewidth=1.0, **look)


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read what is quoted of the table, and the order of models."""
    return {"quoted": read_quoted(inputs, SAME_OBJECT_SCHEMA), "models": read_models(inputs)}


def _read_with_table_1(inputs: Inputs) -> dict[str, Any]:
    """Read the same, and what the IsSameObject paper publishes of the same models."""
    compared = read_comparison(inputs.content.get("comparable"), inputs.resources)
    return {**_read(inputs), "compared": compared}


@figure(_read_with_table_1)
def same_object_layers(
    quoted: Quoted, models: Sequence[str] = (), compared: pd.DataFrame = NOT_COMPARED
) -> Figure:
    """Accuracy and area under the ROC curve by layer (IsSameObject paper, Fig. 3)."""
    few = "No probe of pairs read three layers of a model or more."
    place = ["dataset", "model", "probe"]
    curves = _by_panel(curves_of(of_tokens(quoted).rows, place, "layer", few), models)
    positions = quoted.where(family="position").rows
    names = dict.fromkeys(curves["panel"])
    grid = broken(_MEASURES, names, _COLUMNS, (0.9, 1.7))
    marks = select_drawn(compared)
    for (measure, name), axes in grid.panels.items():
        _layers(axes, curves[curves["panel"] == name], positions, measure)
        if axes in grid.left:
            axes.set_ylabel(_MEASURES[measure][0])
        if measure == "accuracy":
            axes.set_title(name, fontsize=8)
            about = curves[curves["panel"] == name].iloc[0]
            points = rows_with(marks, model=about["model"], dataset=about["dataset"])
            axes.plot(points["layer"], 100 * points["accuracy"], linestyle="none", **PAPER_MARK)
        else:
            axes.set_xlabel("layer")
    for measure in _MEASURES:  # one scale for all of its panels
        row_axes = [axes for key, axes in grid.panels.items() if key[0] == measure]
        ends = np.array([axes.get_ylim() for axes in row_axes])
        for axes in row_axes:
            axes.set_ylim(ends[:, 0].min(), ends[:, 1].max())
            axes.tick_params(labelleft=axes in grid.left)
    if words := describe_undrawn(compared):
        note_above(grid.figure, words)
    named = [handle(_BY_NAMES, **_NAMED)] if curves["class_pair_accuracy"].notna().any() else []
    return grid.legend(_families(curves), *named, *_rivals(positions), *paper_entry(marks))


def _layers(axes: Axes, rows: pd.DataFrame, positions: pd.DataFrame, measure: str) -> None:
    scale = _MEASURES[measure][1]
    lines(axes, rows, _probes(rows), y=measure, by="probe", scale=scale, band=0.15, markersize=3.5)
    if measure == "accuracy":
        _reference(axes.axhline, rows)
        for _, named in rows[rows["class_pair_accuracy"].notna()].groupby("probe", sort=False):
            by_layer = named.sort_values("x")
            axes.plot(by_layer["x"], 100 * by_layer["class_pair_accuracy"], **_NAMED)
    here = (positions["dataset"] == rows["dataset"].iloc[0]) & positions["grid"].isin(rows["grid"])
    for value in positions.loc[here, measure].dropna():
        axes.axhline(scale * value, **_POSITION)
    named_layers = dict(zip(rows["x"].astype(float), rows["layer"].astype(str), strict=True))
    ticks: list[float] = []
    for x in sorted(named_layers, reverse=True):  # the last one is named; names need their space
        if not ticks or ticks[-1] - x >= _TICKS_APART * max(named_layers):
            ticks.append(x)
    axes.set_xticks(ticks, [named_layers[x] for x in ticks])


_TICKS_APART = 0.12  # of the deepest layer


@figure(_read_with_table_1)
def same_object_models(
    quoted: Quoted, models: Sequence[str] = (), compared: pd.DataFrame = NOT_COMPARED
) -> Figure:
    """Accuracy of each model at its best layer (IsSameObject paper, Table 1)."""
    rows, positions = at_best_layers(quoted), quoted.where(family="position").rows
    some(rows_with(rows, family="quadratic"), "No quadratic probe was fitted to tokens of a model.")
    datasets, marks = list(dict.fromkeys(rows["dataset"])), select_drawn(compared)
    heights = [rows_with(rows, dataset=name)["model"].nunique() for name in datasets]
    height = 0.9 + 0.42 * (sum(heights) + 2 * len(heights))
    grid = wrapped(datasets, 1, (height, 0), sharex=True, height_ratios=heights)
    for dataset, axes in grid.panels.items():
        part = rows[rows["dataset"] == dataset]
        order = [name for name in models if name in set(part["model"])]
        _models(axes, part, order)
        here = marks[(marks["dataset"] == dataset) & marks["model"].isin(order)]
        places = here["model"].map(order.index)
        axes.plot(100 * here["accuracy"], places, linestyle="none", **PAPER_MARK)
        for value in positions.loc[positions["dataset"] == dataset, "accuracy"].dropna():
            axes.axvline(100 * value, **_POSITION)
        axes.set_title(dataset, fontsize=8)
    grid.bottom[0].set_xlabel("accuracy at the layer with the lowest validation loss, %")
    if words := describe_undrawn(compared):
        note_above(grid.figure, words)
    entries = _families(rows, linewidth=1, markersize=4.5)
    return grid.legend(entries, *_rivals(positions), *paper_entry(marks), per_row=4)


def _models(axes: Axes, rows: pd.DataFrame, order: Sequence[str]) -> None:
    there = set(rows["family"])
    families = [family for family in _FAMILIES if family in there]
    for _, row in rows[rows["model"].isin(order)].iterrows():
        look = _FAMILIES[row["family"]][1]
        shift = 0.5 * (families.index(row["family"]) / max(1, len(families) - 1) - 0.5)
        at = order.index(row["model"]) + shift
        value, low, high = (100 * float(row[name]) for name in ACCURACY.interval)
        axes.plot([low, high], [at, at], color=look["color"], linewidth=1)
        axes.plot(value, at, **look, markersize=4.5)
        if row["family"] == "quadratic":
            axes.annotate(
                f"layer {row['layer']}",
                (high, at),
                xytext=(6, 0),
                fontsize=7,
                textcoords="offset points",
                va="center",
                color=GREY,
            )
    _reference(axes.axvline, rows)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.margins(x=0.12)
    values_along_x(axes)


_BY_DISTANCE = (
    "quadratic",
    "quadratic_position",
    "diagonal",
    "class_position",
    "class_pointwise",
    "cosine",
    "dot",
)
SMALLEST_PAIRS = 200  # pairs of a bin, below which no curve has a point there


def _read_strata(inputs: Inputs) -> dict[str, Any]:
    """Read what is quoted of the table, and the layers that validation prefers."""
    table = read_table(inputs.paths("table")[0], STRATA_SCHEMA).assign(flags="")
    strata = quote(table.astype({"n_pairs": float}), inputs.content["model_groups"])
    layers = best_layers(read_quoted(inputs, SAME_OBJECT_SCHEMA, "scores"))
    return {"strata": strata, "layers": layers, "models": read_models(inputs)}


@figure(_read_strata)
def same_object_strata(strata: Quoted, layers: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Pairs of one class, by distance: whether a probe tells two objects of it apart."""
    of_class = strata.where(same_class="same")
    of_class = of_class.take(of_class.rows["distance"] != ALL)
    rows = of_tokens(of_class).rows.merge(layers[["dataset", "model", "layer"]])
    rows = rows[rows["family"].isin(_BY_DISTANCE)]
    # A score that parts same from different needs both among the pairs of a bin.
    rows = _by_panel(
        some(
            rows[rows["auc_within"].notna() & (rows["n_pairs"] >= SMALLEST_PAIRS)],
            "No scene has two objects of one class at a distance that two patches of one object "
            "also have: there is nothing to tell apart within a class.",
        ),
        models,
    )
    positions = of_class.where(family="position").rows.dropna(subset="auc_within")
    bins = [name for name in DISTANCES if name in set(rows["distance"])]
    rows = rows.assign(x=rows["distance"].map(bins.index))
    placed = positions[positions["distance"].isin(bins)]
    placed = placed.assign(x=placed["distance"].map(bins.index))
    grid = wrapped(dict.fromkeys(rows["panel"]), _COLUMNS, (0.9, 1.9), sharex=True, sharey=True)
    facets(
        rows,
        _probes(rows),
        grid,
        "panel",
        y="auc_within",
        by="probe",
        band=0.15,
        markersize=3.5,
        title=str,
    )
    for panel, axes in grid.panels.items():
        dataset = rows.loc[rows["panel"] == panel, "dataset"].iloc[0]
        base = placed[placed["dataset"] == dataset]
        lines(axes, base, dict.fromkeys(base["grid"], _POSITION), y="auc_within", by="grid")
        axes.axhline(0.5, color=GREY, linewidth=0.8)
    grid.label("distance in patches", "area under ROC within images,\npairs of one class")
    for axes in grid.bottom:
        axes.set_xticks(range(len(bins)), bins, fontsize=7)
    alone = [handle("positions only", **_POSITION)] if len(positions) else []
    return grid.legend(_families(rows), *alone, handle("chance", color=GREY, linewidth=0.8))


@figure(_read)
def same_object_ranks(quoted: Quoted, models: Sequence[str] = ()) -> Figure:
    """How many directions tell same from different: accuracy by rank of the truncated form."""
    truncated = quoted.rows[quoted.rows["rank"] > 0]
    some(truncated, "No quadratic probe has `ranks`, so that no truncated form was measured.")
    full = best_layers(quoted)[["dataset", "model", "layer", "accuracy"]]
    ranks = truncated.merge(full.rename(columns={"accuracy": "full"}))
    several = ranks["dataset"].nunique() > 1
    ranks["line"] = ranks["model"] + (", " + ranks["dataset"] if several else "")
    look = looks(list(dict.fromkeys(ranks["line"])))
    canvas = new_figure(2.9)
    axes = canvas.subplots()
    lines(axes, ranks, look, x="rank", y="accuracy", scale=100, markersize=3.5)
    dashes: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.9}
    for _, row in ranks.drop_duplicates("line").iterrows():
        axes.axhline(100 * row["full"], color=look[row["line"]]["color"], **dashes)
    axes.set(xlabel="rank of the form", ylabel="accuracy, %")
    axes.set_xscale("log", base=2)
    entries = [handle(name, **style, markersize=4) for name, style in look.items()]
    legend_below(canvas, [*entries, handle("full rank", color="#444444", **dashes)], 5)
    return canvas
