"""F5: binding in natural images, by model and probe (spec 1, sections 3 to 5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import INK
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    new_figure,
    note_above,
    reference_line,
    styled,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.assumed import marked, rests_on_one
from bindscope.studies.binding_information.figures.bars import bar_legend, bound_bar
from bindscope.studies.binding_information.figures.curves import curve_rows
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.published import read_trends, trend_of
from bindscope.studies.binding_information.views import dataset_tokens, family_order, name_order
from bindscope.tables.write import read_table

STUDY = "natural images"
PERCENT = 100.0
_BAR = 0.8
_ASSIGNED: dict[str, Any] = {
    "marker": "s", "color": "white", "markeredgecolor": INK, "markersize": 4.2,
    "linestyle": "none", "zorder": 4,
}  # fmt: skip


def _rows(table: pd.DataFrame, datasets: Collection[str]) -> pd.DataFrame:
    rows = curve_rows(table)
    return rows[rows["dataset"].isin(list(datasets))]


def read(inputs: Inputs) -> dict[str, Any]:
    """Read this study's table and that of priors, which datasets it is about, the paper's words."""
    return {
        **read_binding(inputs),
        "priors": read_table(inputs.paths("priors")[0]),
        "datasets": inputs.content["datasets"],
        "cells": inputs.content["cells"],
        "trends": read_trends(inputs),
    }


def available(table: pd.DataFrame, datasets: Collection[str], **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return (
        None if len(_rows(table, datasets)) else "No model was measured on images that were read."
    )


@styled
def draw(
    table: pd.DataFrame,
    priors: pd.DataFrame,
    datasets: Collection[str],
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame | None = None,
) -> Figure:
    """Draw beta*, B* and B_O of every model's last layer on natural images.

    Parameters
    ----------
    table, models
        As `read_binding` returns them.
    priors
        `priors`: the entropy of re-assigned attributes is read, where a dataset has it.
    datasets
        Names of the datasets of natural images.
    cells
        Per dataset the number of possible objects.
    trends
        The paper's numbers (`resources/published/trends.csv`): stars where dataset and model
        agree, words where not.

    Returns
    -------
    Figure
        A row of three panels per dataset and token input; in each a group of bars per model, a bar
        per probe: the lower bound with its 95 % interval, hatched where the prior is estimated.
        Diamonds: the paper's estimate; squares: the same with the paper's own prior, in which the
        attributes of an image are re-assigned to its objects, instead of H(O|F).
    """
    rows = _assigned(_rows(table, datasets), priors)
    marks, note = trend_of(STUDY, trends, table, cells)
    names = name_order(rows["model"], models)
    lines = dataset_tokens(rows)
    families = family_order(rows["family"])
    # No panel is lower than its title and axis.
    height = 0.75 + max(0.9, 0.13 * len(names) * len(families))
    figure = new_figure(1.1 + height * len(lines))
    grid = figure.subplots(len(lines), 3, sharex="col", sharey=True, squeeze=False)
    for panels, (dataset, token) in zip(grid, lines, strict=True):
        part = rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]
        _line(panels, part, names, families)
        assumed = rests_on_one(part)
        panels[0].set_title(f"{marked(dataset, assumed)}, {tokens_shown(token).name}", pad=14)
        if token == "cls" and len(marks):
            _stars(panels[0], marks[marks["our_dataset"] == dataset], names)
    grid[0, 0].set_yticks(range(len(names)), names)
    grid[0, 0].set_ylim(len(names) - 0.5, -0.5)
    for axes, label in zip(grid[-1], ("β*, %", "B*, bits", "B_O, bits"), strict=True):
        axes.set_xlabel(f"{label} per scene" if "bits" in label else label)
    further = []
    if rows["assignment_bits"].notna().any():
        further = [handle("same, over the paper's prior", **_ASSIGNED)]
    bar_legend(figure, rows, map(family_shown, families), further, marks)
    note_above(figure, note)
    return figure


def _assigned(rows: pd.DataFrame, priors: pd.DataFrame) -> pd.DataFrame:
    """Add `assignment_bits`, and `with_assignments`: the paper's B* over that prior."""
    test = priors[priors["split"] == "test"].set_index("dataset")
    bits = rows["dataset"].map(test["assignment_bits"]).astype(float)
    left = rows["loss_object_bits"] - rows["loss_feature_bits"]
    return rows.assign(assignment_bits=bits, with_assignments=bits - left)


def _line(
    panels: Sequence[Axes], part: pd.DataFrame, models: Sequence[str], families: Sequence[str]
) -> None:
    assumed = rests_on_one(part)
    given, whole = part[["h_object_given_feature_bits", "h_object_bits"]].iloc[0]
    share = PERCENT / given if given > 0 else float("nan")
    for axes in panels:
        values_along_x(axes)
        zero_line(axes, vertical=True)
    reference_line(panels[1], given, marked("H(O|F)", assumed), vertical=True)
    reference_line(panels[2], whole, marked("H(O)", assumed), vertical=True)
    for i, model in enumerate(models):
        bars = part[part["model"] == model]
        places = bars.assign(place=bars["family"].map(families.index))
        probes = places.sort_values(["place", "probe"], kind="stable")
        height = _BAR / max(2, len(probes))
        row: Any
        for k, row in enumerate(probes.itertuples()):
            y = i + (k - (len(probes) - 1) / 2) * height
            look = (y, 0.9 * height, family_shown(row.family).colour)
            bound_bar(panels[0], row, *look, "conditional_binding", share)
            bound_bar(panels[1], row, *look, "conditional_binding")
            bound_bar(panels[2], row, *look, "binding")
            if row.assignment_bits > 0:
                own = PERCENT * row.with_assignments / row.assignment_bits
                panels[0].plot(own, y, **_ASSIGNED)
                panels[1].plot(row.with_assignments, y, **_ASSIGNED)


def _stars(axes: Axes, marks: pd.DataFrame, models: Sequence[str]) -> None:
    for row in marks.to_dict("records"):
        axes.plot(PERCENT * row["value"], models.index(row["our_model"]), **PAPER_MARK)
