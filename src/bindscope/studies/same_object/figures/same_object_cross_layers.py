"""Probes across layers as heat maps: the probe of one layer on the tokens of another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import new_figure, styled
from bindscope.studies.same_object.geometry.shown import over_seeds, series
from bindscope.studies.same_object.geometry.table import SCHEMA
from bindscope.studies.same_object.views import read_shown

_MODELS = 4
_LOWEST = 0.5
_ROWS = (
    ("transfer_auc", "probe of layer", "on tokens of layer"),
    ("transfer_rescaled_auc", "probe of layer", "rescaled tokens of layer"),
)


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(_of_several(over_seeds(table))) else "No model was read in two layers."


def _of_several(rows: pd.DataFrame) -> pd.DataFrame:
    own = rows[rows["quantity"].isin([name for name, *_ in _ROWS])]
    return own[own["layer"] != own["at"]]


@styled
def draw(table: pd.DataFrame, models: list[str]) -> Figure:
    """Draw areas under the ROC curve, a column per model of which several layers were read.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    rows = over_seeds(table)
    several = {tuple(key) for key in _of_several(rows)[["dataset", "group", "probe"]].to_numpy()}
    shown = [
        one for one in series(rows, models)
        if tuple(one[1][["dataset", "group", "probe"]].iloc[0]) in several
    ][:_MODELS]  # fmt: skip
    kinds = [kind for kind in _ROWS if (rows["quantity"] == kind[0]).any()]
    figure = new_figure(0.4 + 2.1 * len(kinds))
    grid = figure.subplots(len(kinds), max(2, len(shown)), squeeze=False)
    for axes in grid[:, len(shown) :].flat:
        axes.set_axis_off()
    for column, (name, own) in enumerate(shown):
        for axes, (quantity, down, along) in zip(grid[:, column], kinds, strict=True):
            drawn = _heat_map(axes, own, quantity)
            axes.set_ylabel(down)
            axes.set_xlabel(along)
        grid[0, column].set_title(name)
    figure.colorbar(drawn, ax=grid, shrink=0.6, aspect=30, label="area under ROC, test pairs")
    return figure


def _heat_map(axes: Axes, rows: pd.DataFrame, quantity: str) -> Any:
    layers = rows.drop_duplicates("layer").sort_values("x")["layer"].tolist()
    own = rows[rows["quantity"] == quantity]
    cells = own.pivot_table(index="layer", columns="at", values="value")
    values = cells.reindex(index=layers, columns=layers).to_numpy(float)
    drawn = axes.imshow(values, cmap="viridis", vmin=_LOWEST, vmax=1)
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            ink = "black" if value > 0.8 else "white"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=ink)
    axes.set_xticks(range(len(layers)), layers)
    axes.set_yticks(range(len(layers)), layers)
    axes.grid(visible=False)
    return drawn
