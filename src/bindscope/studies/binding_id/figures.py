"""Figures: answers as maps of percents, and by dose, layer and dimension of interventions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bindscope.figures.colors import AMBER, BLUE, GREEN, INK
from bindscope.figures.facets import crossed, facets, handles, heat_map, wrapped
from bindscope.figures.figure import figure, some, table_of
from bindscope.figures.style import (
    legend_below,
    looks,
    new_figure,
    note_above,
    values_along_x,
)
from bindscope.studies.binding_id.names import DATA, NULLS, PLURALS, label_role
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import (
    blinded,
    cells,
    combined,
    costly,
    few_models,
    in_order,
    most_measured,
    named,
    of_all_layers,
    summaries,
)
from bindscope.tables.numbers import number
from bindscope.tables.rows import rows_with

MOST_MODELS = 12
# Groups and roles that have a map, with a title: the ten conditions of the paper's Fig. 3.
MAPS = {
    ("", ""): "nothing\nreplaced",
    **{
        (group, role): f"{words} of\n{'all roles' if role == 'all' else f'role {role}'}"
        for group, words in PLURALS.items()
        for role in ("0", "1", "all")
    },
}
_ROLES = 4  # of a scene, at most


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id(table: pd.DataFrame) -> Figure:
    """Who answers with which item after activations were replaced (paper, Fig. 3).

    A row per model and a map per condition: none, and of each group single roles and all. Rows of a
    map are questions, columns answers; expected cells are framed.
    """
    replaced = some(cells(table, "factorizability"), "No activations were replaced.")
    rows, names, note = few_models(replaced, MOST_MODELS)
    present = {*zip(replaced["groups"], replaced["roles"], strict=True)}
    conditions = [condition for condition in MAPS if condition in present]
    grid = crossed(names, conditions, (0.75, 1.05))
    for (name, condition), axes in grid.panels.items():
        if name == names[0]:
            axes.set_title(MAPS[condition], fontsize=6.5, fontweight="normal")
        groups, roles = condition
        condition_rows = rows_with(rows, name=name, groups=groups, roles=roles)
        if condition_rows.empty:
            axes.set_axis_off()
            continue
        image = _answers(axes, condition_rows, axes in grid.left, axes in grid.bottom)
    grid.label(y=[name.replace(" (", "\n(") for name in names], fontsize=7)
    share_bar(grid.figure, image, list(grid.panels.values()), set(rows["n_rows"]))
    note_above(grid.figure, note)
    return grid.figure


def _answers(axes: Axes, rows: pd.DataFrame, first: bool, last: bool) -> Any:
    values, framed = answer_map(rows, "share")
    return heat_map(
        axes,
        100 * values,
        vmax=100,
        rows=list(values.index) if first else [""] * len(values),
        columns=list(values.columns) if last else [""] * values.shape[1],
        size=5.5,
        framed=framed,
    )


def answer_map(rows: pd.DataFrame, value: str) -> tuple[pd.DataFrame, list[tuple[int, int]]]:
    """Return a condition's column as questions by answers, and the places of expected answers."""
    queries = [name for name in _roles_of("O") if name in set(rows["query"])]
    items = [name for name in _roles_of("I") if name in set(rows["candidate"])]
    expected = rows[rows["expected"] == 1]
    wide = rows.pivot(index="query", columns="candidate", values=value).loc[queries, items]
    places = zip(
        expected["query"].map(queries.index), expected["candidate"].map(items.index), strict=True
    )
    return wide, list(places)


def _roles_of(letter: str) -> list[str]:
    """Return the names of all roles in order, those of the base first."""
    return [label_role(letter, number, _ROLES) for number in range(2 * _ROLES)]


