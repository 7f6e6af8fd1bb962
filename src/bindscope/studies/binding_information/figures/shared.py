"""What the study's figures share: what they read, estimated priors, and bars of bounds.

The distribution of scenes is unknown if the prior is estimated (`assumed_prior`): entropies are
estimates, and a difference from one is neither a bound nor free of that error. Bars and bands of
such numbers are hatched; names of entropies, datasets and panels that rest on one carry a dagger;
the legend says what both mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.figures.colors import GREY, INK
from bindscope.figures.figure import Read
from bindscope.figures.hover import moved_right
from bindscope.figures.style import PAPER_MARK, handle, legend_below
from bindscope.models.baselines import BASELINES
from bindscope.studies.binding_information.families import Label
from bindscope.studies.binding_information.names import FORMULA_ENTRY
from bindscope.studies.binding_information.quantities import PAPER_WHOLE
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA, family_of
from bindscope.studies.binding_information.views import order_models, protocol_family
from bindscope.tables.groups import with_groups
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import TableRow
from bindscope.tables.rows import read_rows
from bindscope.tables.write import read_table

DAGGER: Final = " \u2020"
LABEL_ROWS: Final = 0.8  # of a baseline's name, below rows of height 1
_HATCH: Final = "/////"
_OTHER_PROTOCOL: Final[dict[str, Any]] = {**PAPER_MARK, "color": "white"}
_PAPER: dict[str, Any] = {
    "marker": "D",
    "color": "white",
    "markeredgecolor": INK,
    "markersize": 3.8,
    "linestyle": "none",
    "zorder": 4,
}


def read_binding(inputs: Inputs) -> dict[str, Any]:
    """Read the table with the group of each model, and names of models and groups, in order."""
    table = read_table(inputs.paths("table")[0], BINDING_SCHEMA)
    groups, controls = inputs.content["model_groups"], inputs.content["positive_controls"]
    table = with_groups(table, groups).assign(is_control=table["model"].isin(controls))
    return {"table": table, "models": order_models(inputs.content["models"], groups, controls)}


def binding_and(*content: str, **readers: Callable[[Inputs], Any]) -> Read:
    """Return a reader of the same, of parts of the request's content, and of what others read."""

    def read(inputs: Inputs) -> dict[str, Any]:
        parts = {name: inputs.content[name] for name in content}
        others = {name: reader(inputs) for name, reader in readers.items()}
        return {**read_binding(inputs), **parts, **others}

    return read


def table_as(role: str) -> Callable[[Inputs], pd.DataFrame]:
    """Return a reader of another study's table."""
    return lambda inputs: read_table(inputs.paths(role)[0])


def family_of_fit(fit: ProductFiles) -> str:
    """Return the probe family of a fit, as `views.protocol_family` names it."""
    row = read_rows(fit)[0]
    return protocol_family(family_of(row["options"]), row["protocol"])


def has_assumed_prior(rows: pd.DataFrame) -> bool:
    """Whether any of some rows (of `views.measured` or `views.over_seeds`) is flagged."""
    return bool(rows["assumed_prior"].any())


def marked(text: str, assumed: bool) -> str:
    """Return a name, with a dagger where it rests on an estimated prior."""
    return f"{text}{DAGGER}" if assumed and text else text


def hatched(assumed: bool, color: str = "white") -> dict[str, Any]:
    """Return the style of a bar or band whose number rests on an estimated prior."""
    return {"hatch": _HATCH, "edgecolor": color} if assumed else {}


def assumed_entry(rows: pd.DataFrame) -> list[Patch]:
    """Return the legend's entry where any row is flagged, else nothing."""
    label = f"hatched,{DAGGER}: prior estimated, no bound"
    patch = Patch(facecolor="white", edgecolor=GREY, hatch=_HATCH, linewidth=0.5, label=label)
    return [patch] if has_assumed_prior(rows) else []


def baseline_look(name: str) -> dict[str, Any]:
    """Return how the line of a baseline looks: dotted if it keeps places, else dashed."""
    dashes = (4, 2) if BASELINES[name].discards_place else (1, 1.5)
    return {"color": INK, "linewidth": 0.9, "linestyle": (0, dashes), "zorder": 2.5}


