"""Answers by the dose, the layer and the dimension of interventions, and accounts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from bindscope.figures.colors import AMBER, BLUE, GREEN, INK
from bindscope.figures.facets import Look, crossed, facets, handles, heat_map, lines, wrapped
from bindscope.figures.figure import figure, some, table_of
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    new_figure,
    note_above,
    values_along_x,
)
from bindscope.studies.binding_id.figures.heat_maps import share_bar
from bindscope.studies.binding_id.names import DISAGREEING
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA, MIXTURE_SCHEMA
from bindscope.studies.binding_id.views import (
    cells,
    in_order,
    left_out,
    legend_columns,
    most_asked,
    named,
    rows_with,
    summaries,
)

GROUPS = {"O": "objects", "I": "items", "C": "colors"}
_SHARES = (-0.04, 1.04)
_HOLLOW: dict[str, Any] = {"linestyle": (0, (3, 1.5)), "markerfacecolor": "none"}


def _columns(entries: Sequence[Any]) -> tuple[int, float]:
    """Return the columns of a legend, and the inches that it takes."""
    columns = legend_columns(str(entry.get_label()) for entry in entries)
    return columns, 0.17 * -(-len(entries) // columns)


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_positions(table: pd.DataFrame) -> Figure:
    """Whether answers follow the positions of keys that are moved (paper, Fig. 5).

    A panel per group, a line per model with Wilson's intervals; lines are moved beside each other,
    since models often agree.
    """
    rows = some(summaries(table, "positions"), "No keys were moved.")
    rows = named(rows.dropna(subset=["dose"]))
    look = looks(in_order(rows["name"]))
    columns, inches = _columns(handles(look))
    grid = wrapped(GROUPS, 3, (inches, 2.5), sharey=True)
    facets(
        rows, look, grid, "condition", x="dose", y="share", by="name", ylim=_SHARES,
        apart=min(0.02, 0.12 / max(len(look), 1)), band=0.12,
        title=lambda group: f"keys of {GROUPS[group]} moved",
    )  # fmt: skip
    for axes in grid.bottom:
        axes.axvline(1.0, color="#666666", linewidth=0.7)
    grid.label("fraction of the distance (1: exchanged)", "unchanged answers", fontsize=7.5)
    return grid.legend(look, per_row=columns)


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_sweeps(table: pd.DataFrame) -> Figure:
    """At which layers replaced activations matter, and how much of a mean difference is needed.

    A row of panels by layer and one by dose, a panel per group and a line per model.
    """
    every = summaries(table)
    sweeps = [name for name in ("layers", "doses") if name in set(table["experiment"])]
    rows = named(every[every["experiment"].isin(some(sweeps, "Nothing was swept."))])
    parts = rows["condition"].str.extract(r"^([OIC])(?: all)?( anew)?$")
    rows = rows.assign(group=parts[0], anew=parts[1].notna())
    look = looks(in_order(rows["name"]))
    anew = handle("context computed again", color="#444444", marker="o", **_HOLLOW)
    entries = [*handles(look), *([anew] if "layers" in sweeps else [])]
    columns, inches = _columns(entries)
    grid = crossed(sweeps, GROUPS, (0.3 + inches, 1.9), sharey=True)
    for (sweep, group), axes in grid.panels.items():
        group_rows = rows_with(rows, experiment=sweep, group=group)
        if group_rows.empty:
            axes.set_axis_off()
            continue
        (_by_layer if sweep == "layers" else _by_dose)(axes, group_rows, look)
        what = "replaced" if sweep == "layers" else "moved by mean differences"
        axes.set_title(f"{GROUPS[group]} {what}", fontsize=7.5)
        axes.set_ylim(_SHARES)
    grid.label(y="answers predicted by slot", fontsize=7.5)
    legend_below(grid.figure, entries, columns)
    return grid.figure


def _by_layer(axes: Axes, rows: pd.DataFrame, look: Mapping[str, Look]) -> None:
    """Draw windows of layers, with a frozen context and with one that is computed anew."""
    rows = rows[rows["layers"].str.match(r"[0-9]+( to [0-9]+)?$")]
    places = sorted(set(rows["layers"]), key=lambda words: (int(words.split()[0]), words))
    rows = rows.assign(x=rows["layers"].map(places.index))
    how: dict[str, Any] = {"y": "share", "by": "name", "apart": 0.5 / max(len(look), 2)}
    lines(axes, rows[~rows["anew"]], look, **how)
    lines(axes, rows[rows["anew"]], look, **how, **_HOLLOW)
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("layer", fontsize=7.5)


def _by_dose(axes: Axes, rows: pd.DataFrame, look: Mapping[str, Look]) -> None:
    apart = min(0.05, 0.25 / len(look))  # all of them stay near their dose
    lines(axes, rows.dropna(subset=["dose"]), look, x="dose", y="share", by="name", apart=apart)
    axes.set_xlabel("multiple of the mean difference", fontsize=7.5)


MOST_LINES, MOST_MAPS = 8, 4  # models that have lines, and maps
_SPACES = {"O": "objects", "I": "items", "O+I": "objects and items"}
_WAYS: dict[str, dict[str, Any]] = {
    "within": {},
    "outside": _HOLLOW,
    "random": {"linestyle": (0, (1, 1.5)), "marker": "."},
}
_WORDS = {
    "within": "parts in the subspace exchanged",
    "outside": "all but these from elsewhere",
    "random": "a random subspace",
}
ANSWERS = {"I0": "its own item", "I1": "the second object's", "I2": "the third object's"}


def plane(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the thing that was moved is said to have: a row per point and answer."""
    rows = rows_with(cells(table, "subspaces"), query="O0")
    rows = rows[rows["second_dose"].notna() & rows["candidate"].isin(ANSWERS)]
    return most_asked(rows, MOST_MAPS) if len(rows) else rows


