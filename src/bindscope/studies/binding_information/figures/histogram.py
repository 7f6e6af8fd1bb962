"""The paper's beta* beside what counting alone reaches on its data sets (spec 1, section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import AMBER, BLUE, INK
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    legend_below,
    new_figure,
    styled,
    values_along_x,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.published import (
    beside,
    read_histograms,
    read_papers_table,
    read_trends,
    slug,
)

QUANTITY = "conditional_binding_ratio"
_OURS: dict[str, Any] = {
    "marker": "o", "markerfacecolor": "white", "markeredgecolor": BLUE, "markersize": 5,
    "linestyle": "none", "zorder": 4,
}  # fmt: skip


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, the paper's numbers, and what a histogram reaches."""
    return {
        "table": read_binding(inputs)["table"],
        "published": read_papers_table(inputs),
        "trends": read_trends(inputs),
        "histograms": read_histograms(inputs),
    }


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "There is no row to stand beside the paper's numbers."


@styled
def draw(
    table: pd.DataFrame, published: pd.DataFrame, trends: pd.DataFrame, histograms: pd.DataFrame
) -> Figure:
    """Draw the paper's beta* as stars, and the beta* of a pure histogram as a line.

    Parameters
    ----------
    table
        `binding_information`.
    published, trends, histograms
        As `read` returns them.

    Returns
    -------
    Figure
        A panel per data set that the paper reports numbers of, a row per number. Circles: the
        paper's estimate in this run, where dataset, model, token input and probe agree.
    """
    numbers = paper_numbers(published, trends)
    marks = beside(table, published)
    ours = marks[marks["quantity"] == QUANTITY]
    names = [name for name in histograms["dataset"] if (numbers["dataset"] == name).any()]
    heights = [0.42 + 0.21 * int((numbers["dataset"] == name).sum()) for name in names]
    figure = new_figure(sum(heights) + 1.0)
    grid = figure.subplots(
        len(names), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
    )[:, 0]  # fmt: skip
    about = histograms.set_index("dataset")
    for axes, name in zip(grid, names, strict=True):
        own = ours[ours["dataset"] == name]
        _panel(axes, name, about.loc[name].to_dict(), numbers[numbers["dataset"] == name], own)
    grid[-1].set_xlabel("β*, share of H(O|F): counts and what goes with what together, %")
    grid[-1].set_xlim(-2, 102)
    entries = [
        handle("the paper's number", linestyle="none", **PAPER_MARK),
        handle("counting alone, exact", color=AMBER, linewidth=2),
        *([handle("paper's estimate in this run", **_OURS)] if len(ours) else []),
    ]
    legend_below(figure, entries)
    return figure


def paper_numbers(published: pd.DataFrame, trends: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's beta*: `dataset`, `value`, `tokens`, `probe`, and a `label` of each."""
    rows = [
        (row["dataset"], row["value"], row["tokens"], row["probe"],
         f"{tokens_shown(row['tokens']).name}, {family_shown(row['probe']).name}")
        for row in published[published["quantity"] == QUANTITY].to_dict("records")
    ] + [
        (row["dataset"], row["value"], "", "",
         f"{row['axis']} {row['axis_value']}".strip() or row["note"].partition(" on ")[0])
        for row in trends[trends["quantity"] == QUANTITY].to_dict("records")
    ]  # fmt: skip
    found = pd.DataFrame(rows, columns=["dataset", "value", "tokens", "probe", "label"])
    return found[found["value"].notna()]


def _panel(
    axes: Axes, name: str, about: Mapping[Any, Any], numbers: pd.DataFrame, ours: pd.DataFrame
) -> None:
    values_along_x(axes)
    places = range(len(numbers))
    axes.set_title(f"{slug(name)}: {about['title']}", fontsize=8.5, pad=5)
    axes.plot(100 * numbers["value"], places, linestyle="none", **PAPER_MARK)
    for row in ours.to_dict("records"):
        same = (numbers["tokens"] == row["tokens"]) & (numbers["probe"] == row["probe"])
        axes.plot(100 * row["ours"], int(same.to_numpy().argmax()), **_OURS)
    text: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 7.5,
        "ha": "right", "annotation_clip": False,
    }  # fmt: skip
    if pd.notna(about["share"]):
        share = 100 * float(about["share"])
        axes.axvline(share, color=AMBER, linewidth=2)
        axes.annotate(
            f"counting alone: {share:.0f} %", (102, 1), xytext=(0, 6), color="#8A5A00",
            fontweight="bold", **text,
        )  # fmt: skip
    else:
        axes.annotate(about["note"], (102, 1), xytext=(0, 6), color=INK, fontstyle="italic", **text)
    axes.set_yticks(list(places), list(numbers["label"]))
    axes.set_ylim(len(numbers) - 0.4, -0.6)
