"""Estimates beside what is known exactly: closed forms, and what counting alone reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colors import AMBER, BLUE, GREEN, INK
from bindscope.figures.facets import Look, crossed, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    legend_below,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.shared import binding_and, read_binding
from bindscope.studies.binding_information.names import (
    FORMULA,
    FORMULA_ENTRY,
    label_family,
    label_tokens,
)
from bindscope.studies.binding_information.published import (
    beside,
    read_color_cues,
    read_histograms,
    read_papers_table,
    read_trends,
    slug,
)
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    PAIRING,
    PAPER_BEYOND,
    PAPER_WHOLE,
    WHOLE,
)
from bindscope.studies.binding_information.views import (
    family_order,
    measured,
    over_seeds,
)
from bindscope.tables.numbers import at_least, number
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import name_order

# Our lower bound, and the paper's formula (there is none of the parts of B*).
_COMPARED: Mapping[Quantity, tuple[str, Quantity | None]] = {
    WHOLE: ("B_O, objects", PAPER_WHOLE),
    BEYOND: ("B*, given features", PAPER_BEYOND),
    COUNTS: ("counts", None),
    PAIRING: ("pairing", None),
}
_TRUE: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}


@figure(read_binding)
def calibration(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw estimates against the closed forms of known answers, and their errors below."""
    rows = over_seeds(measured(table, "known-answer"))
    rows = rows[rows[WHOLE.truth].notna() | rows[BEYOND.truth].notna()]
    some(rows, "No known-answer encoder with a closed form was measured.")
    input_note = rows["tokens"].map(lambda token: "" if token == "cls" else f" ({token})")
    rows = rows.assign(encoder=rows["model"] + input_note)
    quantities = [quantity for quantity in _COMPARED if rows[quantity.truth].notna().any()]
    encoders = name_order(rows["encoder"], models)
    families = family_order(rows["family"])
    tall = 0.27 * len(encoders)
    ratios = {"height_ratios": [2.7, 0.5 + tall]}
    grid = crossed(
        ("scatter", "errors"), quantities, (3.9 + tall, 0), sharey="row", gridspec_kw=ratios
    )
    for quantity in quantities:
        name, paper = _COMPARED[quantity]
        known = rows[rows[quantity.truth].notna()]
        above, below = grid.panels["scatter", quantity], grid.panels["errors", quantity]
        _estimates(above, below, known, encoders, families, quantity, paper)
        above.set_title(name, fontsize=8.5)
        above.set_xlabel("truth, bits")
    grid.label("error, bits", ("estimate, bits per scene", "encoder"))
    grid.left[1].set_yticks(range(len(encoders)), encoders)
    grid.left[1].set_ylim(len(encoders) - 0.5, -0.5)
    circle = {"marker": "o", "color": INK, "linestyle": "none"}
    entries = {
        label_family(f).name: {"marker": "s", "color": label_family(f).color, "linestyle": "none"}
        for f in families
    }
    entries[FORMULA_ENTRY] = {"markerfacecolor": "white", **circle}
    return grid.legend({**entries, "lower bound": circle, "truth": _TRUE}, per_row=7)


def _estimates(
    above: Axes,
    below: Axes,
    rows: pd.DataFrame,
    encoders: Sequence[str],
    families: Sequence[str],
    quantity: Quantity,
    paper: Quantity | None,
) -> None:
    """Draw estimates against the truth, and their errors encoder by encoder."""
    span = np.ptp(rows[quantity.truth]) or 1.0
    top = float(rows[quantity.truth].max()) + 0.08 * span
    above.plot([0, top], [0, top], **_TRUE)
    zero_line(above)
    values_along_x(below)
    below.axvline(0, **_TRUE)
    for i, family in enumerate(families):
        part = rows[rows["family"] == family]
        shift = i - (len(families) - 1) / 2
        truth = part[quantity.truth]
        x = truth + shift * 0.018 * span
        y = part["encoder"].map(encoders.index).astype(float) + shift * 0.7 / max(3, len(families))
        low, high = part[quantity.low] - truth, part[quantity.high] - truth
        below.hlines(y, low, high, color=label_family(family).color, linewidth=1.2)
        for drawn in filter(None, (paper, quantity)):
            _marks(above, x, part[drawn.value], family, drawn is quantity)
            _marks(below, part[drawn.value] - truth, y, family, drawn is quantity)
    for k in range(1, len(encoders), 2):
        below.axhspan(k - 0.5, k + 0.5, color="#F5F5F5", zorder=0, linewidth=0)


def _marks(axes: Axes, x: object, y: object, family: str, full: bool) -> None:
    color = label_family(family).color
    axes.plot(
        np.asarray(x, float),
        np.asarray(y, float),
        "o",
        markersize=4,
        zorder=4 if full else 3,
        markerfacecolor=color if full else "white",
        markeredgecolor=color,
        markeredgewidth=1.1,
    )


_RATIO = PAPER_BEYOND.ratio
_OURS: dict[str, Any] = {
    "marker": "o",
    "markerfacecolor": "white",
    "markeredgecolor": BLUE,
    "markersize": 5,
    "linestyle": "none",
    "zorder": 4,
}


