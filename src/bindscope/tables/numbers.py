"""Numbers as text: one way to write each kind, on the page, in figures and in the terminal.

A lower bound is rounded down and its interval outwards, so that both stay true; all else is rounded
to the nearest. Zero has no sign, and a minus is a real one (U+2212).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, floor, isnan

DECIMALS = 2  # of a number in bits: with fewer, 9.48 of 9.49 is all
SMALLEST_P = 0.001
_MINUS_ZERO = re.compile(r"-(?=0(\.0*)?\s?%?$)")


def number(value: float | None, form: str = ".2f") -> str:
    """Write a number in a Python format; None and NaN are empty, 0 has no minus."""
    if value is None or isnan(value):
        return ""
    text = _MINUS_ZERO.sub("", format(value, form))
    return text.replace("%", "\u00a0%").replace("-", "\u2212")


def percent(share: float) -> str:
    """Write a share as a whole percent: "75 %"."""
    return number(share, ".0%")


def percentage_points(difference: float, decimals: int = 1) -> str:
    """Write a difference of shares in percentage points, with its sign: "+2.5"; 0 has none."""
    text = number(100 * difference, f"+.{decimals}f")
    return text if text.strip("+0.") else text.removeprefix("+")


def p_value(value: float | None) -> str:
    """Write a p-value: "< 0.001", "0.012", "0.25"."""
    if value is None or isnan(value):
        return ""
    if value < SMALLEST_P:
        return f"<\u00a0{SMALLEST_P}"
    return number(value, ".3f" if value < 0.1 else ".2f")


def with_interval(ends: Iterable[float], form: str = ".2f", unit: str = "") -> str:
    """Write a number and, where it has one, its interval: "0.32 (0.11 to 0.48)"."""
    value, low, high = (number(end, form) for end in ends)
    return f"{value}{unit} ({low} to {high})" if low and high else f"{value}{unit}"


def at_least(value: float, decimals: int = DECIMALS) -> str:
    """Write a lower bound rounded down, so that it stays one."""
    scale = 10.0**decimals
    return number(floor(value * scale + 1e-6) / scale, f".{decimals}f")


def at_most(value: float, decimals: int = DECIMALS) -> str:
    """Write an upper end, rounded up."""
    scale = 10.0**decimals
    return number(ceil(value * scale - 1e-6) / scale, f".{decimals}f")


def between(low: float, high: float, decimals: int = DECIMALS) -> str:
    """Write the ends of an interval, rounded outwards: what is inside stays so, written as is."""
    return f"{at_least(low, decimals)} to {at_most(high, decimals)}"
