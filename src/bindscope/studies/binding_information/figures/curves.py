"""beta* and B* against a number: what the figures that sweep something share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import GREY, INK
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    legend_below,
    looks,
    new_figure,
    note_above,
    paper_entry,
    zero_line,
)
from bindscope.studies.binding_information.figures.assumed import (
    assumed_entry,
    hatched,
    marked,
    rests_on_one,
)
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.views import (
    family_order,
    last_layers,
    measured,
    over_seeds,
    token_order,
)

BOUND, PAPER = "conditional_binding_lower_bound_bits", "conditional_binding_bits"
COUNTS = "h_counts_given_feature_bits"
_DASHES = (0, (3, 1.5))
_COUNTING: dict[str, Any] = {"color": INK, "linestyle": "-.", "linewidth": 1.0, "zorder": 1}
Look = Mapping[str, Any]


def curve_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return last layers of models that are no known-answer encoders, means over seeds."""
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    return rows[rows[BOUND].notna()].copy()


def with_several(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep curves (`line`, tokens, probe) with two values of `x` or more, in the order of `x`."""
    curve = ["line", "tokens", "probe"]
    if len(rows):
        rows = rows[rows.groupby(curve)["x"].transform("nunique") > 1]
    return rows.sort_values([*curve, "x", "dataset"], kind="stable")


def draw_curves(
    rows: pd.DataFrame,
    lines: Sequence[str],
    x_label: str,
    note: str,
    marks: pd.DataFrame,
    place: str,
) -> Figure:
    """Draw beta* (left) and B* (right), a row of panels per token input and probe family.

    Parameters
    ----------
    rows
        What `with_several` returned: the columns of `views.over_seeds`, the curve's name `line`
        and its place `x`.
    lines
        Names of the curves in the order of the legend.
    x_label
        What `x` is.
    note
        What stands above the panels.
    marks, place
        The paper's numbers, `value` (a share) at what its column `place` says; drawn in the panels
        of [CLS].

    Returns
    -------
    Figure
        Solid: the lower bound with its 95 % interval; dashed: the paper's estimate; dotted:
        H(O|F), all there is to find, and H(M|F), the part of it that counting alone reaches. No
        point on the left where H(O|F) is 0.
    """
    look = looks(lines)
    places = marks[place].astype(float) if len(marks) else ()
    figure, pairs = panel_pairs(rows, sharex=True, sharey="col")
    for pair, token, part in pairs:
        _pair(pair, part, look)
        pair[1].set_ylabel("B*, bits per scene")
        if token == "cls" and len(marks):
            pair[0].plot(places, 100.0 * marks["value"], linestyle="none", **PAPER_MARK)
    sizes = sorted({*rows["x"], *places})
    for axes in pairs[-1][0]:
        axes.set_xlabel(x_label)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    entries = [
        *curve_entries(look, rows),
        *assumed_entry(rows),
        handle(marked("H(O|F)", rests_on_one(rows)), color=GREY, linestyle=":"),
        *counting_entry(rows),
        *paper_entry(marks),
    ]
    legend_below(figure, entries, 4)
    note_above(figure, note)
    return figure


def _pair(pair: Sequence[Axes], part: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    for (line, _, _), curve in part.groupby(["line", "dataset_line", "probe"], sort=False):
        for axes, scale in zip(pair, (percent(curve), np.ones(len(curve))), strict=True):
            bound_curve(axes, curve, scale, looks[str(line)])
            paper_curve(axes, curve, scale, looks[str(line)])
    for _, known in part.groupby("dataset_line", sort=False):
        known = known.drop_duplicates("x").sort_values("x")
        pair[1].plot(known["x"], known["h_object_given_feature_bits"], ":", color=GREY)
        if COUNTS in known:
            for axes, scale in zip(pair, (percent(known), np.ones(len(known))), strict=True):
                axes.plot(known["x"], known[COUNTS].to_numpy(float) * scale, **_COUNTING)
    for axes in pair:
        zero_line(axes)


def panel_pairs(
    rows: pd.DataFrame, **shared: Any
) -> tuple[Figure, list[tuple[Sequence[Axes], str, pd.DataFrame]]]:
    """Make a figure with two panels per token input and probe family, the left one for beta*.

    Returns
    -------
    figure, pairs
        And per pair its panels, its token input and its rows.
    """
    parts = [
        (token, family, rows[(rows["tokens"] == token) & (rows["family"] == family)])
        for token in token_order(rows["tokens"])
        for family in family_order(rows.loc[rows["tokens"] == token, "family"])
    ]
    figure = new_figure(1.3 + 1.9 * len(parts))
    grid = figure.subplots(len(parts), 2, squeeze=False, **shared)
    for axes, (token, family, _) in zip(grid[:, 0], parts, strict=True):
        axes.set_ylabel(f"{tokens_shown(token).name}, {family_shown(family).name}\nβ*, %")
    return figure, [(pair, t, part) for pair, (t, _, part) in zip(grid, parts, strict=True)]


def percent(curve: pd.DataFrame) -> np.ndarray:
    """Return what turns bits into percent of H(O|F); NaN where that is 0: beta* has no value."""
    given = curve["h_object_given_feature_bits"].to_numpy(float)
    return np.asarray(100.0 / np.where(given > 0, given, np.nan))


def bound_curve(
    axes: Axes, curve: pd.DataFrame, scale: np.ndarray, look: Look, x: str = "x"
) -> None:
    """Draw a lower bound with its interval.

    Parameters
    ----------
    axes
        Where.
    curve
        Rows of one line, in the order of `x`.
    scale
        Per row, what its bits are multiplied with.
    look
        The line's `color` and `marker`.
    x
        Column of the horizontal axis.
    """
    value, low, high = (
        curve[f"{BOUND}{end}"].to_numpy(float) * scale for end in ("", "_low", "_high")
    )
    places, colour = curve[x].to_numpy(float), look["color"]
    band = hatched(rests_on_one(curve), colour)
    axes.fill_between(places, low, high, facecolor=colour, alpha=0.2, lw=0, **band)
    axes.plot(places, value, **look)


def paper_curve(
    axes: Axes, curve: pd.DataFrame, scale: np.ndarray, look: Look, x: str = "x"
) -> None:
    """Draw the paper's estimate, dashed; the arguments are those of `bound_curve`."""
    places, value = curve[x].to_numpy(float), curve[PAPER].to_numpy(float) * scale
    axes.plot(places, value, color=look["color"], linestyle=_DASHES, linewidth=1)


def counting_entry(rows: pd.DataFrame) -> list[Any]:
    """Return the legend's entry of what counting alone reaches, where that is known."""
    known = COUNTS in rows and rows[COUNTS].notna().any()
    return [handle("counting alone, H(M|F)", **_COUNTING)] if known else []


def curve_entries(looks: Mapping[str, Look], rows: pd.DataFrame) -> list[Any]:
    """Return the legend's entries: the lines by name, and what solid and dashed mean."""
    entries = [handle(name, **look) for name, look in looks.items()]
    entries.append(handle("lower bound, 95 % interval", color=INK))
    if rows[PAPER].notna().any():
        style: dict[str, Any] = {"color": INK, "linestyle": _DASHES, "linewidth": 1}
        entries.append(handle("paper's estimate", **style))
    return entries
