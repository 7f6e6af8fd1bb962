"""Attention beside the probe, and edits of what the probe reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK
from bindscope.figures.facets import FacetGrid, Look, crossed, facets, lines
from bindscope.figures.figure import curves_of, figure, some
from bindscope.figures.style import handle, note_above, zero_line
from bindscope.studies.same_object.published import (
    PAPER,
    PAPER_MODEL,
    read_ablation,
    read_attention,
    read_comparison,
)
from bindscope.studies.same_object.quantities import (
    MEAN_HEAD,
    PRETRAINING_LOSS,
    PROXY_LOSS,
    READERS,
)
from bindscope.studies.same_object.tables import EDIT_NAMES, EDITS_SCHEMA
from bindscope.studies.same_object.views import (
    VALUE_ENDS,
    best_edited,
    panels_of,
    read_models,
    where_validation_is_best,
    without_loss,
)
from bindscope.tables.numbers import percent
from bindscope.tables.write import read_table

# Quantity -> row of panels, name in the legend, look.
_ATTENTION: Final[dict[str, tuple[str, str, Look]]] = {
    "pearson": ("correlation", "Pearson", {"color": BLUE, "marker": "o"}),
    "beyond_rivals": (
        "correlation",
        "with the labels, given class, distance, cosine",
        {"color": ORANGE, "marker": "^"},
    ),
    "object_share": ("share", "share on the same object", {"color": INK, "marker": "o"}),
    "uniform_share": (
        "share",
        "attention to all alike",
        {"color": GREY, "linestyle": (0, (3, 1.5))},
    ),
}
_HEADS: Final[dict[str, Look]] = {
    "Pearson, single heads": {
        "color": BLUE,
        "marker": ".",
        "linestyle": "none",
        "alpha": 0.4,
        "markersize": 4,
    },
}


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the order of models."""
    table = read_table(inputs.paths("table")[0], EDITS_SCHEMA)
    return {"table": table, "models": read_models(inputs)}


def _has_papers_model(inputs: Inputs) -> bool:
    """Whether the run has the model of Fig. 7 and Table 2 of the IsSameObject paper."""
    return PAPER_MODEL in set(
        read_comparison(inputs.content.get("comparable"), inputs.resources)["name"]
    )


