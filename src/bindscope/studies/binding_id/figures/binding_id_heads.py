"""Which heads carry things and items to the question, and where heads look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import new_figure, note_above, styled
from bindscope.studies.binding_id.answers.routes import WORDS, costly
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.schemas import HEADS_SCHEMA
from bindscope.studies.binding_id.views import in_order, left_out, most_asked, named, rows_with
from bindscope.tables.write import read_table

MOST_MODELS = 12  # a row of maps each
MOST_NUMBERS = 24  # heads of a model whose maps have room for numbers
MAPS = {
    "effect": ("{} hidden:\nlead lost", "Oranges"),
    "last": ("{}: where the\nlast token looks", "Blues"),
    "question": ("{}: where all\nits tokens look", "Blues"),
}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], HEADS_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No head was blinded."


def groups_shown(table: pd.DataFrame) -> list[str]:
    """Return the groups whose hiding costs some model answers; else those of both routes."""
    models = ["suite", "task", "model"]
    found = [
        group for group in WORDS
        if any(costly(own) for _, own in rows_with(table, group=group).groupby(models))
    ]  # fmt: skip
    return found or ["object", "item"]


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row per model; for each group what hiding it from single heads loses, and their looks.

    A look is the share of attention on the right one's tokens less that on another's.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    shown = most_asked(table, MOST_MODELS)
    for who in ("last", "question"):
        shown = shown.assign(**{who: shown[f"{who}_right"] - shown[f"{who}_other"]})
    groups, rows = groups_shown(shown), named(shown)
    models = in_order(rows["name"])[:MOST_MODELS]
    heights = [_height(rows_with(rows, name=name)) for name in models]
    figure = new_figure(0.7 + sum(heights))
    grid = figure.subplots(
        len(models), len(MAPS) * len(groups), squeeze=False, height_ratios=heights
    )
    for line, name in zip(grid, models, strict=True):
        panels = iter(line)
        for group in groups:
            own = rows_with(rows, name=name, group=group)
            for column, (_, colours) in MAPS.items():
                _map(next(panels), own, column, colours)
        line[0].set_ylabel(name.replace(" (", "\n("), rotation=0, ha="right", va="center",
                           fontsize=6.5)  # fmt: skip
    titles = [title.format(WORDS[group]) for group in groups for title, _ in MAPS.values()]
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=6.5)
    for axes in grid[-1]:
        if not axes.get_xlabel():
            axes.set_xlabel("head", fontsize=6)
    if note := left_out(shown, table):
        note_above(figure, note)
    return figure


def _height(rows: pd.DataFrame) -> float:
    """Return inches for a model's maps."""
    return float(np.clip(0.3 + 0.1 * rows["layer"].nunique(), 0.7, 2.0))


def _map(axes: Axes, rows: pd.DataFrame, column: str, colours: str) -> None:
    """Draw a map of layers, from below, and heads; grey: not blinded, or costs nothing."""
    single = rows[rows["head"] != ALL].astype({"layer": int, "head": int})
    wide = single.pivot(index="layer", columns="head", values=column).to_numpy(float)
    if column == "effect":
        (whole,) = rows_with(rows, layer=ALL, head=ALL)["change"]
        axes.set_xlabel(f"all heads: {whole:+.2f} of answers", fontsize=5.5)
        if not costly(rows):
            wide = np.full_like(wide, np.nan)
    axes.imshow(wide, vmin=0, vmax=1, cmap=colours, origin="lower", aspect="auto")
    axes.set_facecolor("#DDDDDD")
    layers, heads = wide.shape
    if wide.size <= MOST_NUMBERS:
        for layer, head in np.argwhere(np.isfinite(wide)):
            value = wide[layer, head]
            dark = "white" if value > 0.6 else "#333333"
            words = f"{round(value, 2) + 0.0:.2f}".replace("0.", ".")  # no minus before 0
            axes.text(head, layer, words, ha="center", va="center", fontsize=5, color=dark)
    for ticks, n in ((axes.set_yticks, layers), (axes.set_xticks, heads)):
        ticks(range(0, n, max(1, -(-n // 8))))
    axes.grid(False)
    axes.tick_params(length=0, labelsize=5.5, pad=1)
