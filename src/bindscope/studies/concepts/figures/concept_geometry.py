"""How far embeddings of scenes are sums over objects, and whether the scene is found again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import GREY
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled, values_along_x
from bindscope.studies.concepts.analyses_schemas import GEOMETRY_SCHEMA
from bindscope.studies.concepts.analyses_views import named, rows_with
from bindscope.studies.concepts.figures.parts import only_table

PANELS = {
    "r2": "R2 of embeddings",
    "retrieval_unordered": "scene found again\n(either order)",
    "object": "objects read from\nthe reconstruction",
}
_NAMES = {
    "avg": "mean, any slot", "avg_pos": "mean, by slot", "ols": "least squares, by slot",
    "single": "the object alone",
}  # fmt: skip
_FLOOR: dict[str, Any] = {"marker": "|", "color": GREY, "markersize": 11, "linestyle": "none"}


read = partial(only_table, GEOMETRY_SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No embedding was taken apart."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per measure, a row per embedding, a mark per estimator and level.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    rows = rows_with(named(table), analysis_kind="decomposition", stratum="all")
    names = list(dict.fromkeys(rows["name"]))
    estimators = [name for name in _NAMES if name in set(rows["variant"])]
    look = looks(estimators)
    figure = new_figure(1.6 + 0.42 * len(names))
    grid = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (measure, title) in zip(grid, PANELS.items(), strict=True):
        _panel(axes, rows[rows["measure"] == measure], names, look)
        axes.set_title(title, fontsize=8)
        values_along_x(axes)
    grid[0].set_yticks(range(len(names)), names)
    grid[0].set_ylim(len(names) - 0.5, -0.5)
    entries = [handle(_NAMES[name], linestyle="none", **look[name]) for name in estimators]
    entries.append(handle("objects as sums over values", marker="o", color=GREY,
                          markerfacecolor="none", linestyle="none"))  # fmt: skip
    legend_below(figure, [*entries, handle("bag of concepts", **_FLOOR)], 3)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, names: list[str], look: dict[str, Any]) -> None:
    for i, name in enumerate(names):
        own = rows[rows["name"] == name]
        for j, (estimator, style) in enumerate(look.items()):
            y = i + 0.2 * (j - (len(look) - 1) / 2)
            for level, face in ((1, style["color"]), (2, "none")):
                found = rows_with(own, variant=estimator, level=level)["value"]
                axes.plot(found, [y] * len(found), linestyle="none", markerfacecolor=face, **style)
        axes.plot(own["bag_of_concepts_floor"].dropna()[:1], [i] * own["bag_of_concepts_floor"]
                  .dropna()[:1].size, **_FLOOR)  # fmt: skip
    axes.set_xlim(min(-0.03, float(rows["value"].min()) - 0.03), 1.03)
