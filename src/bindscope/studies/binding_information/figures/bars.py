"""Bounds as bars: [CLS] against the patches, and natural images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colors import GREY, INK
from bindscope.figures.facets import crossed, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import (
    handle,
    note_above,
    reference_line,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.curves import curve_rows
from bindscope.studies.binding_information.figures.shared import (
    bar_legend,
    baseline_entries,
    binding_and,
    bound_bar,
    cross_baselines,
    draw_stars,
    has_assumed_prior,
    marked,
    table_as,
)
from bindscope.studies.binding_information.names import label_family, label_tokens
from bindscope.studies.binding_information.published import (
    NO_TRENDS,
    NO_VALUES,
    beside,
    input_sides,
    read_papers_table,
    read_trends,
    table_note,
    trend_of,
)
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    PAPER_BEYOND,
    PAPER_WHOLE,
    WHOLE,
)
from bindscope.studies.binding_information.views import (
    dataset_tokens,
    each_model,
    family_order,
    last_layers,
    measured,
    model_labels,
    named_groups,
    over_seeds,
    strongest_baselines,
    token_order,
)
from bindscope.tables.quoted import name_order

_BAR = 0.8
_HEADING = 0.9  # of a model's name above its bars, which are 1 apart
_GAP = 0.4  # below a model's bars


@figure(binding_and(published=read_papers_table, sides=input_sides))
def tokens(
    table: pd.DataFrame,
    published: pd.DataFrame = NO_VALUES,
    models: Sequence[str] = (),
    sides: Mapping[str, int | None] = MappingProxyType({}),
) -> Figure:
    """Draw B_O: a panel per dataset, models below one another, a bar per probe and token input.

    Where a model has several bars, those with one are left out. Numbers of the paper are stars
    where dataset, model, tokens and probe family agree, else words.
    """
    rows = last_layers(measured(table))
    rows = rows[rows[PAPER_WHOLE.value].notna() | rows[WHOLE.value].notna()]
    some(rows, "No model other than the known-answer encoders was measured.")
    rows = _compared(rows)
    marks = beside(table, published, sides)
    labels = model_labels(rows, models)
    panels = {
        dataset: _bars(rows[rows["dataset"] == dataset], models)
        for dataset in sorted(rows["dataset"].unique())
    }
    heights = [0.75 + 0.21 * (part["place"].max() + 1.5) for part in panels.values()]
    grid = wrapped(panels, 1, (1.0 + sum(heights), 0), height_ratios=heights)
    baselines = {name: strongest_baselines(table, name, WHOLE) for name in panels}
    for dataset, axes in grid.panels.items():
        part = panels[dataset]
        _tokens(axes, part, labels)
        _token_stars(axes, part, marks)
        if len(panels) > 1:
            axes.set_title(dataset, pad=14)
        entropy = marked("H(O)", has_assumed_prior(part))
        reference_line(axes, part[WHOLE.entropy].iloc[0], entropy, vertical=True)
        cross_baselines(axes, baselines[dataset])
    grid.label("B_O, bits per scene")
    without = handle("same, probe without input", marker="x", color=GREY, linestyle="none")
    further = [without] if rows["null_loss_object_bits"].notna().any() else []
    further += baseline_entries(chain(*baselines.values()))
    bar_legend(grid.figure, rows, map(label_tokens, token_order(rows["tokens"])), further, marks)
    note_above(grid.figure, table_note(published, marks, PAPER_WHOLE.value))
    return grid.figure


def _compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return model groups, and all rows of models that stand alone; those to compare, if any."""
    names = ["dataset", "model"]
    models, groups = each_model(named_groups(rows)), over_seeds(rows)
    alone = models.merge(groups[names].drop_duplicates(), on=names)
    both = pd.concat([groups[groups["n_models"] > 1], alone])
    bars = both.groupby(names)["probe"].transform("size")
    return both[bars > 1] if (bars > 1).any() else both