def _read_with_fig_7(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and what the IsSameObject paper publishes of attention."""
    published = ""
    if _has_papers_model(inputs):
        low, high = read_attention(inputs.resources["same_object"])
        published = (
            f"{PAPER}, Fig. 7, {PAPER_MODEL}: {low} to {high} in middle layers. Not drawn: its "
            "mean over heads and its images are not described."
        )
    return {**_read(inputs), "published": published}


_MOST_PANELS = 4  # models of a figure; the table has them all


def _panels(rows: pd.DataFrame, models: Sequence[str]) -> dict[str, pd.DataFrame]:
    panels = panels_of(rows, models, ("model", "dataset", "probe"))
    return dict(list(panels.items())[:_MOST_PANELS])


@figure(_read_with_fig_7)
def same_object_attention(
    table: pd.DataFrame, models: Sequence[str] = (), published: str = ""
) -> Figure:
    """Whether attention goes where a probe predicts the same object, a column per model."""
    rows = table[table["edit"] == "none"]
    some(
        rows[(rows["quantity"] == "pearson") & rows["value"].notna()],
        "Attention or scores do not vary anywhere.",
    )
    rows = curves_of(rows, ["dataset", "model", "probe"], "layer", "Fewer than three layers.")
    panels = _panels(rows, models)
    rows = pd.concat(rows.assign(panel=title) for title, rows in panels.items())
    rows = rows.assign(x=rows["layer"].astype(float)).rename(columns=VALUE_ENDS)
    mean = rows[rows["at"].isin([MEAN_HEAD, ""])]
    single = rows[(rows["quantity"] == "pearson") & (rows["at"] != MEAN_HEAD)]
    grid = crossed(("correlation", "share"), panels, (0, 2.3), sharey="row")
    looks = {name: look for _, name, look in _ATTENTION.values()}
    single = single.assign(row="correlation", line=next(iter(_HEADS)))
    facets(single, _HEADS, grid, ("row", "panel"))
    for quantity, (row, name, look) in _ATTENTION.items():
        points = mean[mean["quantity"] == quantity].assign(row=row, line=name)
        scale, band = (100 if row == "share" else 1), (0.15 if "marker" in look else 0.0)
        facets(points, {name: look}, grid, ("row", "panel"), scale=scale, band=band)
    for (row, title), axes in grid.panels.items():
        if row == "correlation":
            zero_line(axes)
            axes.set_title(title, fontsize=8)
        ticks = mean[mean["panel"] == title].drop_duplicates("layer").sort_values("x")
        axes.set_xticks(ticks["x"], ticks["layer"])
    grid.label(
        "layer of the probe",
        (
            "correlation of attention and\nprobe over pairs of patches",
            "fraction of attention on\nthe same object, %",
        ),
    )
    if published:
        note_above(grid.figure, published)
    return grid.legend({**looks, **_HEADS}, per_row=3)


# Subspace -> name in the legend, look.
_SUBSPACES: Final[dict[str, tuple[str, Look]]] = {
    "beyond": ("probe subspace, outside class and position", {"color": BLUE, "marker": "o"}),
    "probe": ("whole probe subspace", {"color": INK, "marker": "X"}),
    "random": ("random directions", {"color": GREY, "marker": "s"}),
    "matched": ("random ones of as much variance", {"color": GREEN, "marker": "v"}),
    "variance": ("directions of most variance, moved as far", {"color": AMBER, "marker": "^"}),
    "mean": ("toward the mean token, moved as far", {"color": PINK, "marker": "D"}),
}
_LOSS = PRETRAINING_LOSS.change  # of other units and sizes from one objective to the next
_MEASURES = {
    "auc_within": ("AUC within images,\nsame layer, %", 100.0),
    "later_auc_within": ("AUC within images,\nlater layer, %", 100.0),
    "object_share": ("attention on the\nsame object, %", 100.0),
    _LOSS: ("own loss, bits more\nthan without an edit", 1.0),
}
# Measure -> the same of the edited probe after it was fitted again.
_AGAIN_OF = {reader.auc_within.name: reader.refitted_auc_within.name for reader in READERS}
_AGAIN: Final[dict[str, Any]] = {
    "color": INK,
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": "none",
}
_MAJORITY: Final[dict[str, Any]] = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.0}
EditCondition = tuple[str, float]


@figure(_read)
def same_object_edits(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Edits of what a probe reads, and their controls: a column of panels per model."""
    best = where_validation_is_best(some(table, "Nothing was edited."))
    panels, conditions = _edited_panels(best, models), _conditions(best)
    there = set(best.loc[best["value"].notna(), "quantity"])
    measures = [name for name in _MEASURES if name in there]
    grid = _edits_grid({name: _MEASURES[name][0] for name in measures}, panels, conditions)
    for (name, title), axes in grid.panels.items():
        if name != _LOSS and axes not in grid.left:
            axes.sharey(grid.left[measures.index(name)])
            axes.tick_params(labelleft=False)
        _edited(axes, panels[title], name, conditions)
    used = [entry for name, entry in _SUBSPACES.items() if (best["subspace"] == name).any()]
    entries = {name: {**look, "linestyle": "none"} for name, look in used}
    if there & set(_AGAIN_OF.values()):
        entries["hollow: probe fitted again"] = {**_AGAIN, "linestyle": "none"}
    grid.legend(entries, handle("guess; without an edit", **_MAJORITY), per_row=3)
    if reasons := sorted(without_loss(best)):
        note_above(grid.figure, f"No pretraining loss of some models: {'; '.join(reasons)}.")
    return grid.figure


def _edited_panels(rows: pd.DataFrame, models: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the rows of each model, whose title names the edited layer."""
    panels = _panels(rows, models)
    return {f"{title}\nlayer {part['layer'].iloc[0]}": part for title, part in panels.items()}


def _edits_grid(
    measures: Mapping[str, str],
    panels: Mapping[str, Any],
    conditions: Sequence[EditCondition],
) -> FacetGrid:
    """Lay out a row per measure (name -> axis) and a column per model, with edits along x."""
    grid = crossed(measures, panels, (1.3, 1.35), sharex=True)
    for axes, title in zip(grid.panels.values(), panels, strict=False):
        axes.set_title(title, fontsize=8)
    for axes in grid.bottom:
        axes.set_xticks(
            range(len(conditions)),
            [_words(*condition) for condition in conditions],
            rotation=60,
            fontsize=7,
            ha="right",
            rotation_mode="anchor",
        )
    grid.label(y=[*measures.values()], fontsize=7.5)
    return grid


def _conditions(table: pd.DataFrame) -> list[EditCondition]:
    """Return edits with their strengths, in order."""
    pairs = table[["edit", "strength"]].drop_duplicates().itertuples(index=False)
    order = EDIT_NAMES.index
    return sorted(((str(e), float(s)) for e, s in pairs), key=lambda c: (order(c[0]), c[1]))


def _words(edit: str, strength: float) -> str:
    if edit == "shuffle":
        return f"shuffle {percent(strength)}"
    if edit == "inject":
        return f"inject \N{GREEK SMALL LETTER ALPHA} = {1 - strength:.2g}"
    return {"none": "original"}.get(edit, edit)


def _edited(axes: Axes, rows: pd.DataFrame, name: str, conditions: list[EditCondition]) -> None:
    """Draw a measure of one model under all edits."""
    scale, again = _MEASURES[name][1], _AGAIN_OF.get(name, "")
    places = map(conditions.index, zip(rows["edit"], rows["strength"], strict=True))
    rows = rows.assign(x=list(places)).rename(columns=VALUE_ENDS)
    plain = rows[rows["edit"] == "none"].groupby("quantity")["value"].first() * scale
    before = 0.0 if name == _LOSS else plain.get(name, np.nan)
    axes.axhline(before, **_MAJORITY)
    if name in _AGAIN_OF:
        axes.axhline(scale / 2, **_MAJORITY)
    axes.plot(0, before, color=INK, marker="o", markersize=4)
    if again in plain:
        axes.plot(0.25, plain[again], **_AGAIN)
    looks = {subspace: look for subspace, (_, look) in _SUBSPACES.items()}
    fillings: dict[str, dict[str, Any]] = {name: {}, again: {"markerfacecolor": "none"}}
    for quantity, style in fillings.items():
        lines(
            axes,
            rows[rows["quantity"] == quantity],
            looks,
            by="subspace",
            scale=scale,
            apart=0.14,
            bars=1,
            linestyle="none",
            markersize=3.5,
            **style,
        )


# Quantity -> the axis, the factor, and what the IsSameObject paper calls it.
_TABLE_2: Final = {
    "refitted_class_miou": ("classes,\nmIoU, %", 100.0, "semantic segmentation mIoU"),
    "refitted_instance_miou": ("objects,\nmIoU, %", 100.0, "instance segmentation mIoU"),
    PRETRAINING_LOSS.name: ("own loss, bits", 1.0, ""),
    PROXY_LOSS.name: ("distillation\nloss, bits", 1.0, "DINO loss"),
}
_COLUMNS_2: Final = (
    ("none", 0.0),
    ("shuffle", 0.5),
    ("shuffle", 1.0),
    ("inject", 0.5),
    ("inject", 1.0),
)
_EDIT_COLORS: Final = {"none": INK, "shuffle": ORANGE, "inject": BLUE}


def _read_with_table_2(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the IsSameObject paper's Table 2 where the run has its model."""
    published = ""
    if _has_papers_model(inputs):
        published = table_2_words(read_ablation(inputs.resources["same_object_ablation"]))
    return {**_read(inputs), "published": published}


@figure(_read_with_table_2)
def same_object_ablation(
    table: pd.DataFrame, models: Sequence[str] = (), published: str = ""
) -> Figure:
    """Heads fitted again under edits of the whole subspace (IsSameObject paper, Table 2)."""
    rows = best_edited(table)
    rows = rows[rows["subspace"].isin(["none", "probe"]) & rows["quantity"].isin(list(_TABLE_2))]
    some(
        rows[rows["quantity"].str.contains("miou")], "No class or identity probe was fitted again."
    )
    panels = _edited_panels(rows, models)
    there = {name for part in panels.values() for name in part.dropna(subset="value")["quantity"]}
    measures = {name: axis for name, (axis, _, _) in _TABLE_2.items() if name in there}
    grid = _edits_grid(measures, panels, _COLUMNS_2)
    for (name, title), axes in grid.panels.items():
        part = panels[title]
        _columns(axes, part[part["quantity"] == name], _TABLE_2[name][1])
    if published:
        note_above(grid.figure, published)
    return grid.figure


def table_2_words(table: pd.DataFrame) -> str:
    """Quote the IsSameObject paper's Table 2 in the order of the columns."""
    values = table.set_index(["quantity", "edit", "strength"])["value"]
    quoted = (
        f"{name}{' (%)' if scale > 1 else ''} "
        + ", ".join(f"{values[name, *c]:.4g}" for c in _COLUMNS_2 if (name, *c) in values)
        for _, scale, name in _TABLE_2.values()
        if name
    )
    return (
        f"{PAPER}, Table 2, {PAPER_MODEL}, layer 19, in this order: {'; '.join(quoted)}. "
        "Not drawn: its heads read pixels, and its loss is not described."
    )


def _columns(axes: Axes, rows: pd.DataFrame, scale: float) -> None:
    """Draw a measure under the five conditions, each with its number."""
    points = rows.dropna(subset="value").groupby(["edit", "strength"])["value"].mean()
    for x, (edit, strength) in enumerate(_COLUMNS_2):
        if (edit, strength) not in points.index:
            continue
        value = scale * float(points[edit, strength])
        axes.plot(x, value, color=_EDIT_COLORS[edit], marker="o", markersize=4)
        axes.annotate(
            f"{value:.4g}",
            (x, value),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
        )
        if edit == "none":
            axes.axhline(value, **_MAJORITY)
    axes.margins(x=0.12, y=0.3)
    if not len(points):
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes, fontsize=7)