def by_dimension(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tasks with most dimensions, of as many models as there is room for."""
    within = rows[rows["condition"] == "O within"]
    sizes = within.groupby(["suite", "task"])["dose"].nunique()
    deepest = sizes.index[sizes == sizes.max()]
    deepest_rows = pd.MultiIndex.from_frame(rows[["suite", "task"]]).isin(deepest)
    return most_asked(rows[deepest_rows], MOST_LINES)


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_subspaces(table: pd.DataFrame) -> Figure:
    """In how many dimensions binding IDs lie, and answers in the plane of two mean differences.

    A panel per group by dimension; below, of three things or more, a row of maps per model.
    """
    every = some(summaries(table, "subspaces"), "No parts of tokens were exchanged.")
    every = every.dropna(subset=["dose"])
    rows, maps = by_dimension(every), plane(table)
    models = in_order(named(maps)["name"])[:MOST_MAPS] if len(maps) else []
    canvas = new_figure(3.1 + 1.45 * len(models))
    if models:
        ratios = (3.0, 1.4 * len(models))
        above, below = canvas.subfigures(2, 1, height_ratios=ratios, squeeze=False)[:, 0]
        _by_dimension(above, named(rows))
        _maps(below, named(maps), models)
    else:
        _by_dimension(canvas, named(rows))
    if note := left_out(rows, every):
        note_above(canvas, note)
    return canvas


def _by_dimension(canvas: Figure | SubFigure, rows: pd.DataFrame) -> None:
    """Draw answers as slots expect, a line per model and way."""
    look = looks(in_order(rows["name"]))
    sizes = sorted(set(rows_with(rows, condition="O within")["dose"]))
    parts = rows["condition"].str.extract(r"^(\S+) (\w+)$")
    rows = rows.assign(group=parts[0], way=parts[1])
    rows = rows[rows["way"].isin(_WAYS) & rows["group"].isin(_SPACES)]
    rows = rows.assign(x=rows["dose"].map(sizes.index))
    grid = wrapped(_SPACES, 3, (0, 0), canvas, sharey=True)
    for way, more in _WAYS.items():
        facets(rows[rows["way"] == way], look, grid, "group", title=_SPACES.__getitem__,
               y="share", by="name", apart=0.03, ylim=_SHARES, **more)  # fmt: skip
    for axes in grid.bottom:
        axes.set_xticks(range(len(sizes)), [f"{size:.0f}" for size in sizes])
    grid.label("dimensions", "answers predicted by slot", fontsize=7.5)
    ways = {_WORDS[way]: {"color": "#444444", "marker": "o", **_WAYS[way]} for way in _WAYS}
    grid.legend(look, *handles(ways), per_row=3)


def _maps(canvas: Figure | SubFigure, rows: pd.DataFrame, models: list[str]) -> None:
    """Draw a row per model and a map per answer; what slots expect is framed."""
    grid = crossed(models, ANSWERS, (0, 0), canvas)
    for (name, answer), axes in grid.panels.items():
        answer_rows = rows_with(rows, name=name, candidate=answer)
        wide = answer_rows.pivot(index="second_dose", columns="dose", values="share")
        across, up = list(wide.columns), list(wide.index)
        expected = answer_rows[answer_rows["expected"] == 1]
        image = heat_map(
            axes, wide, origin="lower", frame=0.8,
            rows=[f"{dose:g}" if axes in grid.left else "" for dose in up],
            columns=[f"{dose:g}" if axes in grid.bottom else "" for dose in across],
            framed=zip(expected["second_dose"].map(up.index), expected["dose"].map(across.index),
                       strict=True),
        )  # fmt: skip
        if name == models[0]:
            axes.set_title(ANSWERS[answer], fontsize=8)
    towards = [f"{name}\ntoward the third" for name in models]
    grid.label("toward the second", towards, fontsize=7)
    share_bar(canvas, image, list(grid.panels.values()))


# Told apart without colors by their order, from left to right.
ACCOUNTS = {"slot": (BLUE, "slot"), "color": (AMBER, "color"), "content": (GREEN, "content"),
            "guess": ("#D0D0D0", "none of them (guesses)")}  # fmt: skip
_LEAST, _ROOM = 0.005, 0.12  # shares that have an interval, and that a number fits into


@figure(table_of(MIXTURE_SCHEMA))
def binding_id_mixture(table: pd.DataFrame) -> Figure:
    """Which share of the answers goes by which account of binding: a bar per model."""
    some(table, "No mixtures of accounts were fitted.")
    rows = named(rows_with(table, conditions=DISAGREEING))
    names = in_order(rows.loc[rows["account"].isin(ACCOUNTS), "name"])
    n_lines = sum(name.count("\n") + 1 for name in names)
    canvas = new_figure(0.95 + 0.12 * len(names) + 0.12 * n_lines)
    axes = canvas.subplots()
    for at, name in enumerate(names):
        _shares(axes, at, rows_with(rows, name=name))
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("fraction of answers", fontsize=7.5)
    values_along_x(axes)
    legend_below(canvas, [Patch(color=color, label=word) for color, word in ACCOUNTS.values()], 4)
    return canvas


def _shares(axes: Axes, at: int, rows: pd.DataFrame) -> None:
    """Draw a model's shares side by side, each with its interval at its right end."""
    by_account = {row["account"]: row for row in rows.to_dict("records")}
    start = 0.0
    for place, (part, (color, _)) in enumerate(ACCOUNTS.items()):
        if part not in by_account:
            continue
        share, low, high = (by_account[part][key] for key in ("share", "share_low", "share_high"))
        axes.barh(at, share, left=start, color=color, height=0.78)
        if part != "guess" and share > _LEAST:
            # Beside each other, so that none hides another.
            height = at - 0.22 + 0.22 * place
            axes.plot([start + low, start + high], [height, height], color=INK, linewidth=0.9)
        if share >= _ROOM:
            light = part in ("slot", "content")
            axes.text(start + share / 2, at, f"{100 * share:.0f} %", ha="center", va="center",
                      fontsize=6.5, color="white" if light else INK)  # fmt: skip
        start += share
