"""The table `same_object_geometry`: a row per quantity, in long form."""

from __future__ import annotations

import pandas as pd

from bindscope.studies.same_object.columns import NAMES
from bindscope.studies.same_object.geometry.quantities import QUANTITIES
from bindscope.tables.rules import TOLERANCE, layer_number
from bindscope.tables.schema import KEYS, Column, RowTable, TableSchema, label

_SOURCE = "`studies.same_object.geometry`"


def _number(name: str, meaning: str) -> Column:
    return Column(name, "float64", "column `unit`", meaning, _SOURCE, "allowed")


def _reasons(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["value"].notna() | (frame["reason"] != "")


def _ordered(frame: pd.DataFrame) -> pd.Series[bool]:
    low, high = frame["low"], frame["high"]
    return (low <= high + TOLERANCE) | (low.isna() & high.isna())


def _units(frame: pd.DataFrame) -> pd.Series[bool]:
    return frame["unit"] == frame["quantity"].map({name: q.unit for name, q in QUANTITIES.items()})


SCHEMA = TableSchema(
    name="same_object_geometry",
    version=1,
    description="What a quadratic probe's scores and the tokens it reads are like on the test "
    "scenes, a number a row.\n\n"
    + "\n".join(f"- `{name}`: {q.meaning}" for name, q in QUANTITIES.items()),
    columns=(
        *NAMES[:4],
        label("quantity", "What is measured; see above.", _SOURCE, values=tuple(QUANTITIES)),
        label("at", "Layer, distance in patches, direction, component or method that the quantity "
              "is of; empty where there is one number.", _SOURCE),
        _number("value", "The number."),
        _number("low", "Lower end of the 95 % bootstrap interval over test images (of residuals: "
                "over groups of scenes)."),
        _number("high", "Upper end."),
        label("unit", "Its unit; empty of numbers without one.", _SOURCE),
        label("reason", "Why there is no number, or what is to be known of it.", _SOURCE),
        *KEYS,
    ),
    key=("dataset", "model", "layer", "probe", "quantity", "at"),
    rules=(
        ("a missing value has a reason", _reasons),
        ("intervals have two ends, low before high", _ordered),
        ("the unit is that of the quantity", _units),
    ),
    order={"layer": layer_number},
)  # fmt: skip
GEOMETRY = RowTable(SCHEMA, "rows")
