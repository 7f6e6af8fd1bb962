"""F3: binding against the size of the feature space (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import styled
from bindscope.studies.binding_information.figures.curves import (
    curve_rows,
    draw_curves,
    with_several,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.published import read_trends, trend_of
from bindscope.studies.binding_information.views import name_order

STUDY = "complexity"


def _rows(table: pd.DataFrame, cells: Mapping[str, int]) -> pd.DataFrame:
    """Last layers of the models that were measured at two sizes or more; `x` is K."""
    rows = curve_rows(table)
    rows = rows[rows["dataset"].isin(list(cells))].copy()
    rows["x"] = rows["dataset"].map(cells).astype(float)
    return with_several(rows.assign(line=rows["model"], dataset_line=""))


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, the models' order, the numbers of possible objects and the paper's words."""
    cells = inputs.content["cells"]
    return {**read_binding(inputs), "cells": cells, "trends": read_trends(inputs)}


def available(table: pd.DataFrame, cells: Mapping[str, int], **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return (
        None
        if len(_rows(table, cells))
        else "No model was measured on feature spaces of two sizes or more."
    )


@styled
def draw(
    table: pd.DataFrame,
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame | None = None,
) -> Figure:
    """Draw beta* and B* against the number of possible objects; see `curves.draw_curves`.

    Parameters
    ----------
    table, models
        As `read_binding` returns them.
    cells
        Per dataset the number of possible objects K, the product of its groups' sizes.
    trends
        What the paper reports (`resources/published/trends.csv`): no numbers for this curve, so
        that it is quoted in words.
    """
    rows = _rows(table, cells)
    marks, note = trend_of(STUDY, trends, table, cells)
    lines = name_order(rows["model"], models)
    return draw_curves(rows, lines, "number of possible objects, K", note, marks, "cells")
