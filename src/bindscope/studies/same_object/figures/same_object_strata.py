"""Pairs of one class, by distance: whether a probe tells two objects of it apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import handle, legend_below, lowest_panels, new_figure, styled
from bindscope.studies.same_object.marks import NO_MODEL
from bindscope.studies.same_object.names import LOOK_OF_POSITION, family_order, family_shown
from bindscope.studies.same_object.schemas import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.studies.same_object.views import (
    best_layers,
    bin_start,
    fitted,
    over_models,
    read_shown,
)

_KEYS = ["dataset", "group", "probe", "family", "distance"]
_COLUMNS = 4
_FAMILIES = ("quadratic", "quadratic_position", "diagonal", "class_position", "class_pointwise",
             "cosine")  # fmt: skip
SMALLEST_PAIRS = 200  # pairs of a bin, below which no curve has a point there


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the layers that validation prefers for the quadratic probe."""
    scores = read_shown(inputs, SAME_OBJECT_SCHEMA, "scores")["table"]
    return {**read_shown(inputs, STRATA_SCHEMA), "layers": best_layers(fitted(scores))}


def _rows(table: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of one class by distance, at the best layers, with a mean over models."""
    rows = fitted(table).merge(layers, on=["dataset", "group", "layer"])
    rows = rows[(rows["same_class"] == "same") & (rows["size"] == "all")]
    rows = rows[(rows["distance"] != "all") & rows["family"].isin(_FAMILIES)]
    found = over_models(rows, _KEYS)
    # A score that parts same from different needs both among the pairs of a bin.
    return found[found["auc_within"].notna() & (found["n_pairs"] >= SMALLEST_PAIRS)]


def _positions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same pairs, told from positions alone."""
    rows = table[(table["model"] == NO_MODEL) & (table["family"] == "position")]
    rows = rows[(rows["same_class"] == "same") & (rows["size"] == "all")]
    return rows[(rows["distance"] != "all") & rows["auc_within"].notna()]


def available(table: pd.DataFrame, layers: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if len(_rows(table, layers)):
        return None
    return (
        "No scene has two objects of one class at a distance that two patches of one object also "
        "have: there is nothing to tell apart within a class."
    )


@styled
def draw(table: pd.DataFrame, layers: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw areas under the ROC curve within images, by distance, a panel per model.

    Parameters
    ----------
    table, layers, models
        As `read` returns them.
    """
    rows, positions = _rows(table, layers), _positions(table)
    order = {name: i for i, name in enumerate(models)}
    panels = sorted(
        {(str(d), str(m)) for d, m in zip(rows["dataset"], rows["group"], strict=True)},
        key=lambda panel: (panel[0], order.get(panel[1], len(order))),
    )
    columns = min(_COLUMNS, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = new_figure(0.9 + 1.9 * n_rows)
    grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
    several = rows["dataset"].nunique() > 1
    bins = {name: i for i, name in enumerate(sorted(rows["distance"].unique(), key=bin_start))}
    for axes, (dataset, model) in zip(grid.flat, panels, strict=False):
        part = rows[(rows["dataset"] == dataset) & (rows["group"] == model)]
        for (_, family), curve in part.groupby(["probe", "family"], sort=False):
            _curve(axes, curve, str(family), bins)
        base = positions[(positions["dataset"] == dataset) & positions["distance"].isin(list(bins))]
        base = base.sort_values("distance", key=lambda names: names.map(bins))
        for _, curve in base.groupby("grid", sort=False):
            axes.plot(
                curve["distance"].map(bins), curve["auc_within"], linewidth=1.0, **LOOK_OF_POSITION
            )
        axes.axhline(0.5, color=GREY, linewidth=0.8)
        axes.set_title(f"{model}\n{dataset}" if several else model, fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("area under ROC within images,\npairs of one class")
    for axes in lowest_panels(grid, len(panels)):
        axes.set_xlabel("distance in patches")
        axes.set_xticks(range(len(bins)), list(bins), fontsize=7)
    legend_below(figure, _legend(rows["family"].unique(), len(positions) > 0))
    return figure


def _curve(axes: Axes, curve: pd.DataFrame, family: str, bins: Mapping[str, int]) -> None:
    shown = family_shown(family)
    curve = curve.sort_values("distance", key=lambda names: names.map(bins))
    x = curve["distance"].map(bins)
    ends = (curve["auc_within_low"], curve["auc_within_high"])
    axes.fill_between(x, *ends, color=shown.colour, alpha=0.15, linewidth=0)
    axes.plot(x, curve["auc_within"], color=shown.colour, marker=shown.marker, markersize=3.5)


def _legend(families: Iterable[str], positions: bool) -> list[Line2D]:
    entries = [
        handle(shown.name, color=shown.colour, marker=shown.marker, markersize=4)
        for shown in map(family_shown, sorted(families, key=family_order))
    ]
    if positions:
        entries.append(handle("position alone", linewidth=1.0, **LOOK_OF_POSITION))
    return [*entries, handle("chance", color=GREY, linewidth=0.8)]
