"""The verdict in words, for the figure and the report."""

from __future__ import annotations

from bindscope.report.chapter import number
from bindscope.studies.together.claims import Judged


def counted(n: int, noun: str) -> str:
    """Write a number of things."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def correlation(found: Judged) -> str:
    """Write the rank correlation with its interval, where it has them."""
    effect = found.judgment.effect
    value, low, high = map(number, (effect.value, effect.low, effect.high))
    ends = f" ({low} to {high})" if low and high else ""
    return f"{value}{ends}" if value else "none"


def in_short(found: Judged) -> str:
    """Say on one line what was found: correlation, number of models, verdict."""
    of = f"{counted(found.n_models, 'model')} in {counted(found.n_groups, 'group')}"
    return f"rank correlation {correlation(found)}, {of}: {found.judgment.verdict}"
