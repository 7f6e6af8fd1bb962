"""Who answers with which item after activations were replaced, as heat maps (paper, Fig. 3)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import INK
from bindscope.figures.style import new_figure, note_above, styled
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import (
    cells,
    in_order,
    left_out,
    most_asked,
    named,
    roles_in_order,
    rows_with,
)
from bindscope.tables.write import read_table

MOST_MODELS = 12
TITLES = {"none": "nothing", "O": "objects", "I": "items", "C": "colours"}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], BINDING_ID_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(cells(table, "factorizability")) else "No activations were replaced."


def conditions(table: pd.DataFrame) -> list[str]:
    """Return the conditions that are shown: none, and of each group the first role and all."""
    there = set(cells(table, "factorizability")["condition"])
    wanted = ("none", "O0", "O all", "I0", "I all", "C0", "C all")
    return [name for name in wanted if name in there]


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row per model and a heat map per condition.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    replaced = cells(table, "factorizability")
    rows = most_asked(replaced, MOST_MODELS)
    note = left_out(rows, replaced)
    rows = named(rows)
    names = in_order(rows["name"])
    if len(names) > MOST_MODELS:
        note = f"The first {MOST_MODELS} of {len(names)} models; see the table. {note}".strip()
        names = names[:MOST_MODELS]
    shown = conditions(table)
    figure = new_figure(0.75 + 1.05 * len(names))
    grid = figure.subplots(len(names), len(shown), squeeze=False)
    for i, name in enumerate(names):
        for j, condition in enumerate(shown):
            own = rows_with(rows, name=name, condition=condition)
            if own.empty:
                grid[i, j].set_axis_off()
                continue
            image = _map(grid[i, j], own, first=j == 0, last=i == len(names) - 1)
        grid[i, 0].set_ylabel(name.replace(" (", "\n("), fontsize=7)
    for j, condition in enumerate(shown):
        grid[0, j].set_title(_words(condition), fontsize=7.5, fontweight="normal")
    bar = figure.colorbar(image, ax=list(grid.flat), fraction=0.02, aspect=30, pad=0.01)
    bar.set_label("share of rows", fontsize=7.5)
    bar.outline.set_visible(False)
    if note:
        note_above(figure, note)
    return figure


def _words(condition: str) -> str:
    if condition == "none":
        return "nothing\nreplaced"
    what = TITLES[condition[0]]
    return f"{what} of\n{'all roles' if condition.endswith('all') else f'role {condition[1:]}'}"


def _map(axes: Axes, rows: pd.DataFrame, first: bool, last: bool) -> Any:
    """Draw one heat map: rows are questions, columns answers; expected cells are framed."""
    queries, items = roles_in_order(rows["query"]), roles_in_order(rows["candidate"])
    grid = rows.pivot(index="query", columns="candidate", values="share").loc[queries, items]
    image = axes.imshow(grid.to_numpy(), vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for row in rows[rows["expected"] == 1].to_dict("records"):
        corner = items.index(row["candidate"]) - 0.5, queries.index(row["query"]) - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=1.2))
    axes.set_xticks(range(len(items)), items if last else [""] * len(items), fontsize=6)
    axes.set_yticks(range(len(queries)), queries if first else [""] * len(queries), fontsize=6)
    axes.grid(False)
    axes.tick_params(length=0)
    return image
