"""Answers after interventions, and heads, as maps of shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.facets import crossed, heat_map
from bindscope.figures.figure import NothingToDrawError, figure, some, table_of
from bindscope.figures.style import new_figure, note_above
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, HEADS_SCHEMA
from bindscope.studies.binding_id.views import (
    GROUPS,
    cells,
    costly,
    in_order,
    left_out,
    most_asked,
    named,
    roles_in_order,
    rows_with,
    summaries,
)

MOST_MODELS = 12
_CONDITIONS = ("none", "O0", "O all", "I0", "I all", "C0", "C all")
_REPLACED = {"O": "objects", "I": "items", "C": "colors"}


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id(table: pd.DataFrame) -> Figure:
    """Who answers with which item after activations were replaced (paper, Fig. 3).

    A row per model and a map per condition: none, and of each group the first role and all. Rows of
    a map are questions, columns answers; expected cells are framed.
    """
    replaced = some(cells(table, "factorizability"), "No activations were replaced.")
    rows = most_asked(replaced, MOST_MODELS)
    note = left_out(rows, replaced)
    rows = named(rows)
    names = in_order(rows["name"])
    if len(names) > MOST_MODELS:
        note = f"The first {MOST_MODELS} of {len(names)} models; see the table. {note}".strip()
        names = names[:MOST_MODELS]
    conditions = [name for name in _CONDITIONS if name in set(replaced["condition"])]
    grid = crossed(names, conditions, (0.75, 1.05))
    for (name, condition), axes in grid.panels.items():
        if name == names[0]:
            axes.set_title(_words(condition), fontsize=7.5, fontweight="normal")
        condition_rows = rows_with(rows, name=name, condition=condition)
        if condition_rows.empty:
            axes.set_axis_off()
            continue
        image = _answers(axes, condition_rows, axes in grid.left, axes in grid.bottom)
    grid.label(y=[name.replace(" (", "\n(") for name in names], fontsize=7)
    share_bar(grid.figure, image, list(grid.panels.values()))
    if note:
        note_above(grid.figure, note)
    return grid.figure


def _words(condition: str) -> str:
    if condition == "none":
        return "nothing\nreplaced"
    role = "all roles" if condition.endswith("all") else f"role {condition[1:]}"
    return f"{_REPLACED[condition[0]]} of\n{role}"


def _answers(axes: Axes, rows: pd.DataFrame, first: bool, last: bool) -> Any:
    queries, items = roles_in_order(rows["query"]), roles_in_order(rows["candidate"])
    expected = rows[rows["expected"] == 1]
    return heat_map(
        axes, rows.pivot(index="query", columns="candidate", values="share").loc[queries, items],
        rows=queries if first else [""] * len(queries),
        columns=items if last else [""] * len(items),
        framed=zip(expected["query"].map(queries.index), expected["candidate"].map(items.index),
                   strict=True),
    )  # fmt: skip


def share_bar(canvas: Any, image: Any, panels: list[Axes]) -> None:
    """Put the scale of maps of shares beside them."""
    bar = canvas.colorbar(image, ax=panels, fraction=0.02, aspect=30, pad=0.01)
    bar.set_label("fraction of rows", fontsize=7.5)
    bar.outline.set_visible(False)


def panels(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return what the panels of `binding_id_mean` show: a row per condition, a column per model."""
    by_panel = {}
    for experiment, title, column in (
        ("mean", "Mean differences added:\nunchanged answers", "own"),
        ("nulls", "Other vectors of the same length:\nunchanged answers", "share"),
        ("signatures", "Tokens replaced:\nanswers predicted by slot", "share"),
    ):
        if experiment in set(table["experiment"]):
            rows = named(summaries(table, experiment))
            wide = rows.pivot(index="condition", columns="name", values=column)
            by_panel[title] = wide.loc[in_order(rows["condition"]), in_order(rows["name"])]
    return by_panel


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_mean(table: pd.DataFrame) -> Figure:
    """Mean interventions (paper, Table 1), and interventions that tell mechanisms apart.

    A panel per kind of intervention, numbers in cells. The longest stands left, the others one
    below the other beside it.
    """
    added = table[table["experiment"].isin(["mean", "nulls", "signatures"])]
    models = most_asked(some(added, "Nothing was added to activations."), MOST_MODELS)
    first, *others = sorted(panels(models).items(), key=lambda panel: -len(panel[1]))
    tall = max(len(first[1]), sum(len(frame) + 5 for _, frame in others))
    canvas = new_figure(1.0 + 0.2 * tall)
    grid = canvas.add_gridspec(
        max(len(others), 1), 2 if others else 1,
        height_ratios=[len(frame) for _, frame in others] or [1],
    )  # fmt: skip
    _numbers(canvas.add_subplot(grid[:, 0]), *first)
    for i, panel in enumerate(others):
        _numbers(canvas.add_subplot(grid[i, 1]), *panel)
    if note := left_out(most_asked(table, MOST_MODELS), table):
        note_above(canvas, note)
    return canvas


