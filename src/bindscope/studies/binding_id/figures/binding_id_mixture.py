"""Which share of the answers goes by which account of binding."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import AMBER, BLUE, GREEN, INK
from bindscope.figures.style import legend_below, new_figure, styled, values_along_x
from bindscope.studies.binding_id.mixture_names import DISAGREEING
from bindscope.studies.binding_id.schemas import MIXTURE_SCHEMA
from bindscope.studies.binding_id.views import in_order, named, rows_with
from bindscope.tables.write import read_table

# Told apart without colours by their order, from left to right.
PARTS = {"slot": (BLUE, "slot"), "colour": (AMBER, "colour"), "content": (GREEN, "content"),
         "guess": ("#D0D0D0", "none of them (guesses)")}  # fmt: skip
LEAST, ROOM = 0.005, 0.12  # shares that have an interval, and that a number fits into


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], MIXTURE_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No mixtures of accounts were fitted."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a bar per model.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    rows = named(rows_with(table, conditions=DISAGREEING))
    rows = rows[rows["account"].isin(PARTS)]
    names = in_order(rows["name"])
    lines = sum(name.count("\n") + 1 for name in names)
    figure = new_figure(0.95 + 0.12 * len(names) + 0.12 * lines)
    axes = figure.subplots()
    _bars(axes, rows, names)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("share of the answers", fontsize=7.5)
    legend_below(figure, [Patch(color=colour, label=word) for colour, word in PARTS.values()], 4)
    return figure


def _bars(axes: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    """Draw each model's shares side by side, each with its interval at its right end."""
    for at, name in enumerate(names):
        own = {row["account"]: row for row in rows_with(rows, name=name).to_dict("records")}
        left = 0.0
        for place, (part, (colour, _)) in enumerate(PARTS.items()):
            if part not in own:
                continue
            share, low, high = (own[part][key] for key in ("share", "share_low", "share_high"))
            axes.barh(at, share, left=left, color=colour, height=0.78)
            if part != "guess" and share > LEAST:
                # Beside each other, so that none hides another.
                height = at - 0.22 + 0.22 * place
                axes.plot([left + low, left + high], [height, height], color=INK, linewidth=0.9)
            if share >= ROOM:
                light = part in ("slot", "content")
                axes.text(left + share / 2, at, f"{100 * share:.0f} %", ha="center", va="center",
                          fontsize=6.5, color="white" if light else INK)  # fmt: skip
            left += share
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=7)
    values_along_x(axes)