def share_bar(canvas: Any, image: Any, panels: list[Axes], n_rows: Collection[int] = ()) -> None:
    """Put the scale of maps of percents beside them; it says of how many rows, if all agree."""
    bar = canvas.colorbar(image, ax=panels, fraction=0.02, aspect=30, pad=0.01)
    rows = f"{next(iter(n_rows)):,} rows" if len(n_rows) == 1 else "rows"
    bar.set_label(f"% of {rows}", fontsize=7.5)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def panels(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return what the panels of `binding_id_mean` show: a row per condition, a column per model."""
    added, replaced = summaries(table, "mean"), summaries(table, "signatures")
    others = added[added["how"].isin(NULLS)]
    by_panel = {}
    for title, column, rows in (
        ("Mean differences added:\nunchanged answers, %", "own", combined(added)),
        ("Other vectors of the same length:\nunchanged answers, %", "share", others),
        ("Tokens replaced:\nanswers predicted by slot, %", "share", replaced),
    ):
        if len(rows):
            rows = named(rows)
            rows = rows.assign(key=rows.groupby([*DATA], dropna=False, sort=False).ngroup())
            wide = rows.pivot(index="key", columns="name", values=column)
            words = rows.drop_duplicates("key").set_index("key")["condition"]
            by_panel[title] = wide[in_order(rows["name"])].set_axis(list(words[wide.index]))
    return by_panel


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_mean(table: pd.DataFrame) -> Figure:
    """Mean interventions (paper, Table 1), and interventions that tell mechanisms apart.

    A panel per kind of intervention, numbers in cells. The longest stands left, the others one
    below the other beside it.
    """
    added = table[table["experiment"].isin(["mean", "signatures"])]
    models, note = most_measured(some(added, "Nothing was added to activations."), MOST_MODELS)
    first, *others = sorted(panels(models).items(), key=lambda panel: -len(panel[1]))
    tall = max(len(first[1]), sum(len(frame) + 5 for _, frame in others))
    canvas = new_figure(1.0 + 0.2 * tall)
    grid = canvas.add_gridspec(
        max(len(others), 1),
        2 if others else 1,
        height_ratios=[len(frame) for _, frame in others] or [1],
    )
    _numbers(canvas.add_subplot(grid[:, 0]), *first)
    for i, panel in enumerate(others):
        _numbers(canvas.add_subplot(grid[i, 1]), *panel)
    note_above(canvas, note)
    return canvas


def _numbers(axes: Axes, title: str, frame: pd.DataFrame) -> None:
    n_models = frame.shape[1]
    size, many = 6.5 if n_models <= 9 else 6, n_models > 5
    heat_map(
        axes,
        100 * frame,
        vmax=100,
        rows=list(frame.index),
        size=7,
        number_size=size,
        numbers=_percent,
    )
    names = [name if many else name.replace(" (", "\n(") for name in frame.columns]
    axes.set_xticks(range(n_models), names, fontsize=size, rotation=90 if many else 0)
    axes.set_title(title, fontsize=8)


def _percent(value: float) -> tuple[str, str]:
    return number(value, ".0f"), "white" if value > 60 else "black"


MOST_NUMBERS = 24  # heads of a model whose maps have room for numbers


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_heads(table: pd.DataFrame) -> Figure:
    """Which heads carry things, items and colors to the question.

    A row per model; for each group what hiding it from single heads loses. Groups are those whose
    hiding costs some model answers; else those of both routes.
    """
    rows, names, note = few_models(some(blinded(table), "No head was blinded."), MOST_MODELS)
    costs = {
        str(group)
        for (*_, group), of_model in rows.groupby(["suite", "task", "model", "groups"])
        if costly(of_model)
    }
    groups = [group for group in PLURALS if group in costs or (not costs and group != "color")]
    heights = [
        float(np.clip(0.3 + 0.1 * rows_with(rows, name=name)["first_layer"].nunique(), 0.7, 2.0))
        for name in names
    ]
    grid = crossed(names, groups, (0.7 + sum(heights), 0), height_ratios=heights)
    for (name, group), axes in grid.panels.items():
        _head_map(axes, rows_with(rows, name=name, groups=group))
        if name == names[0]:
            axes.set_title(f"{PLURALS[group]} hidden: lead lost", fontsize=7)
    words = [name.replace(" (", "\n(") for name in names]
    grid.label(y=words, rotation=0, ha="right", va="center", fontsize=6.5)
    note_above(grid.figure, note)
    return grid.figure


def _head_map(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a map of layers, from below, and heads; grey: not blinded, or costs nothing."""
    single = rows[rows["head"].notna()]
    wide = single.pivot(index="first_layer", columns="head", values="effect")
    heads, (whole,) = wide.to_numpy(float), of_all_layers(rows)["change"]
    if not costly(rows):
        heads = np.full_like(heads, np.nan)
    few = heads.size <= MOST_NUMBERS
    heat_map(
        axes, heads, numbers=_number if few else None, number_size=6, cmap="Oranges", origin="lower"
    )
    axes.set_facecolor("#DDDDDD")
    axes.set_xlabel(f"head (all: {number(100 * whole, '+.0f')} points of answers)", fontsize=6)
    for ticks, names in ((axes.set_yticks, wide.index), (axes.set_xticks, wide.columns)):
        places = range(0, len(names), max(1, -(-len(names) // 8)))
        ticks(places, [str(names[place]) for place in places])
    axes.tick_params(labelsize=6, pad=1)


def _number(value: float) -> tuple[str, str]:
    return number(value).replace("0.", "."), "white" if value > 0.6 else "#333333"


MOST_COLUMNS = 14  # of a map whose cells have room for numbers
_TITLES = 0.75  # inches above and below maps


def _maps(rows: pd.DataFrame, x: str, words: str, label: str, on: Any = None) -> Figure:
    """Draw maps of percents by a column: a row of maps per place and way, a map per group.

    A map has a row per model. `words` stand before the group in titles, `label` below all maps.
    """
    heights, groups = _heights(rows), [name for name in PLURALS if name in set(rows["groups"])]
    inches = (_TITLES + sum(heights), 0)
    grid = crossed(heights.index, groups, inches, on=on, height_ratios=list(heights))
    for ((place, frozen), group), axes in grid.panels.items():
        group_rows = rows_with(rows, place=place, frozen=frozen, groups=group)
        wide = group_rows.pivot(index="model_name", columns=x, values="share")
        wide = wide.loc[in_order(group_rows["model_name"])]
        step = -(-wide.shape[1] // MOST_COLUMNS)
        image = heat_map(
            axes,
            100 * wide,
            vmax=100,
            rows=list(wide.index) if axes in grid.left else [""] * len(wide),
            columns=[f"{name:g}" if not i % step else "" for i, name in enumerate(wide.columns)],
            size=6.5,
            numbers=_percent if wide.shape[1] <= MOST_COLUMNS else None,
            number_size=5.5,
        )
        where = place.replace("\n", ", ") if axes in grid.left else ""
        title = f"{words}{PLURALS[group]}{'' if frozen else ', anew'}"
        title = f"{where}: {title}" if where else title
        axes.set_title(title, fontsize=7, fontweight="normal")
    grid.label(label, fontsize=7.5)
    share_bar(grid.figure, image, list(grid.panels.values()))
    return grid.figure


def _heights(rows: pd.DataFrame) -> pd.Series:
    """Return the inches of each row of maps, by its place and whether the context is frozen."""
    return 0.35 + 0.13 * rows.groupby(["place", "frozen"], sort=False)["model_name"].nunique()


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_positions(table: pd.DataFrame) -> Figure:
    """Whether answers follow the positions of keys that are moved (paper, Fig. 5).

    A row of maps per task and suite, a map per group, a row of it per model.
    """
    rows = some(summaries(table, "positions"), "No keys were moved.")
    rows = named(rows_with(rows, variant="").dropna(subset=["dose"]))
    return _maps(rows, "dose", "keys of ", "fraction of the distance")


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_sweeps(table: pd.DataFrame) -> Figure:
    """At which layers replaced activations matter, and how much of a mean difference is needed.

    Maps with a row per model: above by window of layers, a map per group; below by dose.
    """
    added = rows_with(summaries(table, "mean"), how="scaled")
    replaced = rows_with(summaries(table, "layers"), variant="window")
    rows = named(some(pd.concat([replaced, added]), "Nothing was swept."))
    parts = dict(list(rows.groupby("experiment", sort=False)))
    inches = [_TITLES + sum(_heights(part)) for part in parts.values()]
    canvas = new_figure(sum(inches))
    halves = canvas.subfigures(len(parts), 1, squeeze=False, height_ratios=inches)
    axis = {
        "layers": ("first_layer", "first replaced layer"),
        "mean": ("dose", "multiple of the mean difference"),
    }
    for half, (experiment, part) in zip(halves[:, 0], parts.items(), strict=True):
        x, label = axis[str(experiment)]
        _maps(part, x, "", label, half)
    return canvas


_PERCENT = (-4, 104)
_HOLLOW: dict[str, Any] = {"linestyle": (0, (3, 1.5)), "markerfacecolor": "none"}
MOST_LINES = 8  # models that have lines
_SPACES = {"object": "objects", "item": "items", "object+item": "objects and items"}
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


def by_dimension(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the tasks with most dimensions, of as many models as there is room for."""
    within = rows_with(rows, how="within", groups="object")
    sizes = within.groupby(["task", "suite"], sort=False)["dose"].nunique()
    return most_measured(rows, MOST_LINES, sizes.index[sizes == sizes.max()])


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_subspaces(table: pd.DataFrame) -> Figure:
    """In how many dimensions binding IDs lie: a panel per group, a line per model and way."""
    every = some(summaries(table, "subspaces"), "No parts of tokens were exchanged.")
    every = every.dropna(subset=["dose"])
    rows, note = by_dimension(every)
    rows = named(rows)
    look = looks(in_order(rows["name"]))
    sizes = sorted(set(rows_with(rows, how="within", groups="object")["dose"]))
    rows = rows.assign(x=rows["dose"].map(sizes.index))
    grid = wrapped(_SPACES, 3, (3.1, 0), sharey=True)
    for way, more in _WAYS.items():
        facets(
            rows_with(rows, how=way),
            look,
            grid,
            "groups",
            title=_SPACES.__getitem__,
            y="share",
            by="name",
            apart=0.03,
            scale=100,
            ylim=_PERCENT,
            **more,
        )
    for axes in grid.bottom:
        axes.set_xticks(range(len(sizes)), [f"{size:.0f}" for size in sizes])
    grid.label("dimensions", "% of answers predicted by slot", fontsize=7.5)
    ways = {_WORDS[way]: {"color": "#444444", "marker": "o", **_WAYS[way]} for way in _WAYS}
    grid.legend(look, *handles(ways), per_row=3)
    note_above(grid.figure, note)
    return grid.figure


# Told apart without colors by their order, from left to right.
ACCOUNTS = {
    "slot": (BLUE, "slot"),
    "color": (AMBER, "color"),
    "content": (GREEN, "content"),
    "guess": ("#D0D0D0", "none of them (guesses)"),
}
_LEAST, _ROOM = 0.5, 12  # percents that have an interval, and that a number fits into


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_mixture(table: pd.DataFrame) -> Figure:
    """Which share of the answers goes by which account of binding: a bar per model."""
    mixtures = rows_with(table, experiment="mixture")
    rows = named(some(mixtures, "No mixtures of accounts were fitted."))
    percent = ["share", "share_low", "share_high"]
    rows[percent] *= 100
    names = in_order(rows.loc[rows["candidate"].isin(ACCOUNTS), "name"])
    n_lines = sum(name.count("\n") + 1 for name in names)
    canvas = new_figure(0.95 + 0.12 * len(names) + 0.12 * n_lines)
    axes = canvas.subplots()
    for at, name in enumerate(names):
        _shares(axes, at, rows_with(rows, name=name))
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100], ["0", "50", "100"], fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("% of answers", fontsize=7.5)
    values_along_x(axes)
    legend_below(canvas, [Patch(color=color, label=word) for color, word in ACCOUNTS.values()], 4)
    return canvas


def _shares(axes: Axes, at: int, rows: pd.DataFrame) -> None:
    """Draw a model's percents side by side, each with its interval at its right end."""
    by_account = {row["candidate"]: row for row in rows.to_dict("records")}
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
            axes.text(
                start + share / 2,
                at,
                f"{share:.0f}\u00a0%",
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if light else INK,
            )
        start += share