_CUES: Mapping[str, dict[str, Any]] = {
    "exact": {"color": GREEN, "linewidth": 2},
    "linear": {"color": GREEN, "linewidth": 2, "linestyle": (0, (1.5, 1))},
}


@figure(
    binding_and(
        published=read_papers_table,
        trends=read_trends,
        histograms=read_histograms,
        cues=read_color_cues,
    )
)
def histogram(
    table: pd.DataFrame,
    published: pd.DataFrame,
    trends: pd.DataFrame,
    histograms: pd.DataFrame,
    cues: pd.DataFrame,
    **_: object,
) -> Figure:
    """Draw the paper's beta* beside what counts and colors hold, a panel per data set of its."""
    some(table, "There is no row to stand beside the paper's numbers.")
    numbers = paper_numbers(published, trends)
    marks = beside(table, published)
    ours = marks[marks["quantity"] == _RATIO]
    names = [name for name in histograms["dataset"] if (numbers["dataset"] == name).any()]
    heights = [0.42 + 0.21 * int((numbers["dataset"] == name).sum()) for name in names]
    ratios = {"height_ratios": heights}
    grid = wrapped(names, 1, (sum(heights) + 1.0, 0), sharex=True, gridspec_kw=ratios)
    about = histograms.set_index("dataset")
    for name, axes in grid.panels.items():
        dataset_rows = ours[ours["dataset"] == name]
        dataset_numbers = numbers[numbers["dataset"] == name]
        _numbers(axes, name, about.loc[name].to_dict(), dataset_numbers, dataset_rows)
        _color_cues(axes, cues[cues["dataset"] == name], dataset_numbers)
    grid.label("β*, fraction of H(O|F): counts and pairing together, %")
    grid.bottom[0].set_xlim(-2, 102)
    entries = [
        handle("published value", linestyle="none", **PAPER_MARK),
        handle("counts alone, exact", color=AMBER, linewidth=2),
        handle("color histogram, exact", **_CUES["exact"]),
        handle("color histogram, linear probe (\u2265)", **_CUES["linear"]),
        *([handle(f"{FORMULA}, this run's probe", **_OURS)] if len(ours) else []),
    ]
    legend_below(grid.figure, entries)
    return grid.figure


def paper_numbers(published: pd.DataFrame, trends: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's beta*: `dataset`, `value`, `tokens`, `probe`, `axis_value`, `label`."""
    rows = [
        (
            row["dataset"],
            row["value"],
            row["tokens"],
            row["probe"],
            "",
            f"{label_tokens(row['tokens']).name}, {label_family(row['probe']).name}",
        )
        for row in published[published["quantity"] == _RATIO].to_dict("records")
    ] + [
        (
            row["dataset"],
            row["value"],
            "",
            "",
            row["axis_value"],
            f"{row['axis']} {row['axis_value']}".strip() or row["note"].partition(" on ")[0],
        )
        for row in trends[trends["quantity"] == _RATIO].to_dict("records")
    ]
    columns = ["dataset", "value", "tokens", "probe", "axis_value", "label"]
    numbers = pd.DataFrame(rows, columns=columns)
    return numbers[numbers["value"].notna()]


def _numbers(
    axes: Axes, name: str, about: Mapping[Any, Any], numbers: pd.DataFrame, ours: pd.DataFrame
) -> None:
    values_along_x(axes)
    places = range(len(numbers))
    axes.set_title(f"{slug(name)}: {about['title']}", fontsize=8.5, pad=5)
    axes.plot(100 * numbers["value"], places, linestyle="none", **PAPER_MARK)
    for row in ours.to_dict("records"):
        same = (numbers["tokens"] == row["tokens"]) & (numbers["probe"] == row["probe"])
        axes.plot(100 * row["ours"], int(same.to_numpy().argmax()), **_OURS)
    look: Look = {"color": INK, "fontstyle": "italic"}
    words = about["note"]
    if pd.notna(about["share"]):
        share = 100 * float(about["share"])
        axes.axvline(share, color=AMBER, linewidth=2)
        words, look = (
            f"counts alone: {number(share, '.0f')} %",
            {"color": "#8A5A00", "fontweight": "bold"},
        )
    axes.annotate(
        words,
        (102, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 6),
        ha="right",
        textcoords="offset points",
        fontsize=7.5,
        annotation_clip=False,
        **look,
    )
    axes.set_yticks(list(places), list(numbers["label"]))
    axes.set_ylim(len(numbers) - 0.4, -0.6)


def _color_cues(axes: Axes, cues: pd.DataFrame, numbers: pd.DataFrame) -> None:
    """Draw what a color histogram holds, at the numbers of the same condition."""
    for row in cues.to_dict("records"):
        same = (numbers["axis_value"] == row["axis_value"]) | (row["axis_value"] == "")
        places = np.flatnonzero(same)
        x = np.full(len(places), 100 * row["share"])
        axes.vlines(x, places - 0.5, places + 0.5, **_CUES[row["probe"]])
        share = f"{x[0]:.1f}" if row["probe"] == "exact" else f"\u2265 {at_least(x[0], 0)}"
        axes.annotate(
            f"{share} %",
            (x[0], places[0]),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=GREEN,
            fontsize=7.5,
            fontweight="bold",
        )
