"""How a result of `bindscope.binding_information` is shown: table, row to quote, claims, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.arrays.near_duplicates import DUPLICATES_REASON
from bindscope.arrays.result import Result, Summary, View, claims_line
from bindscope.figures.colors import INK
from bindscope.figures.style import new_figure, styled
from bindscope.statistics.claims import Effect
from bindscope.studies.binding_information.array_baselines import PREFIX
from bindscope.studies.binding_information.best import BEST
from bindscope.studies.binding_information.claims import CLAIMS, effects
from bindscope.studies.binding_information.figures.parts import (
    Box,
    hide_frame,
    name_boxes,
    part_bar,
    part_boxes,
)
from bindscope.studies.binding_information.flags import FLAGS, is_bound
from bindscope.studies.binding_information.names import ARRAYS, WORDS
from bindscope.studies.binding_information.quantities import CHAIN, LOSSES, WHOLE
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA, family_of
from bindscope.studies.binding_information.views import SMALLEST_BITS, parts_of, quote
from bindscope.tables.flags import flag_list, has_flag, unusable
from bindscope.tables.numbers import at_least, between, number
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import ABOUT, AT_LEAST, TableRow
from bindscope.tables.rows import Row
from bindscope.tables.schema import frame_of

# Columns that only a run of the workflow can fill.
_OF_A_RUN: Final = (
    "dataset",
    "model",
    "model_kind",
    "model_seed",
    "n_layers",
    "spec_key",
    "code_key",
)
_JOINED: Final = ("null_", "truth_")


def result_table(rows: Mapping[str, Sequence[Row]]) -> pd.DataFrame:
    """Return the table with the pipeline's columns, less those that arrays do not have."""
    fits = rows["binding_information"]
    absent = {*_OF_A_RUN} | ({"layer"} if not any(row["layer"] for row in fits) else set())
    columns = tuple(
        column
        for column in BINDING_SCHEMA.columns
        if column.name not in absent and not column.name.startswith(_JOINED)
    )
    names = [column.name for column in columns]
    return frame_of(
        [{name: row[name] for name in names} for row in fits],
        replace(BINDING_SCHEMA, columns=columns),
    )


def best_row(table: pd.DataFrame) -> pd.Series[Any]:
    """Return the best probes of the input with the smallest validation loss of O that converged."""
    best = table[(table["probe"] == BEST) & ~_is_baseline(table)]
    ended = best[(best["status"] != "failed") & best[WHOLE.value].notna()]
    usable = ended[ended["flags"].map(unusable).map(len) == 0]
    candidates = next((rows for rows in (usable, ended) if len(rows)), best)
    chosen: pd.Series[Any] = candidates.iloc[int(_val_losses(candidates).argmin())]
    return chosen


def _val_losses(table: pd.DataFrame) -> pd.Series[float]:
    """Return the smallest validation loss of O in each row, bits per scene."""
    of_parts = table[[LOSSES[part].validation for part in CHAIN]]
    others = table[[LOSSES[target].validation for target in ("object", "object_anchored")]]
    chained = of_parts.sum(axis=1).where(of_parts.iloc[:, 0].notna())
    return others.assign(chained=chained).min(axis=1).fillna(np.inf)


def _is_baseline(table: pd.DataFrame) -> pd.Series[bool]:
    """Tell the rows of baselines of `images`."""
    if "layer" not in table:
        return pd.Series(False, table.index)
    return table["layer"].str.startswith(PREFIX)


def rows_of_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as a run's, each layer of the arrays as a model of one layer."""
    layers = table["layer"] if "layer" in table else pd.Series("", table.index)
    baseline = _is_baseline(table)
    models = ("layer " + layers).where(layers != "", "Z")
    return table.assign(
        dataset=ARRAYS,
        model=models.mask(baseline, layers.str.removeprefix(PREFIX)),
        layer="1",
        n_layers=1,
        model_kind=np.where(baseline, "baseline", ARRAYS),
        model_seed=0,
    )


def result_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measures of the study's claims, layer by layer."""
    rows = rows_of_run(table)
    measured = effects(rows, quote(rows))
    if not has_flag(table, "near_duplicates").any():
        return measured
    return [replace(effect, reason=DUPLICATES_REASON) for effect in measured]


