"""Layer by layer of a toy: how much of what goes with what can be read, and what is used."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY, PALETTE
from bindscope.figures.style import handle, legend_below, new_figure, styled
from bindscope.studies.together.claims import CHANGED, READABLE
from bindscope.studies.together.sides import ENDS
from bindscope.studies.together.use import PAIRING_USE_SCHEMA
from bindscope.tables.write import read_table

_PER_ROW = 3
_BITS: Final = {"color": PALETTE[0], "marker": "o"}
# Column -> (legend, look): what is used from a layer on, and at it alone.
_EFFECTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "anew_from": ("used from here on, by text or question", {"color": PALETTE[1], "marker": "s"}),
    "frozen_from": ("used from here on, by the question", {"color": PALETTE[2], "marker": "^"}),
    "frozen_at": (
        "used here, by the question",
        {"color": PALETTE[2], "marker": "^", "linestyle": "none", "markerfacecolor": "none"},
    ),
}
_SHORT = {"tower": "tower", "after the last decoder layer": "end"}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], PAIRING_USE_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No layer of a toy was both read and asked."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per toy, task and suite; bits as a share of all that there is.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    keys = ["dataset", "model", "suite", "task"]
    parts = list(table.groupby(keys, sort=False))
    rows = -(-len(parts) // _PER_ROW)
    columns = min(len(parts), _PER_ROW)
    figure = new_figure(0.9 + 2.2 * rows)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels.ravel()[len(parts) :]:
        axes.set_axis_off()
    for axes, (names, part) in zip(panels.ravel(), parts, strict=False):
        _panel(axes, part.sort_values("layer"))
        axes.set_title(_title(table, keys, dict(zip(keys, map(str, names), strict=True))))
    for axes in panels[:, 0]:
        axes.set_ylabel("share of H(O|M), or of answers", fontsize=7.5)
    shown = [one for one in _EFFECTS if table[one].notna().any()]
    entries = [handle("can be read, at least", **_BITS)]
    entries += [handle(_EFFECTS[name][0], **_EFFECTS[name][1]) for name in shown]
    legend_below(figure, entries, 2)
    return figure


def _title(table: pd.DataFrame, keys: list[str], names: dict[str, str]) -> str:
    """Name a toy, and what else is needed to tell the panels apart."""
    others = [names[key] for key in keys if key != "model" and table[key].nunique() > 1]
    return "\n".join([f"{names['model']} (toy)", *others])


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    places = list(rows["place"])
    at = range(len(places))
    axes.axhline(READABLE, color=GREY, linewidth=0.6, linestyle=":")
    axes.axhline(CHANGED, color=GREY, linewidth=0.6, linestyle=":")
    bits = [rows[f"patches_pairing_bits{end}"] / rows["pairing_entropy_bits"] for end in ENDS]
    _line(axes, at, bits, _BITS)
    for i, (name, (_, look)) in enumerate(_EFFECTS.items()):
        values = [rows[f"{name}{end}"].astype(float) for end in ENDS]
        _line(axes, [x + 0.08 * (i + 1) for x in at], values, look)
    axes.set_xticks(list(at), [_SHORT.get(place, place.rpartition(" ")[2]) for place in places])
    axes.set_xlabel("tower; input of decoder layer; output of the last (end)", fontsize=7.5)
    axes.set_ylim(-0.08, 1.08)


def _line(axes: Axes, at: Any, values: list[pd.Series], look: dict[str, Any]) -> None:
    """Draw numbers with their intervals."""
    middle, low, high = (one.to_numpy(float) for one in values)
    axes.vlines(list(at), low, high, color=look["color"], linewidth=0.9)
    axes.plot(list(at), middle, markersize=4, linewidth=1, **look)