def _numbers(axes: Axes, title: str, frame: pd.DataFrame) -> None:
    n_models = frame.shape[1]
    size, many = 6.5 if n_models <= 9 else 6, n_models > 5
    heat_map(
        axes, frame, rows=list(frame.index), size=7, number_size=size,
        numbers=lambda value: (f"{value:.2f}", "white" if value > 0.6 else "black"),
    )  # fmt: skip
    names = [name if many else name.replace(" (", "\n(") for name in frame.columns]
    axes.set_xticks(range(n_models), names, fontsize=size, rotation=90 if many else 0)
    axes.set_title(title, fontsize=8)


MOST_NUMBERS = 24  # heads of a model whose maps have room for numbers
_HEADS = {
    "effect": ("{} hidden:\nlead lost", "Oranges"),
    "last": ("{}: attention of\nthe last token", "Blues"),
    "question": ("{}: attention of\nall tokens", "Blues"),
}


@figure(table_of(HEADS_SCHEMA))
def binding_id_heads(table: pd.DataFrame) -> Figure:
    """Which heads carry things and items to the question, and where heads look.

    A row per model; for each group what hiding it from single heads loses, and their looks: the
    share of attention on the right one's tokens less that on another's. Groups are those whose
    hiding costs some model answers; else those of both routes.
    """
    if not len(table):
        raise NothingToDrawError("No head was blinded.")
    drawn = most_asked(table, MOST_MODELS)
    for who in ("last", "question"):
        drawn = drawn.assign(**{who: drawn[f"{who}_right"] - drawn[f"{who}_other"]})
    rows = named(drawn)
    of_models = [list(rows_with(drawn, group=group).groupby(["suite", "task", "model"]))
                 for group in GROUPS]  # fmt: skip
    costs = [any(costly(head_rows) for _, head_rows in of_model) for of_model in of_models]
    groups = [group for group, cost in zip(GROUPS, costs, strict=True) if cost]
    names = in_order(rows["name"])[:MOST_MODELS]
    heights = [
        float(np.clip(0.3 + 0.1 * rows_with(rows, name=name)["layer"].nunique(), 0.7, 2.0))
        for name in names
    ]
    columns = [(group, what) for group in groups or ("object", "item") for what in _HEADS]
    grid = crossed(names, columns, (0.7 + sum(heights), 0), height_ratios=heights)
    for (name, (group, what)), axes in grid.panels.items():
        _head_map(axes, rows_with(rows, name=name, group=group), what)
        if name == names[0]:
            axes.set_title(_HEADS[what][0].format(GROUPS[group]), fontsize=6.5)
    words = [name.replace(" (", "\n(") for name in names]
    grid.label(y=words, rotation=0, ha="right", va="center", fontsize=6.5)
    for axes in grid.bottom:
        if not axes.get_xlabel():
            axes.set_xlabel("head", fontsize=6)
    if note := left_out(drawn, table):
        note_above(grid.figure, note)
    return grid.figure


def _head_map(axes: Axes, rows: pd.DataFrame, what: str) -> None:
    """Draw a map of layers, from below, and heads; grey: not blinded, or costs nothing."""
    single = rows[rows["head"] != ALL].astype({"layer": int, "head": int})
    wide = single.pivot(index="layer", columns="head", values=what).to_numpy(float)
    if what == "effect":
        (whole,) = rows_with(rows, layer=ALL, head=ALL)["change"]
        axes.set_xlabel(f"all heads: {whole:+.2f} of answers", fontsize=6)
        if not costly(rows):
            wide = np.full_like(wide, np.nan)
    few = wide.size <= MOST_NUMBERS
    heat_map(axes, wide, numbers=_number if few else None, number_size=6, cmap=_HEADS[what][1],
             origin="lower")  # fmt: skip
    axes.set_facecolor("#DDDDDD")
    for ticks, n in zip((axes.set_yticks, axes.set_xticks), wide.shape, strict=True):
        ticks(range(0, n, max(1, -(-n // 8))))
    axes.tick_params(labelsize=6, pad=1)


def _number(value: float) -> tuple[str, str]:
    words = f"{round(value, 2) + 0.0:.2f}".replace("0.", ".")  # no minus before 0
    return words, "white" if value > 0.6 else "#333333"
