"""Bounds against a number: layers, possible objects, pixels, and what is hidden.

Solid: the lower bound with its 95 % interval as a band; dashed: the paper's formula. Means over
probe seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import GREY, INK
from bindscope.figures.facets import FacetGrid, Look, colored, crossed, facets, wrapped
from bindscope.figures.figure import NothingToDrawError, curves_of, figure, some
from bindscope.figures.style import (
    handle,
    looks,
    note_above,
    reference_line,
    zero_line,
)
from bindscope.studies.binding_information.figures.shared import (
    assumed_entry,
    binding_and,
    draw_stars,
    has_assumed_prior,
    hatched,
    marked,
    name_interval,
    read_binding,
    star_entries,
    table_as,
)
from bindscope.studies.binding_information.names import (
    FORMULA_ENTRY,
    label_family,
    label_tokens,
)
from bindscope.studies.binding_information.published import NO_TRENDS, read_trends, trend_of
from bindscope.studies.binding_information.quantities import BEYOND, COUNTS, PAPER_BEYOND
from bindscope.studies.binding_information.views import (
    dataset_tokens,
    family_order,
    last_layers,
    layer_places,
    measured,
    model_labels,
    over_seeds,
    token_order,
)
from bindscope.tables.quoted import name_order

_DASHES: dict[str, Any] = {"linestyle": (0, (3, 1.5)), "linewidth": 1}
_ENTROPY: dict[str, Any] = {"color": GREY, "linestyle": ":"}
_COUNTING: dict[str, Any] = {"color": INK, "linestyle": "-.", "linewidth": 1.0, "zorder": 1}


def curve_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return last layers of models that are no known-answer encoders, means over seeds."""
    rows = over_seeds(last_layers(measured(table)))
    return rows[rows[[BEYOND.value, PAPER_BEYOND.value]].notna().any(axis=1)].copy()


def _by_dataset(
    table: pd.DataFrame, models: Sequence[str], x: Mapping[str, float], few: str
) -> tuple[pd.DataFrame, list[str]]:
    """Return curves over datasets, which are at the places `x`, and the names of their lines.

    Where no model has two places there is nothing to draw, which `few` says.
    """
    rows = curve_rows(table)
    rows = rows[rows["dataset"].isin(list(x))]
    labels = model_labels(rows, models)
    places = rows["dataset"].map(x).astype(float)
    rows = rows.assign(line=rows["model"].map(labels), dataset_line="", x=places)
    rows = some(_with_several(rows), few)
    return rows, name_order(rows["line"], list(labels.values()))


