"""Estimate against truth for known-answer encoders, the paper's and ours (spec 1, section 6b)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import INK
from bindscope.figures.style import (
    handle,
    legend_below,
    new_figure,
    styled,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown
from bindscope.studies.binding_information.views import (
    family_order,
    measured,
    name_order,
    over_seeds,
)

# Title, truth, the paper's estimate (there is none of the parts of B*), our lower bound.
QUANTITIES = (
    ("B_O, objects", "truth_bits", "binding_bits", "binding_lower_bound_bits"),
    (
        "B*, given features",
        "truth_conditional_bits",
        "conditional_binding_bits",
        "conditional_binding_lower_bound_bits",
    ),
    ("how many", "truth_count_bits", None, "count_lower_bound_bits"),
    ("what goes with what", "truth_pairing_bits", None, "pairing_lower_bound_bits"),
)
Names = tuple[str, str | None, str]
_TRUE: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    rows = over_seeds(measured(table, known_answer=True))
    rows = rows[rows["truth_bits"].notna() | rows["truth_conditional_bits"].notna()]
    input_note = rows["tokens"].map(lambda token: "" if token == "cls" else f" ({token})")
    return rows.assign(encoder=rows["model"] + input_note)


read = read_binding


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(_rows(table)) else "No known-answer encoder with a closed form was measured."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw estimates of B_O, of B* and of its two parts against the closed forms.

    Parameters
    ----------
    table, models
        As `read_binding` returns them.

    Returns
    -------
    Figure
        Above: estimate against truth with the diagonal, a column per quantity that has a truth.
        Below: estimate minus truth per encoder. Open circles: the paper's estimate; full: our lower
        bound with its 95 % interval. Colour: probe family. Means over probe seeds.
    """
    rows = _rows(table)
    shown = [names for names in QUANTITIES if names[1] in rows and rows[names[1]].notna().any()]
    encoders = name_order(rows["encoder"], models)
    families = family_order(rows["family"])
    figure = new_figure(3.9 + 0.27 * len(encoders))
    grid = figure.subplots(
        2, len(shown), sharey="row", squeeze=False,
        gridspec_kw={"height_ratios": [2.7, 0.5 + 0.27 * len(encoders)]},
    )  # fmt: skip
    for j, (name, truth, paper, ours) in enumerate(shown):
        known = rows[rows[truth].notna()]
        _scatter(grid[0, j], known, families, (truth, paper, ours))
        grid[0, j].set_title(name, fontsize=8.5)
        grid[0, j].set_xlabel("truth, bits")
        _errors(grid[1, j], known, encoders, families, (truth, paper, ours))
        grid[1, j].set_xlabel("minus truth, bits")
    grid[0, 0].set_ylabel("estimate, bits per scene")
    grid[1, 0].set_ylabel("estimate")
    grid[1, 0].set_yticks(range(len(encoders)), encoders)
    grid[1, 0].set_ylim(len(encoders) - 0.5, -0.5)
    entries = [
        handle(family_shown(f).name, marker="s", color=family_shown(f).colour, linestyle="none")
        for f in families
    ]
    circle = {"marker": "o", "color": INK, "linestyle": "none"}
    entries.append(handle("paper's estimate", markerfacecolor="white", **circle))
    entries.append(handle("our lower bound", **circle))
    entries.append(handle("the truth", **_TRUE))
    legend_below(figure, entries, 7)
    return figure


def _scatter(axes: Axes, rows: pd.DataFrame, families: Sequence[str], names: Names) -> None:
    truth, paper, ours = names
    if not len(rows):
        return
    span = np.ptp(rows[truth]) or 1.0
    top = float(rows[truth].max()) + 0.08 * span
    axes.plot([0, top], [0, top], **_TRUE)
    zero_line(axes)
    for i, family in enumerate(families):
        part = rows[rows["family"] == family]
        x = part[truth] + (i - (len(families) - 1) / 2) * 0.018 * span
        colour = family_shown(family).colour
        if paper:
            _marks(axes, x, part[paper], colour, full=False)
        _marks(axes, x, part[ours], colour, full=True)


def _errors(
    axes: Axes,
    rows: pd.DataFrame,
    encoders: Sequence[str],
    families: Sequence[str],
    names: Names,
) -> None:
    truth, paper, ours = names
    values_along_x(axes)
    axes.axvline(0, **_TRUE)
    for i, family in enumerate(families):
        part = rows[rows["family"] == family]
        offset = (i - (len(families) - 1) / 2) * 0.7 / max(3, len(families))
        y = part["encoder"].map(encoders.index).astype(float) + offset
        colour = family_shown(family).colour
        low, high = part[f"{ours}_low"] - part[truth], part[f"{ours}_high"] - part[truth]
        axes.hlines(y, low, high, color=colour, linewidth=1.2)
        if paper:
            _marks(axes, part[paper] - part[truth], y, colour, full=False)
        _marks(axes, part[ours] - part[truth], y, colour, full=True)
    for k in range(len(encoders)):
        if k % 2:
            axes.axhspan(k - 0.5, k + 0.5, color="#F5F5F5", zorder=0, linewidth=0)


def _marks(axes: Axes, x: object, y: object, colour: str, full: bool) -> None:
    axes.plot(
        np.asarray(x, float), np.asarray(y, float), "o", markersize=4, zorder=4 if full else 3,
        markerfacecolor=colour if full else "white", markeredgecolor=colour, markeredgewidth=1.1,
    )  # fmt: skip
