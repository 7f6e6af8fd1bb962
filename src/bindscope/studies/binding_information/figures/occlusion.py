"""F4: binding against how much of the objects is hidden (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import colours, legend_below, markers, new_figure, note_above, styled
from bindscope.studies.binding_information.figures.curves import (
    bound_curve,
    curve_rows,
    entries,
    panels,
    percent,
    with_several,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.published import read_trends, trend_beside, trend_note
from bindscope.studies.binding_information.views import name_order
from bindscope.tables.write import read_table

STUDY = "occlusion"


def _rows(table: pd.DataFrame, statistics: pd.DataFrame) -> pd.DataFrame:
    """Last layers of models read at two heights or more: `x` is height, `hidden` in percent."""
    test = statistics[statistics["split"] == "test"].set_index("dataset")
    rows = curve_rows(table)
    rows = rows[rows["dataset"].isin(test.index)].copy()
    rows["x"] = rows["dataset"].map(test["camera_height"]).astype(float)
    rows["hidden"] = 100.0 * rows["dataset"].map(test["mean_occlusion"]).astype(float)
    return with_several(rows.assign(line=rows["model"]))


def read(inputs: Inputs) -> dict[str, Any]:
    """Read this study's table and that of scene statistics, and the paper's numbers."""
    return {
        **read_binding(inputs),
        "statistics": read_table(inputs.paths("statistics")[0]),
        "cells": inputs.content["cells"],
        "trends": read_trends(inputs),
    }


def available(table: pd.DataFrame, statistics: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(_rows(table, statistics)):
        return "No model was measured at two camera heights or more."
    return None


@styled
def draw(
    table: pd.DataFrame,
    statistics: pd.DataFrame,
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame | None = None,
) -> Figure:
    """Draw beta* against the camera's height and against the measured occlusion.

    Parameters
    ----------
    table
        `binding_information`.
    statistics
        `scene_statistics`.
    cells
        Per dataset the number of possible objects.
    models
        Order of the models, the configuration's.
    trends
        What the paper reports; it names no model for these numbers, so that they are quoted in
        words.

    Returns
    -------
    Figure
        A row per token input and probe family. Left: against camera height; right: the same
        values against the mean hidden share of an object in the test scenes. Solid: the lower
        bound with its 95 % interval; dashed: the paper's estimate.
    """
    rows = _rows(table, statistics)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    parts = panels(rows)
    figure = new_figure(1.3 + 1.9 * len(parts))
    grid = figure.subplots(len(parts), 2, sharex="col", sharey="row", squeeze=False)
    for pair, (token, family, part) in zip(grid, parts, strict=True):
        for axes, x in zip(pair, ("x", "hidden"), strict=True):
            for (model, _), curve in part.groupby(["model", "probe"], sort=False):
                ordered = curve.sort_values(x, kind="stable")
                look = (colour[str(model)], marker[str(model)])
                bound_curve(axes, ordered, percent(ordered), *look, x=x)
            axes.axhline(0, color="#666666", linewidth=0.7)
        pair[0].set_ylabel(
            f"{tokens_shown(token).name}, {family_shown(family).name}\n$\\beta^*$, %"
        )
    grid[-1][0].set_xlabel("camera height, scene units")
    grid[-1][1].set_xlabel("hidden share of an object, mean, %")
    legend_below(figure, entries(names, colour, marker, rows), 4)
    said = trends[trends["study"] == STUDY] if trends is not None else pd.DataFrame()
    note_above(figure, trend_note(said, trend_beside(table, said, cells) if len(said) else said))
    return figure
