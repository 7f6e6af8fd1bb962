"""Decoded probability of the same object against the distance of patches."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import handle, legend_below, new_figure, styled
from bindscope.studies.same_object.geometry.shown import over_seeds, series
from bindscope.studies.same_object.geometry.table import SCHEMA
from bindscope.studies.same_object.views import read_shown

_COLUMNS = 3
_LABELS: dict[str, Any] = {"color": GREY, "linestyle": (0, (1, 1.5))}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    there = table["quantity"].eq("same_by_distance") & table["value"].notna()
    return None if there.any() else "No two patches of an object were sampled."


@styled
def draw(table: pd.DataFrame, models: list[str]) -> Figure:
    """Draw a panel per model: pairs of one object by layer, and the labels of all pairs.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    rows = over_seeds(table)
    shown = list(series(rows, models))
    columns = min(_COLUMNS, len(shown))
    bands = -(-len(shown) // columns)
    layers = rows.drop_duplicates("layer").sort_values("x")["layer"].tolist()
    map_ = mpl.colormaps["viridis"]
    colours = {layer: map_(0.9 * i / max(1, len(layers) - 1)) for i, layer in enumerate(layers)}
    figure = new_figure(0.7 + 2.4 * bands)
    grid = figure.subplots(bands, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for i, (axes, (name, own)) in enumerate(zip(grid.flat, shown, strict=False)):
        _panel(axes, own, colours)
        axes.set_title(name)
        axes.set_xlabel("distance, patches")
        if i % columns == 0:
            axes.set_ylabel("p(same object)")
    entries = [handle(f"layer {layer}", color=colours[layer], marker="o") for layer in layers]
    legend_below(figure, [*entries, handle("labels, all pairs", **_LABELS)], 6)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, colours: dict[str, Any]) -> None:
    for layer, own in rows.groupby("layer", sort=False):
        colour = colours[str(layer)]
        points = _by_distance(own, "same_by_distance")
        axes.plot(points["d"], points["value"], "o-", color=colour, markersize=3)
        pairs = _by_distance(own, "all_by_distance")
        axes.plot(pairs["d"], pairs["value"], color=colour, linestyle=(0, (4, 1.5)), linewidth=0.8)
    labels = _by_distance(rows[rows["x"] == rows["x"].min()], "label_by_distance")
    axes.plot(labels["d"], labels["value"], **_LABELS)
    axes.set_ylim(0, 1.02)


def _by_distance(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    own = rows[rows["quantity"] == quantity]
    return own.assign(d=own["at"].astype(float)).sort_values("d")
