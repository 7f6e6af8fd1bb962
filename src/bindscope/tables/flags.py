"""The column `flags` of tables: what a reader should know before trusting a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pandas as pd

# A fit with one of these did not end well: it is taken only where there is no other.
BAD_ENDS: Final = ("collapsed", "diverged", "not_converged")
# A row with one of these is not quoted: the last is above a known truth.
UNUSABLE: Final = (*BAD_ENDS, "above_truth")


def flag_list(flags: str) -> list[str]:
    """Split the text of the column."""
    return flags.split(";") if flags else []


def flag_text(flags: Iterable[str]) -> str:
    """Return the text of the column: sorted, once each, joined by `;`."""
    return ";".join(sorted(set(flags)))


def has_flag(table: pd.DataFrame, flag: str) -> pd.Series[bool]:
    """Return which rows of a table carry a flag."""
    return table["flags"].map(lambda flags: flag in flag_list(flags)).astype(bool)


def unusable(flags: str) -> tuple[str, ...]:
    """Return those of a row's flags that forbid to quote it."""
    return tuple(flag for flag in flag_list(flags) if flag in UNUSABLE)
