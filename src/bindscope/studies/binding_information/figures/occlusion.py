"""F4: binding against how much of the objects is hidden (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import legend_below, looks, note_above, styled, zero_line
from bindscope.studies.binding_information.figures.assumed import assumed_entry
from bindscope.studies.binding_information.figures.curves import (
    bound_curve,
    curve_entries,
    curve_rows,
    panel_pairs,
    paper_curve,
    percent,
    with_several,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.published import read_trends, trend_of
from bindscope.studies.binding_information.views import name_order
from bindscope.tables.write import read_table

STUDY = "occlusion"


def _rows(table: pd.DataFrame, statistics: pd.DataFrame) -> pd.DataFrame:
    """Last layers of models read at two heights or more: `x` is height, `hidden` in percent."""
    test = statistics[statistics["split"] == "test"].set_index("dataset")
    test = test[test["camera_height"].notna()]  # scenes that a camera sees
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
    return (
        None
        if len(_rows(table, statistics))
        else "No model was measured at two camera heights or more."
    )


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
    table, models
        As `read_binding` returns them.
    statistics
        `scene_statistics`.
    cells
        Per dataset the number of possible objects.
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
    look = looks(name_order(rows["model"], models))
    figure, pairs = panel_pairs(rows, sharex="col", sharey="row")
    for pair, _, part in pairs:
        for axes, x in zip(pair, ("x", "hidden"), strict=True):
            for (model, _), curve in part.groupby(["model", "probe"], sort=False):
                ordered = curve.sort_values(x, kind="stable")
                for curve_of in (bound_curve, paper_curve):
                    curve_of(axes, ordered, percent(ordered), look[str(model)], x)
            zero_line(axes)
    height, hidden = pairs[-1][0]
    height.set_xlabel("camera height, scene units")
    hidden.set_xlabel("hidden share of an object, mean, %")
    legend_below(figure, [*curve_entries(look, rows), *assumed_entry(rows)], 4)
    note_above(figure, trend_of(STUDY, trends, table, cells)[1])
    return figure
