"""Held-out objects that dual encoders recognise, against the share of objects in training."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.concepts.schemas import GENERALIZATION_SCHEMA
from bindscope.studies.concepts.views import over_seeds, recognised
from bindscope.tables.write import read_table

POOLS = {
    "train_only": "queries: training objects alone",
    "all": "queries: all objects, held-out ones as negatives",
}
_FLOOR: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.0}
_CHANCE: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.8}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the names of the encoders in the configuration's order."""
    table = read_table(inputs.paths("table")[0], GENERALIZATION_SCHEMA)
    return {"table": table, "encoders": inputs.content["encoders"]}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(recognised(table)) else "No pair of held-out objects was asked about."


@styled
def draw(table: pd.DataFrame, encoders: list[str]) -> Figure:
    """Draw a row of panels per query pool (objects, concepts), a line per encoder and space.

    Parameters
    ----------
    table, encoders
        As `read` returns them.
    """
    pools = [pool for pool in POOLS if pool in set(table["query_pool"])]
    lines = [
        (encoder, space)
        for encoder in encoders
        for space in table[table["encoder"] == encoder].sort_values("n_space")["space"].unique()
    ]
    look = looks([f"{encoder}, {space}" for encoder, space in lines])
    figure = new_figure(0.9 + 2.5 * len(pools))
    grid = figure.subplots(len(pools), 2, squeeze=False, sharex=True, sharey=True)
    for row, pool in zip(grid, pools, strict=True):
        own = table[table["query_pool"] == pool]
        for axes, target in zip(row, ("object", "concept"), strict=True):
            _panel(axes, recognised(own, target=target), lines, look)
            axes.set_title(f"{target}s of held-out pairs\n{POOLS[pool]}", fontsize=8)
        row[0].set_ylabel("share of scenes recognised")
    for axes in grid[-1]:
        axes.set_xlabel("coverage: share of objects in training")
    entries = [handle(name, **style) for name, style in look.items()]
    entries += [handle("bag of concepts", color=GREY, **_FLOOR)]
    legend_below(figure, [*entries, handle("chance", color=GREY, **_CHANCE)], 4)
    return figure


def _panel(
    axes: Axes, rows: pd.DataFrame, lines: list[tuple[str, str]], look: dict[str, Any]
) -> None:
    for encoder, space in lines:
        seeds = rows[(rows["encoder"] == encoder) & (rows["space"] == space)]
        own = over_seeds(seeds)
        style = look[f"{encoder}, {space}"]
        x, colour = own["coverage"], style["color"]
        axes.fill_between(
            x, own["accuracy_low"], own["accuracy_high"], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(x, own["accuracy"], **style)
        faint = {"color": colour, "markersize": 2, "alpha": 0.6}
        axes.plot(seeds["coverage"], seeds["accuracy"], "o", **faint)
        axes.plot(x, own["floor"], color=colour, **_FLOOR)
        axes.plot(x, own["chance"], color=colour, **_CHANCE)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(0, 1)
