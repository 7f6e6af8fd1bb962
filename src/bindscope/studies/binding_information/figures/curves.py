"""beta* and B* against a number: what the figures that sweep something share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import GREY, INK
from bindscope.figures.style import (
    PAPER_MARK,
    colours,
    handle,
    legend_below,
    markers,
    new_figure,
    note_above,
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
_DASHES = (0, (3, 1.5))


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
    rows: pd.DataFrame, lines: Sequence[str], x_label: str, note: str, marks: pd.DataFrame
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
    marks
        The paper's numbers, `x` and `value` (a share); drawn in the panels of [CLS].

    Returns
    -------
    Figure
        Solid: the lower bound with its 95 % interval; dashed: the paper's estimate; dotted:
        H(O|F), all there is to find. No point on the left where H(O|F) is 0.
    """
    colour, marker = colours(lines), markers(lines)
    parts = panels(rows)
    figure = new_figure(1.3 + 1.9 * len(parts))
    grid = figure.subplots(len(parts), 2, sharex=True, sharey="col", squeeze=False)
    for pair, (token, family, part) in zip(grid, parts, strict=True):
        _pair(pair, part, colour, marker)
        pair[0].set_ylabel(
            f"{tokens_shown(token).name}, {family_shown(family).name}\n$\\beta^*$, %"
        )
        pair[1].set_ylabel("$B^*$, bits per scene")
        if token == "cls" and len(marks):
            pair[0].plot(marks["x"], 100.0 * marks["value"], linestyle="none", **PAPER_MARK)
    sizes = sorted({*rows["x"], *marks["x"]} if len(marks) else set(rows["x"]))
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    shown = [
        *entries(lines, colour, marker, rows),
        handle(marked("H(O|F)", rests_on_one(rows)), color=GREY, linestyle=":"),
    ]
    if len(marks):
        shown.append(handle("the paper's number", linestyle="none", **PAPER_MARK))
    legend_below(figure, shown, 4)
    note_above(figure, note)
    return figure


def _pair(
    pair: Sequence[Axes], part: pd.DataFrame, colour: Mapping[str, str], marker: Mapping[str, str]
) -> None:
    for (line, _, _), curve in part.groupby(["line", "dataset_line", "probe"], sort=False):
        look = (colour[str(line)], marker[str(line)])
        bound_curve(pair[0], curve, percent(curve), *look)
        bound_curve(pair[1], curve, np.ones(len(curve)), *look)
    for _, known in part.groupby("dataset_line", sort=False):
        known = known.drop_duplicates("x").sort_values("x")
        pair[1].plot(known["x"], known["h_object_given_feature_bits"], ":", color=GREY)
    for axes in pair:
        axes.axhline(0, color="#666666", linewidth=0.7)


def panels(rows: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Split rows into (tokens, family, rows), in the order of the figures."""
    return [
        (token, family, rows[(rows["tokens"] == token) & (rows["family"] == family)])
        for token in token_order(rows["tokens"])
        for family in family_order(rows.loc[rows["tokens"] == token, "family"])
    ]


def percent(curve: pd.DataFrame) -> np.ndarray:
    """Return what turns bits into percent of H(O|F); NaN where that is 0: beta* has no value."""
    given = curve["h_object_given_feature_bits"].to_numpy(float)
    return np.asarray(100.0 / np.where(given > 0, given, np.nan))


def bound_curve(
    axes: Axes, curve: pd.DataFrame, scale: np.ndarray, colour: str, marker: str, x: str = "x"
) -> None:
    """Draw a lower bound with its interval, and the paper's estimate dashed.

    Parameters
    ----------
    axes
        Where.
    curve
        Rows of one line, in the order of `x`.
    scale
        Per row, what its bits are multiplied with.
    colour, marker
        The line's.
    x
        Column of the horizontal axis.
    """
    places = curve[x].to_numpy(float)
    value, low, high, paper = (
        curve[name].to_numpy(float) * scale
        for name in (BOUND, f"{BOUND}_low", f"{BOUND}_high", PAPER)
    )
    band = hatched(rests_on_one(curve), colour)
    axes.fill_between(places, low, high, facecolor=colour, alpha=0.2, lw=0, **band)
    axes.plot(places, value, color=colour, marker=marker)
    axes.plot(places, paper, color=colour, linestyle=_DASHES, linewidth=1)


def entries(
    lines: Sequence[str], colour: Mapping[str, str], marker: Mapping[str, str], rows: pd.DataFrame
) -> list[object]:
    """Return the legend: the lines by name, and what solid, dashed and hatched mean."""
    return [
        *(handle(name, color=colour[name], marker=marker[name]) for name in lines),
        handle("lower bound, 95 % interval", color=INK),
        handle("paper's estimate", color=INK, linestyle=_DASHES, linewidth=1),
        *assumed_entry(rows),
    ]
