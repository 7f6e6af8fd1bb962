"""The headline: what occurs, how many, what goes with what, by model and token input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bindscope.figures.colours import GREY, INK
from bindscope.figures.style import handle, legend_below, new_figure, styled
from bindscope.report.chapter import number
from bindscope.studies.binding_information.figures.assumed import (
    assumed_entry,
    hatched,
    marked,
    rests_on_one,
)
from bindscope.studies.binding_information.figures.reading import read_parts
from bindscope.studies.binding_information.names import tokens_shown
from bindscope.studies.binding_information.quotes import (
    PLACE,
    SMALLEST_BITS,
    Part,
    Quotes,
    Record,
    at_least,
    parts_of,
    quotes,
)
from bindscope.studies.binding_information.views import name_order, token_order

_GAP = 0.035  # between two parts, of all there is to know
_BAR = 0.74
_ROW_IN, _HEAD_IN = 0.19, 0.75
_WIDE = 0.5  # of a box: a bar so long has its number inside
_OUTLINE: dict[str, Any] = {"facecolor": "#F3F3F3", "edgecolor": "#A8A8A8", "linewidth": 0.7}
_SEED: dict[str, Any] = {
    "marker": "o", "color": INK, "markersize": 2.2, "linestyle": "none", "zorder": 5,
}  # fmt: skip


class _Box(NamedTuple):
    """Where a part is drawn: its left end and its width, bits."""

    part: Part
    left: float
    bits: float


read = read_parts


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    found = quotes(table)
    if len(found.rows) or len(found.refused):
        return None
    return "No model other than the known-answer encoders has a best row (chained probes)."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> Figure:
    """Draw the three parts of what a representation says about the objects, as bars in boxes.

    Parameters
    ----------
    table, models, datasets
        As `read_parts` returns them.

    Returns
    -------
    Figure
        A panel per dataset, a block of rows per token input, a row per model or group of models:
        last layer, rows `probe = best`. A box is all there is to know of a part, the bar in it the
        lower bound on what was read of it. On the last part the seeds of a group as dots and the
        95 % interval over them. A row whose fits may not be quoted is an empty box with the flag.
    """
    found = quotes(table, models)
    names = name_order([*found.rows["dataset"], *found.refused["dataset"]], datasets)
    heights = [_HEAD_IN + _ROW_IN * _n_lines(_of(found, name)) for name in names]
    figure = new_figure(sum(heights) + 0.45)
    grid = figure.subplots(
        len(names), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]  # fmt: skip
    for axes, name in zip(grid, names, strict=True):
        _panel(axes, name, _of(found, name), table, models)
    entries: list[Any] = [
        Patch(label="all there is to know", **_OUTLINE),
        Patch(color=GREY, label="at least so much was read (≥)"),
    ]
    if len(found.rows) and (found.rows["n_models"] > 1).any():
        entries.append(handle("one training seed", **_SEED))
        entries.append(handle("95 % interval over them", color=INK, linewidth=1.2))
    entries += assumed_entry(found.rows) if len(found.rows) else []
    legend_below(figure, entries, 4)
    return figure


def _of(found: Quotes, dataset: str) -> Quotes:
    return Quotes(*(rows[rows["dataset"] == dataset] for rows in found))


def _n_lines(found: Quotes) -> int:
    empty = _unquoted(found)
    return len(found.rows) + len(empty) + len({*found.rows["tokens"], *empty["tokens"]})


def _unquoted(found: Quotes) -> pd.DataFrame:
    """Return the places of which no model has a row to quote."""
    quoted = pd.MultiIndex.from_frame(found.rows[PLACE])
    return found.refused[~pd.MultiIndex.from_frame(found.refused[PLACE]).isin(quoted)]


def _panel(
    axes: Axes, dataset: str, found: Quotes, table: pd.DataFrame, models: Sequence[str]
) -> None:
    like: Record = (
        found.rows if len(found.rows) else table[table["dataset"] == dataset]
    ).iloc[0].to_dict()  # fmt: skip
    boxes = _boxes(like)
    assumed = len(found.rows) > 0 and rests_on_one(found.rows)
    _head(axes, marked(dataset, assumed), like, boxes)
    empty = _unquoted(found)
    y, ticks = 0, []
    for token in token_order([*found.rows["tokens"], *empty["tokens"]]):
        words = f"read from {tokens_shown(token).words}"
        axes.text(0, y + 0.12, words, va="center", fontsize=8, fontweight="bold")
        rows = found.rows[found.rows["tokens"] == token]
        left_out = empty[empty["tokens"] == token]
        for name in name_order([*rows["model"], *left_out["model"]], models):
            y += 1
            quoted = rows[rows["model"] == name]
            if len(quoted):
                _bars(axes, y, quoted.iloc[0].to_dict(), boxes)
                each = found.single[found.single["tokens"] == token]
                _seeds(axes, y, quoted.iloc[0].to_dict(), boxes[-1], each[each["group"] == name])
            else:
                _empty(axes, y, left_out[left_out["model"] == name].iloc[0]["flags"], boxes)
            ticks.append((y, _label(name, quoted, found, token)))
        y += 1
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.set_ylim(y - 0.4, -0.55)
    axes.set_xlim(-0.005 * boxes[-1].left, boxes[-1].left + 1.005 * boxes[-1].bits)
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def _boxes(like: Record) -> list[_Box]:
    """Place the parts side by side; one of which there is none has no box."""
    parts = [(part, float(like[part.entropy])) for part in parts_of(like)]
    gap = _GAP * sum(bits for _, bits in parts)
    boxes, left = [], 0.0
    for part, bits in parts:
        if bits > SMALLEST_BITS:
            boxes.append(_Box(part, left, bits))
            left += bits + gap
    return boxes or [_Box(parts[-1][0], 0.0, 1.0)]


def _head(axes: Axes, dataset: str, like: Record, boxes: Sequence[_Box]) -> None:
    """Name the dataset and the parts above their boxes, with the bits that there are."""
    whole = number(like["h_object_bits"])
    axes.set_title(f"{dataset}: {whole} bits say which objects a scene has", pad=29)
    drawn = [box.part for box in boxes]
    without = [part.shown for part in parts_of(like) if part not in drawn]
    note = "".join(f"{part.name}: 0 bits, what occurs implies it" for part in without)
    axes.annotate(
        note, (1, 1), xycoords="axes fraction", xytext=(0, 30), textcoords="offset points",
        ha="right", fontsize=7.5, color="#444444",
    )  # fmt: skip
    for part, left, bits in boxes:
        axes.annotate(
            f"{part.shown.name}\n", (left, 1), xycoords=("data", "axes fraction"), fontsize=8,
            xytext=(0, 3), textcoords="offset points", fontweight="bold", color=part.shown.colour,
        )  # fmt: skip
        axes.annotate(
            f"{part.shown.entropy} = {number(bits)} bits", (left, 1), xytext=(0, 3),
            xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=7.5,
            color="#444444",
        )  # fmt: skip


def _bars(axes: Axes, y: float, row: Record, boxes: Sequence[_Box]) -> None:
    sign = "about " if row["assumed_prior"] else "≥ "
    for part, left, bits in boxes:
        read_bits = float(row[part.bound])
        axes.barh(y, bits, _BAR, left=left, **_OUTLINE)
        look = hatched(bool(row["assumed_prior"]))
        axes.barh(y, read_bits, _BAR, left=left, color=part.shown.colour, linewidth=0, **look)
        text = f"{sign}{at_least(read_bits)} ({at_least(100 * read_bits / bits, 0)} %)"
        inside = read_bits > _WIDE * bits
        axes.annotate(
            text, (left if inside else left + bits, y),
            xytext=(4 if inside else -4, -0.5), textcoords="offset points", va="center",
            ha="left" if inside else "right", fontsize=7, color="white" if inside else INK,
        )  # fmt: skip


def _seeds(axes: Axes, y: float, row: Record, box: _Box, single: pd.DataFrame) -> None:
    """Draw the training seeds of the last part, and the interval over them."""
    if len(single) < 2:
        return
    bound = box.part.bound
    ends = np.array([float(row[f"{bound}_{end}"]) for end in ("low", "high")])
    axes.plot(box.left + np.minimum(ends, box.bits), [y, y], color=INK, linewidth=1.2, zorder=4)
    axes.plot(box.left + single[bound].to_numpy(float), [y] * len(single), **_SEED)


def _empty(axes: Axes, y: float, flags: str, boxes: Sequence[_Box]) -> None:
    for _, left, bits in boxes:
        axes.barh(y, bits, _BAR, left=left, **_OUTLINE)
    axes.annotate(
        f"not quoted: {flags}", (boxes[0].left, y), xytext=(4, -0.5), textcoords="offset points",
        va="center", fontsize=7, fontstyle="italic",
    )  # fmt: skip


def _label(name: str, quoted: pd.DataFrame, found: Quotes, token: str) -> str:
    """Return a row's name; of a group with a single model, or with some left out, how many."""
    left = found.refused[(found.refused["model"] == name) & (found.refused["tokens"] == token)]
    if not len(quoted):
        return name
    n, out = int(quoted.iloc[0]["n_models"]), int(left["n_models"].sum())
    if out:
        return f"{name} ({n} of {n + out} seeds)"
    is_group = name not in set(found.single["model"])
    return f"{name} (1 seed)" if is_group and n == 1 else name
