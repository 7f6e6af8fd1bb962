"""What occurs, how many, what goes with what, layer by layer (spec 1, section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import INK
from bindscope.figures.style import handle, legend_below, new_figure, styled, zero_line
from bindscope.studies.binding_information.figures.assumed import marked, rests_on_one
from bindscope.studies.binding_information.figures.reading import read_parts
from bindscope.studies.binding_information.names import tokens_shown
from bindscope.studies.binding_information.quotes import (
    SMALLEST_BITS,
    Part,
    Quotes,
    parts_of,
    quotes,
)
from bindscope.studies.binding_information.views import (
    layer_places,
    name_order,
    token_order,
)

_COLUMNS = 7
_NAME_WIDTH = 13  # characters of a panel's name in a line
_DASHES = {"what occurs": "-", "how many": (0, (4, 1.5))}


read = read_parts


def _quotes(table: pd.DataFrame, models: Sequence[str] = ()) -> Quotes:
    """Quotes of models that were read at several layers."""
    found = quotes(table, models, last=False)
    key = ["dataset", "model", "tokens"]
    if not len(found.rows):
        return found
    rows = found.rows[found.rows.groupby(key)["layer"].transform("nunique") > 1]
    return found._replace(rows=rows.assign(x=layer_places(rows)))


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if len(_quotes(table).rows):
        return None
    return "No model has best rows (chained probes) at more than one layer."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> Figure:
    """Draw the share of each part that is read from every layer; takes what `read_parts` returns.

    Returns
    -------
    Figure
        A panel per model or group of models (columns), dataset and token input (rows), rows
        `probe = best`: the lower bound over what there is of each part, its training seeds as dots
        and the 95 % interval over them as a band. A layer whose fits may not be quoted has no
        point.
    """
    found = _quotes(table, models)
    rows = found.rows
    lines = [
        (dataset, token)
        for dataset in name_order(rows["dataset"], datasets)
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    ]
    names = name_order(rows["model"], models)
    blocks = [names[i : i + _COLUMNS] for i in range(0, len(names), _COLUMNS)]
    figure = new_figure(0.75 + 1.45 * len(lines) * len(blocks))
    grid = figure.subplots(
        len(lines) * len(blocks), len(blocks[0]), sharex=True, sharey=True, squeeze=False
    )
    shown: dict[str, Part] = {}
    for i, (block, (dataset, token)) in enumerate((b, line) for b in blocks for line in lines):
        here = rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]
        for axes, name in zip(grid[i], [*block, *[""] * len(grid[i])], strict=False):
            curve = here[here["model"] == name]
            if not name:
                axes.set_axis_off()
            elif len(curve):
                each = found.single[found.single["group"] == name]
                shown |= _panel(axes, curve, each)
            if i % len(lines) == 0 and name:
                axes.set_title(fill(name, _NAME_WIDTH), fontsize=8)
        head = f"{marked(dataset, rests_on_one(here))}\n{tokens_shown(token).name}"
        grid[i, 0].set_ylabel(f"{head}\nread at least, %", fontsize=7.5)
    _ticks(grid[-1], rows)
    entries = [handle(p.shown.name, color=p.shown.colour, **_look(p)) for p in shown.values()]
    if len(found.rows) and (found.rows["n_models"] > 1).any():
        entries.append(handle("seeds; band: 95 % over them", marker=".", color=INK, linestyle=""))
    legend_below(figure, entries, 4)
    return figure


def _panel(axes: Axes, curve: pd.DataFrame, single: pd.DataFrame) -> dict[str, Part]:
    shown = {}
    same = (single["dataset"] == curve.iloc[0]["dataset"]) & (
        single["tokens"] == curve.iloc[0]["tokens"]
    )
    for part in parts_of(curve.iloc[0].to_dict()):
        bits = float(curve.iloc[0][part.entropy])
        if bits <= SMALLEST_BITS:
            continue
        shown[part.shown.name] = part
        share = 100.0 / bits
        x, low, high = (
            curve[name].to_numpy(float) for name in ("x", f"{part.bound}_low", f"{part.bound}_high")
        )
        several = curve["n_models"].to_numpy() > 1
        look = {"color": part.shown.colour, **_look(part)}
        axes.fill_between(
            x, share * low, share * high, where=several, color=part.shown.colour, alpha=0.18, lw=0
        )
        axes.plot(x, share * curve[part.bound].to_numpy(float), **look)
        each = single[same].merge(curve[["layer", "x"]], on="layer")
        if len(each) > len(curve):
            axes.plot(each["x"], share * each[part.bound], ".", color=look["color"], markersize=2)
    zero_line(axes)
    axes.axhline(100, color=INK, linewidth=0.7, linestyle=(0, (4, 2)))
    return shown


def _look(part: Part) -> dict[str, Any]:
    """Width and dashes of a part's line: the last part, which the study is about, is the widest."""
    return {
        "linewidth": 1.1 if part.shown.name in _DASHES else 2.0,
        "linestyle": _DASHES.get(part.shown.name, "-"),
    }


def _ticks(bottom: Sequence[Axes], rows: pd.DataFrame) -> None:
    deepest = int(rows["x"].max())
    for axes in bottom:
        axes.set_xticks(range(0, deepest + 1, max(1, -(-deepest // 4))))
        axes.set_xlabel("layer")
