"""Rows of the study's tables: a number, and a quantity without strata."""

from __future__ import annotations

from math import isfinite
from typing import Any

Row = dict[str, Any]


def number(value: float) -> float | None:
    """Return a number, None where there is none."""
    return float(value) if isfinite(value) else None


def scalar(
    measure: str, value: float, n_scenes: int, n_skipped: int, chance: float | None = None
) -> Row:
    """Return a row of a number without strata, floors or interval."""
    return {
        "measure": measure, "stratum": "all", "value": number(value), "chance": chance,
        "n_scenes": n_scenes, "n_skipped": n_skipped,
    }  # fmt: skip
