"""Whether answers follow the positions of keys that are moved (paper, Fig. 5)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.binding_id.schemas import POSITIONS_SCHEMA
from bindscope.studies.binding_id.views import in_order, legend_columns, named, rows_with
from bindscope.tables.write import read_table

GROUPS = {"O": "objects", "I": "items", "C": "colours"}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], POSITIONS_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No keys were moved."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per group, a line per model with Wilson's intervals.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    rows = named(rows_with(table, query="all"))
    look = looks(in_order(rows["name"]))
    entries = [handle(name.replace("\n", ", "), **style) for name, style in look.items()]
    columns = legend_columns(str(entry.get_label()) for entry in entries)
    figure = new_figure(2.5 + 0.17 * -(-len(entries) // columns))
    shift = min(0.02, 0.12 / max(len(look), 1))  # beside each other: models often agree
    for axes, (group, words) in zip(figure.subplots(1, 3, sharey=True), GROUPS.items(),
                                    strict=True):  # fmt: skip
        for i, (name, style) in enumerate(look.items()):
            own = rows_with(rows, name=name, group=group).sort_values("share_of_distance")
            x = own["share_of_distance"] + shift * (i - (len(look) - 1) / 2)
            axes.fill_between(x, own["share_low"], own["share_high"], color=style["color"],
                              alpha=0.12, linewidth=0)  # fmt: skip
            axes.plot(x, own["share"], **style)
        axes.axvline(1.0, color="#666666", linewidth=0.7)
        axes.set_title(f"keys of {words} moved", fontsize=8)
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel("share of the distance (1: exchanged)", fontsize=7.5)
    figure.axes[0].set_ylabel("answers as before", fontsize=7.5)
    legend_below(figure, entries, columns)
    return figure