def summarize(result: Result) -> Summary:
    """Return the bounds of the best probes as text, a row per layer and token input."""
    table = result.table
    best = table[table["probe"] == BEST]
    baseline = _is_baseline(best)
    ordered = pd.concat([best[~baseline], best[baseline]])
    rows: list[TableRow] = [*ordered.to_dict("records")]
    are_bounds = table["flags"].map(is_bound).all()
    sign = "≥" if are_bounds else "~"
    parts = [part for part in parts_of(rows[0]) if rows[0][part.entropy] > SMALLEST_BITS]
    lines = []
    for row in rows:
        cells = {"layer": row["layer"] or "Z"} if "layer" in row else {}
        cells |= {"input": row["tokens"], "probe": str(family_of(row["options"]))}
        for part in (WHOLE, *parts):
            cells[f"{WORDS[part]}, of {number(row[part.entropy])}"] = _bits(row, part, sign)
        lines.append({**cells, "flags": ", ".join(_flags_of(row, parts))})
    kind = "lower bounds" if are_bounds else "estimates"
    heading = (
        f"Binding information: bits that probes decode in {rows[0]['n_test']:,} test scenes "
        f"({kind}, 95 % CI over scenes)"
    )
    quoted = result.best.to_dict()
    words, bits = WORDS[parts[-1]], _bits(quoted, parts[-1], sign)
    closing = [
        f"Best by validation: {_name(quoted)}: {words} {bits} of "
        f"{number(quoted[parts[-1].entropy])} bits (which feature belongs to which object).",
        claims_line(result.claims),
    ]
    if has_flag(table, "assumed_prior").any():
        closing.append(
            "The scene distribution is unknown: no number is a bound (flag assumed_prior)."
        )
    flags = sorted({flag for row in rows for flag in _flags_of(row, parts)} - {"assumed_prior"})
    if flags:
        closing.append("; ".join(f"{flag}: {FLAGS[flag]}" for flag in flags) + ".")
    frame = pd.DataFrame(lines)
    return Summary(
        heading, frame if frame["flags"].any() else frame.drop(columns="flags"), tuple(closing)
    )


def _flags_of(row: TableRow, parts: Sequence[Quantity]) -> list[str]:
    """Return a row's flags, less `above_prior` where no number that is shown is negative."""
    bits = [row[part.value] for part in (WHOLE, *parts)]
    negative = any(value < 0 for value in bits if pd.notna(value))
    return [flag for flag in flag_list(row["flags"]) if flag != "above_prior" or negative]


def _name(row: TableRow) -> str:
    layer = f"layer {row['layer']}, " if row.get("layer") else ""
    return f"{layer}{row['tokens']}, {family_of(row['options'])} probe"


def _bits(row: TableRow, part: Quantity, sign: str) -> str:
    bound, *ends = (row[name] for name in part.interval)
    if pd.isna(bound):
        return "-"
    interval = "" if any(map(pd.isna, ends)) else f" ({between(*ends)})"
    return f"{sign} {at_least(bound)}{interval}"


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row per fit: what is decoded of each part, in a box that is its entropy."""
    fits = table[table["probe"] != BEST]
    records: list[TableRow] = [*(fits if len(fits) else table).to_dict("records")]
    boxes = part_boxes(records[0])
    figure = new_figure(0.9 + 0.3 * len(records))
    axes = figure.add_subplot()
    are_bounds = table["flags"].map(is_bound).all()
    sign = AT_LEAST if are_bounds else ABOUT
    for y, row in enumerate(records):
        for box in boxes:
            _bar(axes, y, row, box, sign)
    axes.set_yticks(range(len(records)), [*map(_tick, records)])
    axes.set_ylim(len(records) - 0.5, -0.5)
    name_boxes(axes, boxes)
    words = "lower bounds, \u2265" if are_bounds else "estimates"
    axes.set_xlabel(f"bits ({words}); lines: 95 % intervals over test scenes; boxes: entropies")
    hide_frame(axes)
    return figure


def _bar(axes: Axes, y: float, row: TableRow, box: Box, sign: str) -> None:
    """Draw what is decoded of a part, with its interval and in numbers."""
    value, low, high = (float(row[name]) for name in box.part.interval)
    words = "not estimated" if isnan(value) else f"{sign}{at_least(value)}"
    part_bar(axes, y, box, np.nan_to_num(max(value, 0.0)), words)
    axes.plot([box.start + low, box.start + min(high, box.bits)], [y, y], color=INK, linewidth=1.2)


def _tick(row: TableRow) -> str:
    layer = f"{row['layer']}, " if row.get("layer") else ""
    return f"{layer}{row['tokens']}, {row['probe']}"


VIEW: Final = View(result_table, best_row, CLAIMS, result_effects, summarize, draw)
