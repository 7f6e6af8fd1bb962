"""How a result of `bindscope.concepts` is shown: table, row to quote, claims, plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bindscope.arrays.result import Result, Summary, View, claims_line
from bindscope.figures.facets import dots
from bindscope.figures.style import styled
from bindscope.statistics.claims import Effect
from bindscope.studies.concepts.claims import CLAIMS, ESTIMATOR, effects
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA, OF_A_RUN
from bindscope.tables.numbers import number, with_interval
from bindscope.tables.rows import Row, rows_with
from bindscope.tables.schema import frame_of, label

# Analysis -> which of its rows are quoted, in the order of a summary.
_QUOTED: Final[dict[str, dict[str, Any]]] = {
    "recognition": {},
    "decomposition": {"variant": ESTIMATOR, "level": 1},
    "editing": {"variant": ESTIMATOR, "strength": 1.0},
    "approximators": {"split": "test"},
}
_ARRAYS: Final = "arrays"


def result_table(rows: Mapping[str, Sequence[Row]]) -> pd.DataFrame:
    """Return the rows of all analyses, with the columns of `concepts` that arrays can have."""
    columns = [column for column in CONCEPTS_SCHEMA.columns if column.name not in OF_A_RUN]
    if "layer" in rows["concepts"][0]:
        columns.insert(0, label("layer", "", ""))
    return frame_of(rows["concepts"], replace(CONCEPTS_SCHEMA, columns=tuple(columns)))


def quotable(table: pd.DataFrame) -> pd.DataFrame:
    """Return recognition of pairs that share no value: per layer and analysis, rows to quote.

    Edits have strength 1, vectors are of objects and by least squares, scenes are held out.
    """
    rows = rows_with(table, measure="object", stratum="none")
    layers = (
        [rows_with(rows, layer=name) for name in table["layer"].unique()]
        if ("layer" in table)
        else [rows]
    )
    return pd.concat(
        rows_with(layer, analysis_kind=kind, **values)
        for layer in layers
        for kind, values in _QUOTED.items()
    )


def best_row(table: pd.DataFrame) -> pd.Series[Any]:
    """Return what probes recognize in the last layer given; without probes its first analysis."""
    rows = quotable(table)
    rows = rows if len(rows) else table
    if "layer" in rows:
        rows = rows[rows["layer"] == rows["layer"].iloc[-1]]
    return rows.iloc[0]


def result_effects(table: pd.DataFrame) -> list[Effect]:
    """Return what the table measures of the study's claims, layer by layer."""
    names = "layer " + table["layer"] if "layer" in table else pd.Series("embeddings", table.index)
    about: dict[str, Any] = {
        "analysis": _ARRAYS,
        "dataset": _ARRAYS,
        "embedding": names,
        "vectors": "planted",
        "trained_coverage": np.nan,
        "trained_seed": np.nan,
    }
    return [
        replace(effect, where=effect.where.replace(f" on {_ARRAYS}", ""))
        for effect in effects({"concepts": table.assign(**about)})
    ]


def summarize(result: Result) -> Summary:
    """Return the recognition of pairs as text: a row per analysis, of several layers one column."""
    rows = quotable(result.table)
    first = result.table.iloc[0]
    cells = [
        {
            "analysis": _title(row),
            "layer": row.get("layer", ""),
            "recognized": f"{_percent(row['value'])}, {_gain(row)}",
        }
        for row in rows.to_dict("records")
    ]
    frame = pd.DataFrame(cells, columns=["analysis", "layer", "recognized"])
    wide = frame.pivot(index="analysis", columns="layer", values="recognized")
    wide = wide.reindex(index=frame["analysis"].unique(), columns=frame["layer"].unique())
    wide.columns = [f"layer {name}" if name else "recognized" for name in wide.columns]
    heading = (
        f"Concepts: scenes of {first['n_slots']} of {first['n_objects']} objects without a shared "
        "value, % recognized, and points above the best guess from values alone (95 % CI)"
    )
    quoted = result.best.to_dict()
    closing = [claims_line(result.claims)]
    if quoted["measure"] == "object":
        layer = f"layer {quoted['layer']}, " if "layer" in quoted else ""
        closing.insert(
            0, f"To quote: {layer}{_title(quoted)}: {_gain(quoted)} points above that guess."
        )
    return Summary(heading, wide.reset_index().fillna("-"), tuple(closing))


def _title(row: Mapping[Any, Any]) -> str:
    titles = {
        "recognition": f"embedding, {row['variant']}",
        "editing": f"edit of feature group {row['concept_type']}",
        "approximators": f"new objects, {row['variant']}",
    }
    return titles.get(row["analysis_kind"], "sum of object vectors")


def _percent(value: float) -> str:
    return "-" if pd.isna(value) else f"{number(100 * value, '.1f')} %"


def _gain(row: Mapping[Any, Any]) -> str:
    gain, low, high = (100 * row[name] for name in ("gain", "gain_low", "gain_high"))
    if pd.isna(gain):
        return "-"
    return with_interval((gain, low, high), "+.1f")


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the recognition of pairs by analysis, a panel per layer, and the best guess."""
    rows = quotable(table)
    layer = "layer " + rows["layer"] if "layer" in rows else ""
    rows = rows.assign(name=[_title(row) for row in rows.to_dict("records")], panel=layer)
    percent = ("value", "value_low", "value_high", "bag_of_concepts_guess")
    rows[["value", "low", "high", "rival"]] = 100 * rows[[*percent]].to_numpy(float)
    return dots(rows, "% of pairs recognized", "recognized", "best guess from values")


VIEW: Final = View(result_table, best_row, CLAIMS, result_effects, summarize, draw)
