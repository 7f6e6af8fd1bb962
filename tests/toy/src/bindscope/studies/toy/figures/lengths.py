"""Length by layer, a curve per model."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import new_figure, styled
from bindscope.tables.write import read_table


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0])}


def available(table: pd.DataFrame) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "Nothing was measured."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw it."""
    figure = new_figure(2.5)
    axes = figure.subplots()
    for (dataset, model), curve in table.groupby(["dataset", "model"]):
        axes.plot(curve["layer"].astype(str), curve["length"], "o-", label=f"{model}, {dataset}")
    axes.set_xlabel("layer")
    axes.set_ylabel("mean length of [CLS]")
    axes.legend()
    return figure