def _with_several(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep curves (`line`, tokens, probe) with two values of `x` or more, in the order of `x`."""
    curve = ["line", "tokens", "probe"]
    if len(rows):
        rows = rows[rows.groupby(curve)["x"].transform("nunique") > 1]
    return rows.sort_values([*curve, "x", "dataset"], kind="stable")


def _in(rows: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Add what is drawn, in `bits` or as a `share` of H(O|F) in percent, NaN where that is 0."""
    conditional = rows[BEYOND.entropy].to_numpy(float)
    scale = (
        100.0 / np.where(conditional > 0, conditional, np.nan)
        if unit == "share"
        else np.ones(len(rows))
    )
    value, low, high = (rows[name] * scale for name in BEYOND.interval)
    return rows.assign(
        unit=unit,
        value=value,
        value_low=low,
        value_high=high,
        paper=rows[PAPER_BEYOND.value] * scale,
        counting=rows[COUNTS.entropy] * scale,
    )


def _curves(
    grid: FacetGrid, rows: pd.DataFrame, panel: Any, look: Mapping[str, Look], **style: Any
) -> None:
    """Draw bounds and the paper's formula, a curve per `line`, `dataset_line` and probe."""
    curve = rows.groupby(["line", "dataset_line", "probe"], sort=False).ngroup()
    rows = rows.assign(curve=curve.astype(str))
    each = {c: look[line] for c, line in zip(rows["curve"], rows["line"], strict=True)}
    facets(
        rows,
        each,
        grid,
        panel,
        by="curve",
        band=0.2,
        **style,
        area=lambda part, color: hatched(has_assumed_prior(part), color),
    )
    facets(rows, colored(each, **_DASHES), grid, panel, by="curve", y="paper")
    for axes in grid.panels.values():
        zero_line(axes)


def _solid_and_dashed(rows: pd.DataFrame) -> list[Any]:
    """Return the legend's entries of what solid and dashed lines mean."""
    entries = {
        BEYOND.value: handle(f"lower bound, {name_interval(rows)}", color=INK),
        PAPER_BEYOND.value: handle(FORMULA_ENTRY, color=INK, **_DASHES),
    }
    return [entry for name, entry in entries.items() if rows[name].notna().any()]


def _pairs(
    rows: pd.DataFrame, columns: Sequence[str], **shared: Any
) -> tuple[FacetGrid, pd.DataFrame]:
    """Make two panels per token input and probe family, and name the `pair` of each row."""
    keys = {
        f"{token}, {family}": f"{label_tokens(token).name}, {label_family(family).name}\nβ*, %"
        for token in token_order(rows["tokens"])
        for family in family_order(rows.loc[rows["tokens"] == token, "family"])
    }
    grid = crossed(keys, columns, (1.3, 1.9), **shared)
    grid.label(y=list(keys.values()))
    return grid, rows.assign(pair=rows["tokens"] + ", " + rows["family"])


# --- By layer -----------------------------------------------------------------------------------

_COLUMNS = 4
_SHOW_WHOLE_FROM = 50.0  # per cent; below, the line at 100 would press the curves together


@figure(read_binding)
def layers(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Value of beta* by layer, panels by dataset, tokens and probe family, a curve per model."""
    curve = ["dataset", "model", "tokens", "probe"]
    rows = over_seeds(measured(table))
    few = "No model was measured at three layers or more."
    rows = curves_of(rows[rows[BEYOND.value].notna()], curve, "layer", few)
    labels = model_labels(rows, models)
    rows = rows.assign(x=layer_places(rows), line=rows["model"].map(labels), dataset_line="")
    rows = _in(rows.sort_values([*curve, "x"], kind="stable"), "share")
    look = looks(list(labels.values()))
    where = ["dataset", "tokens", "family"]
    panels = [
        (dataset, token, family)
        for dataset, token in dataset_tokens(rows)
        for family in family_order(
            rows.loc[(rows["dataset"] == dataset) & (rows["tokens"] == token), "family"]
        )
    ]
    grid = wrapped(panels, _COLUMNS, (0.9, 1.9), sharex=True, sharey=True)
    _curves(grid, rows, where, look, markersize=3.5)
    hollow: Look = {"markersize": 4.5, "markerfacecolor": "white", "linestyle": "none"}
    final = rows[rows["layer"] == "final"]
    facets(final, look, grid, where, **hollow)
    assumed = {tuple(key) for key in rows.loc[rows["assumed_prior"], where].to_numpy()}
    high, n_columns = grid.left[0].get_ylim()[1], min(_COLUMNS, len(panels))
    for i, ((dataset, token, family), axes) in enumerate(grid.panels.items()):
        name = f"{label_tokens(token).name}\n{label_family(family).name}"
        head = f"{dataset}\n{name}" if rows["dataset"].nunique() > 1 else name
        axes.set_title(marked(head, (dataset, token, family) in assumed), fontsize=8)
        if high >= _SHOW_WHOLE_FROM:
            last = i % n_columns == n_columns - 1
            reference_line(axes, 100.0, marked("H(O|F)", has_assumed_prior(rows)) if last else "")
    first = int(rows["x"].min())
    deepest = int(rows.loc[rows["layer"] != "final", "x"].max())
    for axes in grid.bottom:
        axes.set_xticks(range(first, deepest + 1, max(1, -(-deepest // 8))))
    grid.label("layer", "β*, % of H(O|F)")
    mark = {"marker": "o", "markerfacecolor": "white", "linestyle": "none", "color": INK}
    norm = [handle("after the last norm", **mark)] if len(final) else []
    return grid.legend(look, *_solid_and_dashed(rows), *norm, *assumed_entry(rows))


# --- By what varies from dataset to dataset, or from model to model ------------------------------


def _against(
    rows: pd.DataFrame,
    lines: Sequence[str],
    x_label: str,
    marks: pd.DataFrame,
    place: str,
    note: str,
) -> Figure:
    """Draw beta* (left) and B* (right), a row of panels per token input and probe family.

    Dotted: H(O|F), all there is to find, and H(M|F), the part of it that counting alone reaches;
    no point on the left where H(O|F) is 0. `marks` are the paper's numbers, `value` (a share) at
    what their column `place` says, drawn in the panels of [CLS].
    """
    look = looks(lines)
    units = ("share", "bits")
    grid, rows = _pairs(rows, units, sharex=True, sharey="col")
    both = pd.concat([_in(rows, unit) for unit in units])
    where = ["pair", "unit"]
    _curves(grid, both, where, look)
    known = both.drop_duplicates([*where, "dataset_line", "x"])
    for label, y, style in (
        (known[known["unit"] == "bits"], BEYOND.entropy, _ENTROPY),
        (known, "counting", _COUNTING),
    ):
        facets(
            label, dict.fromkeys(known["dataset_line"], style), grid, where, by="dataset_line", y=y
        )
    places = marks[place].astype(float).tolist()
    of_cls = set(rows.loc[rows["tokens"] == "cls", "pair"])
    sizes = sorted({*rows["x"], *places})
    for (pair, unit), axes in grid.panels.items():
        if unit == "bits":
            axes.set_ylabel("B*, bits per scene")
        elif pair in of_cls:
            draw_stars(axes, places, 100.0 * marks["value"], marks["same"])
    for axes in grid.bottom:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    grid.label(x_label)
    counted = rows[COUNTS.entropy].notna().any()
    further = [
        *assumed_entry(rows),
        handle(marked("H(O|F)", has_assumed_prior(rows)), **_ENTROPY),
        *([handle("counting alone, H(M|F)", **_COUNTING)] if counted else []),
        *star_entries(marks),
    ]
    grid.legend(look, *_solid_and_dashed(rows), *further, per_row=4)
    note_above(grid.figure, note)
    return grid.figure


@figure(binding_and("cells", trends=read_trends))
def complexity(
    table: pd.DataFrame,
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame = NO_TRENDS,
) -> Figure:
    """Binding against the size of the feature space, of models read on two sizes or more.

    The paper reports no numbers for this curve, and is quoted in words.
    """
    few = "No model was measured on feature spaces of two sizes or more."
    rows, lines = _by_dataset(table, models, cells, few)
    marks, note = trend_of("complexity", trends, table, cells)
    return _against(rows, lines, "number of possible objects, K", marks, "cells", note)


def _families(inputs: Inputs) -> dict[str, list[str]]:
    return {family["name"]: family["models"] for family in inputs.content["families"]}


def _sides(inputs: Inputs) -> dict[tuple[str, str], int]:
    """Read the side of the grid of patches, pixels, by dataset and model off the activations."""
    sides = {}
    for product in inputs.get("indexes"):
        token_map = json.loads(Path(product.path).read_text())["attributes"]["token_map"]
        if token_map:
            names = product.names["dataset"], product.names["model"]
            sides[names] = token_map["grid"][0] * token_map["patch_px"]
    return sides


@figure(binding_and("cells", families=_families, input_px=_sides, trends=read_trends))
def resolution(
    table: pd.DataFrame,
    families: Mapping[str, Sequence[str]],
    input_px: Mapping[tuple[str, str], int],
    cells: Mapping[str, int],
    trends: pd.DataFrame = NO_TRENDS,
    **_: object,
) -> Figure:
    """Binding against the side of the input image, the same scenes, a curve per family.

    A model may stand in several families and is in the rows once for each. The paper's numbers are
    stars where they are comparable, words where not.
    """
    if not families:
        raise NothingToDrawError(
            "No entry of families names models that are one family at several input sizes."
        )
    rows = curve_rows(table)
    places = zip(rows["dataset"], rows["model"], strict=True)
    rows = rows.assign(x=[float(input_px.get(place, "nan")) for place in places])
    several = rows["dataset"].nunique() > 1
    parts = [
        part.assign(line=f"{family} ({dataset})" if several else family, dataset_line=dataset)
        for family, models in families.items()
        for dataset, part in rows[rows["model"].isin(list(models))].groupby("dataset")
    ]
    few = "No family of models was measured at two input sizes or more."
    rows = pd.concat(some(parts, few))
    rows = some(_with_several(rows[rows["x"].notna()]), few)
    lines = name_order(rows["line"], [part["line"].iloc[0] for part in parts])
    marks, note = trend_of("resolution", trends, table, cells)
    return _against(rows, lines, "side of the input image, pixels", marks, "axis_value", note)


@figure(binding_and("cells", statistics=table_as("statistics"), trends=read_trends))
def occlusion(
    table: pd.DataFrame,
    statistics: pd.DataFrame,
    cells: Mapping[str, int],
    models: Sequence[str] = (),
    trends: pd.DataFrame = NO_TRENDS,
) -> Figure:
    """Value of beta* against the camera's height, and against how much of the objects is hidden.

    A row per token input and probe family. The paper names neither model nor probe for its numbers.
    """
    test = statistics[statistics["split"] == "test"].set_index("dataset")
    test = test[test["camera_height"].notna()]  # scenes that a camera sees
    few = "No model was measured at two camera heights or more."
    heights = {str(name): float(height) for name, height in test["camera_height"].items()}
    rows, lines = _by_dataset(table, models, heights, few)
    look = looks(lines)
    grid, rows = _pairs(rows, ("height", "hidden"), sharex="col", sharey="row")
    rows = _in(rows, "share")
    hidden = 100.0 * rows["dataset"].map(test["mean_occlusion"]).astype(float)
    both = pd.concat([rows.assign(by="height"), rows.assign(by="hidden", x=hidden)])
    _curves(grid, both, ["pair", "by"], look)
    by_height, by_hidden = grid.bottom
    by_height.set_xlabel("camera height, scene units")
    by_hidden.set_xlabel("hidden share of an object, mean, %")
    marks, note = trend_of("occlusion", trends, table, cells)
    marks = marks.drop_duplicates("axis_value")  # one for all datasets
    places = marks["axis_value"].astype(float)
    for (pair, by), axes in grid.panels.items():
        if by == "height" and (rows.loc[rows["pair"] == pair, "tokens"] == "cls").any():
            draw_stars(axes, places, 100.0 * marks["value"], marks["same"])
    further = [*assumed_entry(rows), *star_entries(marks)]
    grid.legend(look, *_solid_and_dashed(rows), *further, per_row=4)
    note_above(grid.figure, note)
    return grid.figure
