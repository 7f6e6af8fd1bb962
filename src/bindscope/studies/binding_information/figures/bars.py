"""A lower bound as a bar, with its interval and the paper's estimate: what bar figures share."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from bindscope.figures.colours import INK
from bindscope.figures.style import handle
from bindscope.studies.binding_information.figures.assumed import hatched

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


def bar_entries() -> list[object]:
    """Return the legend's entries for the interval and the paper's estimate."""
    return [
        handle("95 % interval", color=INK, linewidth=1, marker="|", markersize=5),
        handle("paper's estimate", **_PAPER),
    ]


__all__ = ["bar_entries", "bound_bar"]
