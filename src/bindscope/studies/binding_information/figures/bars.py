"""A lower bound as a bar, with its interval and the paper's estimate: what bar figures share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bindscope.figures.colours import INK
from bindscope.figures.style import handle, legend_below, paper_entry
from bindscope.studies.binding_information.figures.assumed import assumed_entry, hatched
from bindscope.studies.binding_information.names import Shown

_PAPER: dict[str, Any] = {
    "marker": "D", "color": "white", "markeredgecolor": INK, "markersize": 3.8,
    "linestyle": "none", "zorder": 4,
}  # fmt: skip


def bound_bar(
    axes: Axes, row: Any, y: float, height: float, colour: str, quantity: str, scale: float = 1.0
) -> None:
    """Draw a horizontal bar.

    Parameters
    ----------
    axes, y, height, colour
        Where, and how it looks.
    row
        A row of `views.over_seeds`, by attributes.
    quantity
        `binding` or `conditional_binding`.
    scale
        What bits are multiplied with.
    """
    names = [f"{quantity}_lower_bound_bits{end}" for end in ("", "_low", "_high")]
    bound, low, high = (scale * float(getattr(row, name)) for name in names)
    look = hatched(bool(row.assumed_prior))
    axes.barh(y, bound, height, color=colour, alpha=0.85, linewidth=0, **look)
    axes.plot([low, high], [y, y], color=INK, linewidth=1, marker="|", markersize=4)
    axes.plot(scale * float(getattr(row, f"{quantity}_bits")), y, **_PAPER)


def bar_legend(
    figure: Figure,
    rows: pd.DataFrame,
    bars: Iterable[Shown],
    further: Iterable[Line2D],
    marks: pd.DataFrame,
) -> None:
    """Put the legend of a bar figure below it.

    Parameters
    ----------
    figure, rows
        The figure, and all rows that it shows.
    bars
        What the bars' colours mean.
    further
        Entries for what this figure alone draws.
    marks
        The paper's numbers that are drawn.
    """
    entries = [
        *(Patch(color=shown.colour, alpha=0.85, label=shown.name) for shown in bars),
        handle("95 % interval", color=INK, linewidth=1, marker="|", markersize=5),
        *([handle("paper's estimate", **_PAPER)] if rows["binding_bits"].notna().any() else []),
        *further,
        *paper_entry(marks),
        *assumed_entry(rows),
    ]
    legend_below(figure, entries, 4)
