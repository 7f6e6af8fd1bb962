"""Mean interventions (paper, Table 1), and interventions that tell mechanisms apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import new_figure, note_above, styled
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import (
    in_order,
    left_out,
    most_asked,
    named,
    summaries,
)
from bindscope.tables.write import read_table

MOST_MODELS = 12


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], BINDING_ID_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    there = set(table["experiment"]) & {"mean", "nulls", "signatures"}
    return None if there else "Nothing was added to activations."


def panels(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return what each panel shows, by title: a row per condition, a column per model."""
    found = {}
    asked = table["experiment"].isin(["mean", "nulls", "signatures"])
    table = most_asked(table[asked], MOST_MODELS)
    if "mean" in set(table["experiment"]):
        found["Mean differences added:\nanswers as before"] = _wide(summaries(table, "mean"), "own")
    if "nulls" in set(table["experiment"]):
        found["As long, but no mean differences:\nanswers as before"] = _wide(
            summaries(table, "nulls")
        )
    if "signatures" in set(table["experiment"]):
        found["Tokens replaced:\nanswers that slots expect"] = _wide(summaries(table, "signatures"))
    return found


def _wide(rows: pd.DataFrame, values: str = "share") -> pd.DataFrame:
    rows = named(rows)
    wide = rows.pivot(index="condition", columns="name", values=values)
    return wide.loc[in_order(rows["condition"]), in_order(rows["name"])]


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per kind of intervention, numbers in cells.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    shown = list(panels(table).items())
    note = left_out(most_asked(table, MOST_MODELS), table)
    # The longest stands left, the others one below the other beside it.
    shown.sort(key=lambda panel: -len(panel[1]))
    first, others = shown[0], shown[1:]
    tall = max(len(first[1]), sum(len(frame) + 5 for _, frame in others))
    figure = new_figure(1.0 + 0.2 * tall)
    grid = figure.add_gridspec(
        max(len(others), 1), 2 if others else 1,
        height_ratios=[len(frame) for _, frame in others] or [1],
    )  # fmt: skip
    _numbers(figure.add_subplot(grid[:, 0]), *first)
    for i, (title, frame) in enumerate(others):
        _numbers(figure.add_subplot(grid[i, 1]), title, frame)
    if note:
        note_above(figure, note)
    return figure


def _numbers(axes: Axes, title: str, frame: pd.DataFrame) -> None:
    axes.set_title(title, fontsize=8)
    values = frame.to_numpy()
    size = 6.5 if values.shape[1] <= 9 else 5.3
    axes.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = "white" if value > 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=size, color=dark)
    many = values.shape[1] > 5
    names = [name if many else name.replace(" (", "\n(") for name in frame.columns]
    axes.set_xticks(range(values.shape[1]), names, fontsize=size, rotation=90 if many else 0)
    axes.set_yticks(range(len(frame)), list(frame.index), fontsize=7)
    axes.grid(False)
    axes.tick_params(length=0)
