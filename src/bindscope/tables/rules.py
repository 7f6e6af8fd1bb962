"""Rules and orders that tables of several studies have; a null never breaks a numeric rule."""

from __future__ import annotations

from typing import Final

import pandas as pd

from bindscope.tables.schema import RowRule

TOLERANCE: Final = 1e-6


def layer_number(layers: pd.Series[str]) -> pd.Series[float]:
    """Turn layer names into numbers that sort: `none` comes first, `final` last."""
    words = {"none": "-1", "final": "inf"}
    return pd.to_numeric(layers.replace(words)).astype(float)


def near(a: pd.Series[float], b: pd.Series[float]) -> pd.Series[bool]:
    """Whether numbers are equal up to rounding, row by row."""
    return ((a - b).abs() <= TOLERANCE) | a.isna() | b.isna()


def is_difference(name: str, minuend: str, subtrahend: str) -> RowRule:
    """Return the rule that a column is the difference of two others."""
    return (
        f"{name} = {minuend} - {subtrahend}",
        lambda frame: near(frame[name], frame[minuend] - frame[subtrahend]),
    )


def is_sum(name: str, first: str, second: str) -> RowRule:
    """Return the rule that a column is the sum of two others."""
    return f"{name} = {first} + {second}", lambda frame: near(
        frame[name], frame[first] + frame[second]
    )


def is_ratio(name: str, part: str, whole: str) -> RowRule:
    """Return the rule that a column is one column over another."""
    return f"{name} = {part} / {whole}", lambda frame: near(frame[name] * frame[whole], frame[part])