def baseline_lines(
    axes: Axes,
    values: Mapping[str, float],
    rows: tuple[float, float],
    start: float,
    middle: float,
    part: str,
) -> None:
    """Draw baselines as lines across the rows, from the first down to the last, labels below them.

    `values` are `views.strongest_baselines`, counted from `start`. A label takes `LABEL_ROWS`, and
    stands on that side of its line where `middle` is. Its values are of a `part`.
    """
    first, last = rows
    for i, (name, value) in enumerate(values.items()):
        end, side = last + LABEL_ROWS * (i + 0.5), 1 if value < middle else -1
        words, place = BASELINES[name].words, moved_right(axes, start)
        look = {**baseline_look(name), "label": f"{words}, {part}", "transform": place}
        axes.plot([value, value], [first, end], **look)
        axes.annotate(
            words,
            (start + value, end),
            xytext=(3 * side, 0),
            textcoords="offset points",
            va="center",
            ha="left" if side > 0 else "right",
            fontsize=7,
            color=INK,
        )


def cross_baselines(axes: Axes, values: Mapping[str, float], scale: float = 1.0) -> None:
    """Draw baselines as lines across a panel, which `baseline_entries` names."""
    for name, value in values.items():
        axes.axvline(scale * value, **baseline_look(name))


def baseline_entries(names: Iterable[str]) -> list[Line2D]:
    """Return the legend's entries of baselines that were drawn, once each."""
    return [
        handle(f"{BASELINES[name].words} (baseline)", **baseline_look(name))
        for name in dict.fromkeys(names)
    ]


def bound_bar(
    axes: Axes,
    row: TableRow,
    y: float,
    height: float,
    color: str,
    quantity: Quantity,
    paper: Quantity,
    scale: float = 1.0,
) -> None:
    """Draw a lower bound with its interval, and what the paper's formula gives.

    `row` is one of `views.over_seeds`; bits are multiplied with `scale`.
    """
    bound, low, high = (scale * float(row[name]) for name in quantity.interval)
    look = hatched(bool(row["assumed_prior"]))
    axes.barh(y, bound, height, color=color, alpha=0.85, linewidth=0, **look)
    axes.plot([low, high], [y, y], color=INK, linewidth=1, marker="|", markersize=4)
    axes.plot(scale * float(row[paper.value]), y, **_PAPER)


def bar_legend(
    figure: Figure,
    rows: pd.DataFrame,
    bars: Iterable[Label],
    further: Iterable[Line2D],
    marks: pd.DataFrame,
) -> None:
    """Put the legend of such bars below: what their colors mean, and what else is drawn."""
    entries = [
        *(Patch(color=style.color, alpha=0.85, label=style.name) for style in bars),
        handle(name_interval(rows), color=INK, linewidth=1, marker="|", markersize=5),
        *([handle(FORMULA_ENTRY, **_PAPER)] if rows[PAPER_WHOLE.value].notna().any() else []),
        *further,
        *star_entries(marks),
        *assumed_entry(rows),
    ]
    legend_below(figure, entries, 4)


def name_interval(rows: pd.DataFrame) -> str:
    """Name the intervals of bounds: over test scenes, but of model groups over training seeds."""
    has_groups = bool((rows["n_models"] > 1).any())
    return "95 % interval" + (" (groups: over training seeds)" if has_groups else "")


def draw_stars(axes: Axes, x: Iterable[float], y: Iterable[float], same: Iterable[bool]) -> None:
    """Draw published values, hollow ones where protocol or input differ or are not stated."""
    for along, up, is_same in zip(x, y, same, strict=True):
        look = PAPER_MARK if is_same else _OTHER_PROTOCOL
        axes.plot(along, up, linestyle="none", **look)


def star_entries(marks: pd.DataFrame) -> list[Line2D]:
    """Return the legend's entries of published values that were drawn (`same`)."""
    entries = {
        True: ("published value", PAPER_MARK),
        False: ("published value, other protocol or input", _OTHER_PROTOCOL),
    }
    return [
        handle(label, linestyle="none", **look)
        for same, (label, look) in entries.items()
        if (marks["same"] == same).any()
    ]
