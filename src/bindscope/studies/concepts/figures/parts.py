"""What the figures of embeddings have in common."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.studies.concepts.analyses_views import rows_with
from bindscope.tables.schema import TableSchema
from bindscope.tables.write import read_table

FLOOR: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.0}
GREY_FLOOR = {**FLOOR, "color": GREY}


def only_table(schema: TableSchema, inputs: Inputs) -> dict[str, Any]:
    """Read the one table that a figure shows."""
    return {"table": read_table(inputs.paths("table")[0], schema)}


def lines_by_coverage(axes: Axes, means: Any, looks: dict[str, Any], coverage: str) -> None:
    """Draw a line with its band per approximator, and the floor.

    Parameters
    ----------
    axes
        Where.
    means
        `value`, `value_low`, `value_high`, `floor` by `approximator` and coverage.
    looks
        Colour and marker by approximator.
    coverage
        Column of the coverage.
    """
    for name, style in looks.items():
        own = rows_with(means, approximator=name).sort_values(coverage)
        x, band = own[coverage], {"color": style["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(x, own["value_low"], own["value_high"], **band)
        axes.plot(x, own["value"], **style)
    floors = means.groupby(coverage)["floor"].mean().dropna()
    axes.plot(floors.index, floors, **GREY_FLOOR)
    axes.set_xlim(0, 1)