def _bars(rows: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Order a dataset's bars, and say at which `place` each is and what its `tick` says.

    A tick names the probe's family, or the probe where several share that, and the token input.
    """
    names = name_order(rows["model"], models)
    by_family = rows.groupby(["model", "family"])["probe"].transform("nunique")
    words = rows["family"].map(lambda family: label_family(family).name)
    words = words.where(by_family == 1, rows["probe"])
    token_words = rows["tokens"].map(lambda tokens: label_tokens(tokens).name)
    rows = rows.assign(tick=words + ", " + token_words)
    order = {
        "model": names,
        "family": family_order(rows["family"]),
        "tokens": token_order(rows["tokens"]),
    }
    keys = [rows[name].map(known.index) for name, known in order.items()]
    rows = rows.assign(**dict(zip(("a", "b", "c"), keys, strict=True)))
    rows = rows.sort_values(["a", "b", "probe", "c"], kind="stable").reset_index(drop=True)
    return rows.assign(place=rows.index + _HEADING + rows["a"] * (_HEADING + _GAP))


def _tokens(axes: Axes, part: pd.DataFrame, labels: Mapping[str, str]) -> None:
    values_along_x(axes)
    zero_line(axes, vertical=True)
    for row in part.to_dict("records"):
        color = label_tokens(row["tokens"]).color
        bound_bar(axes, row, row["place"], _BAR, color, WHOLE, PAPER_WHOLE)
        without_input = row[WHOLE.entropy] - row["null_loss_object_bits"]
        axes.plot(without_input, row["place"], "x", color=GREY, markersize=4, zorder=3)
    for model, place in part.groupby("model")["place"].min().items():
        axes.annotate(
            labels[str(model)],
            (0, place - _HEADING),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            fontweight="bold",
        )
    axes.set_yticks(part["place"], part["tick"])
    axes.set_ylim(part["place"].max() + 0.6, -0.6)


def _token_stars(axes: Axes, part: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Draw published values at the bars that they are comparable with."""
    numbers = marks[marks["quantity"] == PAPER_WHOLE.value]
    names = ["dataset", "model", "probe"]
    bars = part[[*names, "tokens", "place"]].rename(columns={name: f"our_{name}" for name in names})
    both = numbers.merge(bars)
    draw_stars(axes, both["value"], both["place"], both["same"])


_ASSIGNED: dict[str, Any] = {
    "marker": "s",
    "color": "white",
    "markeredgecolor": INK,
    "markersize": 4.2,
    "linestyle": "none",
    "zorder": 4,
}
_QUANTITIES = ("β*, %", "B*, bits per scene", "B_O, bits per scene")


@figure(binding_and("natural", "cells", priors=table_as("priors"), trends=read_trends))
def natural(
    table: pd.DataFrame,
    priors: pd.DataFrame,
    natural: Collection[str],
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame = NO_TRENDS,
) -> Figure:
    """Draw beta*, B* and B_O on `natural` datasets: a group of bars per model, a bar per probe.

    The paper's own prior (squares) re-assigns the attributes of an image to its objects.
    """
    rows = curve_rows(table)
    rows = rows[rows["dataset"].isin(list(natural))]
    some(rows, "No model was measured on images that were read.")
    test = priors[priors["split"] == "test"].set_index("dataset")
    assigned = rows["dataset"].map(test["assignment_bits"]).astype(float)
    decoded = rows["loss_object_bits"] - rows["loss_feature_bits"]
    rows = rows.assign(assignment_bits=assigned, with_assignments=assigned - decoded)
    marks, note = trend_of("natural images", trends, table, cells)
    labels = model_labels(rows, models)
    names = list(labels)
    lines, families = dataset_tokens(rows), family_order(rows["family"])
    crossed_by: list[str] = []
    # No panel is lower than its title and axis.
    height = 0.75 + max(0.9, 0.13 * len(names) * len(families))
    grid = crossed(lines, _QUANTITIES, (1.1, height), sharex="col", sharey=True)
    for dataset, token in lines:
        panels = [grid.panels[(dataset, token), name] for name in _QUANTITIES]
        part = rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]
        _natural(panels, part, names, families)
        beyond, whole = (strongest_baselines(table, dataset, q) for q in (BEYOND, WHOLE))
        _cross(panels, beyond, whole, float(part[BEYOND.entropy].iloc[0]))
        crossed_by += [*beyond, *whole]
        head = marked(dataset, has_assumed_prior(part))
        panels[0].set_title(f"{head}, {label_tokens(token).name}", pad=14)
        if token == "cls":
            _published(panels[0], marks[marks["our_dataset"] == dataset], names)
    grid.left[0].set_yticks(range(len(names)), list(labels.values()))
    grid.left[0].set_ylim(len(names) - 0.5, -0.5)
    for axes, label in zip(grid.bottom, _QUANTITIES, strict=True):
        axes.set_xlabel(label)
    squares = [handle("same, with that paper's prior", **_ASSIGNED)]
    further = squares if rows["assignment_bits"].notna().any() else []
    further += baseline_entries(crossed_by)
    bar_legend(grid.figure, rows, map(label_family, families), further, marks)
    note_above(grid.figure, note)
    return grid.figure


def _published(axes: Axes, marks: pd.DataFrame, models: Sequence[str]) -> None:
    """Draw published values: stars at models that the paper names, else at the top."""
    names = zip(marks["model"], marks["our_model"], strict=True)
    places = [models.index(ours) if named else -0.4 for named, ours in names]
    marks = marks.assign(place=places).drop_duplicates(["value", "place"])
    draw_stars(axes, 100.0 * marks["value"], marks["place"], marks["same"])


def _cross(
    panels: Sequence[Axes], beyond: Mapping[str, float], whole: Mapping[str, float], entropy: float
) -> None:
    """Draw baselines across the panels of B* (percent and bits) and of B_O."""
    if entropy > 0:
        cross_baselines(panels[0], beyond, 100.0 / entropy)
    cross_baselines(panels[1], beyond)
    cross_baselines(panels[2], whole)


def _natural(
    panels: Sequence[Axes], part: pd.DataFrame, models: Sequence[str], families: Sequence[str]
) -> None:
    assumed = has_assumed_prior(part)
    conditional, whole = part[[BEYOND.entropy, WHOLE.entropy]].iloc[0]
    share = 100.0 / conditional if conditional > 0 else float("nan")
    for axes in panels:
        values_along_x(axes)
        zero_line(axes, vertical=True)
    reference_line(panels[1], conditional, marked("H(O|F)", assumed), vertical=True)
    reference_line(panels[2], whole, marked("H(O)", assumed), vertical=True)
    part = part.assign(place=part["family"].map(families.index))
    for i, model in enumerate(models):
        probes = part[part["model"] == model].sort_values(["place", "probe"], kind="stable")
        height = _BAR / max(2, len(probes))
        for k, row in enumerate(probes.to_dict("records")):
            y = i + (k - (len(probes) - 1) / 2) * height
            look = (y, 0.9 * height, label_family(row["family"]).color)
            bound_bar(panels[0], row, *look, BEYOND, PAPER_BEYOND, share)
            bound_bar(panels[1], row, *look, BEYOND, PAPER_BEYOND)
            bound_bar(panels[2], row, *look, WHOLE, PAPER_WHOLE)
            bits, assigned = row["with_assignments"], row["assignment_bits"]
            if assigned > 0:
                panels[0].plot(100.0 * bits / assigned, y, **_ASSIGNED)
                panels[1].plot(bits, y, **_ASSIGNED)
