"""In how many dimensions binding IDs lie, and answers in the plane of two mean differences."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import INK
from bindscope.figures.style import handle, legend_below, looks, new_figure, note_above, styled
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import (
    cells,
    in_order,
    left_out,
    most_asked,
    named,
    rows_with,
    summaries,
)
from bindscope.tables.write import read_table

MOST_LINES, MOST_MODELS = 8, 4  # models that have lines, and maps
GROUPS = {"O": "objects", "I": "items", "O+I": "objects and items"}
WAYS: dict[str, dict[str, Any]] = {
    "within": {},
    "outside": {"linestyle": (0, (3, 1.5)), "markerfacecolor": "none"},
    "random": {"linestyle": (0, (1, 1.5)), "marker": "."},
}
WORDS = {
    "within": "parts in the subspace exchanged",
    "outside": "all but these from elsewhere",
    "random": "a random subspace",
}
ANSWERS = {"I0": "its own item", "I1": "the second thing's", "I2": "the third thing's"}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], BINDING_ID_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    there = len(summaries(table, "subspaces"))
    return None if there else "No parts of tokens were exchanged."


def plane(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the thing that was moved is said to have: a row per point and answer."""
    rows = rows_with(cells(table, "subspaces"), query="O0")
    rows = rows[rows["second_dose"].notna() & rows["candidate"].isin(ANSWERS)]
    return most_asked(rows, MOST_MODELS) if len(rows) else rows


def by_dimension(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tasks with most dimensions, of as many models as there is room for."""
    asked = rows[rows["condition"] == "O within"]
    sizes = asked.groupby(["suite", "task"])["dose"].nunique()
    deepest = sizes.index[sizes == sizes.max()]
    kept = pd.MultiIndex.from_frame(rows[["suite", "task"]]).isin(deepest)
    return most_asked(rows[kept], MOST_LINES)


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per group by dimension; below, of three things or more, a row of maps per model.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    every = summaries(table, "subspaces").dropna(subset=["dose"])
    lines, maps = by_dimension(every), plane(table)
    models = in_order(named(maps)["name"])[:MOST_MODELS] if len(maps) else []
    figure = new_figure(3.1 + 1.45 * len(models))
    if models:
        ratios = (3.0, 1.4 * len(models))
        parts = figure.subfigures(2, 1, height_ratios=ratios, squeeze=False)
        _by_dimension(parts[0, 0], named(lines))
        _maps(parts[1, 0], named(maps), models)
    else:
        _by_dimension(figure, named(lines))
    if note := left_out(lines, every):
        note_above(figure, note)
    return figure


def _by_dimension(figure: Any, rows: pd.DataFrame) -> None:
    """Draw answers as slots expect, a line per model and way."""
    look = looks(in_order(rows["name"]))
    sizes = sorted(set(rows_with(rows, condition="O within")["dose"]))
    panels = figure.subplots(1, len(GROUPS), sharey=True)
    for axes, (group, words) in zip(panels, GROUPS.items(), strict=True):
        _lines(axes, rows, group, sizes, look)
        axes.set_title(words, fontsize=8)
        axes.set_xlabel("dimensions", fontsize=7.5)
    panels[0].set_ylabel("answers as slots expect", fontsize=7.5)
    entries = [handle(name.replace("\n", ", "), **style) for name, style in look.items()]
    entries += [
        handle(WORDS[way], **{"color": "#444444", "marker": "o", **more})
        for way, more in WAYS.items()
    ]
    legend_below(figure, entries, 3)


def _lines(
    axes: Axes, rows: pd.DataFrame, group: str, sizes: list[float], look: dict[str, Any]
) -> None:
    for i, (name, style) in enumerate(look.items()):
        for way, more in WAYS.items():
            own = rows_with(rows, name=name, condition=f"{group} {way}").sort_values("dose")
            # Beside each other: models often agree.
            at = [sizes.index(r) + 0.03 * (i - (len(look) - 1) / 2) for r in own["dose"]]
            axes.plot(at, own["share"], **{**style, **more})
    axes.set_xticks(range(len(sizes)), [f"{size:.0f}" for size in sizes])
    axes.set_ylim(-0.04, 1.04)


def _maps(figure: SubFigure, rows: pd.DataFrame, models: list[str]) -> None:
    """Draw a row per model and a map per answer; what slots expect is framed."""
    grid = figure.subplots(len(models), len(ANSWERS), squeeze=False)
    for i, name in enumerate(models):
        for j, (answer, words) in enumerate(ANSWERS.items()):
            own = rows_with(rows, name=name, candidate=answer)
            image = _map(grid[i, j], own, first=j == 0, last=i == len(models) - 1)
            if i == 0:
                grid[i, j].set_title(words, fontsize=8)
        grid[i, 0].set_ylabel(f"{name}\ntowards the third", fontsize=7)
    for axes in grid[-1]:
        axes.set_xlabel("towards the second", fontsize=7)
    bar = figure.colorbar(image, ax=list(grid.flat), fraction=0.02, aspect=30, pad=0.01)
    bar.set_label("share of rows", fontsize=7.5)
    bar.outline.set_visible(False)


def _map(axes: Axes, rows: pd.DataFrame, first: bool, last: bool) -> Any:
    wide = rows.pivot(index="second_dose", columns="dose", values="share")
    across, up = list(wide.columns), list(wide.index)
    image = axes.imshow(wide.to_numpy(), vmin=0, vmax=1, cmap="Blues", origin="lower",
                        aspect="auto")  # fmt: skip
    for row in rows[rows["expected"] == 1].to_dict("records"):
        corner = across.index(row["dose"]) - 0.5, up.index(row["second_dose"]) - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=0.8))
    axes.set_xticks(range(len(across)), [f"{x:g}" if last else "" for x in across], fontsize=6)
    axes.set_yticks(range(len(up)), [f"{y:g}" if first else "" for y in up], fontsize=6)
    axes.grid(False)
    axes.tick_params(length=0)
    return image
