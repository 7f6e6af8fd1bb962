"""Which models give more of a part than others: groups compared by intervals over training seeds.

The seeds of two groups are not paired, so the difference has Welch's interval. The intervals of one
list hold together with 95 % (Bonferroni): of m comparisons each is made at 1 - 0.05 / m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.means import welch_interval
from bindscope.statistics.verdict import verdict
from bindscope.studies.binding_information.quotes import Quotes
from bindscope.studies.binding_information.views import name_order

LEVEL = 0.95


class Comparison(NamedTuple):
    """How much more is read of one group than of another; bits, with an interval over seeds.

    Attributes
    ----------
    more, less
        Names of the two groups; the first has the larger mean.
    difference, low, high
        Of the lower bounds.
    told_apart
        Whether the interval excludes 0.
    """

    more: str
    less: str
    difference: float
    low: float
    high: float
    told_apart: bool


def compared(
    found: Quotes, dataset: str, tokens: str, bound: str, models: Sequence[str] = ()
) -> list[Comparison]:
    """Compare every two groups of two training seeds or more.

    Parameters
    ----------
    found
        What may be quoted, of one layer per model.
    dataset, tokens, bound
        Where, and which lower bound.
    models
        Names of groups in the configuration's order.

    Returns
    -------
    list of Comparison
        From the largest mean to the smallest; empty where fewer than two groups have two seeds.
    """
    single = found.single
    here = single[(single["dataset"] == dataset) & (single["tokens"] == tokens)]
    values = {
        str(name): part[bound].to_numpy(float)
        for name, part in here.groupby("group", sort=False)
        if len(part) > 1 and part[bound].notna().all()
    }
    names = sorted(name_order(values, models), key=lambda name: -values[name].mean())
    pairs = list(combinations(names, 2))
    level = 1 - (1 - LEVEL) / max(1, len(pairs))
    return [_comparison(more, less, values, level) for more, less in pairs]


def _comparison(
    more: str, less: str, values: Mapping[str, NDArray[np.float64]], level: float
) -> Comparison:
    found = welch_interval(values[more], values[less], level)
    return Comparison(more, less, *found, verdict(found.low, found.high, "above") == "holds")


def told_apart(comparisons: Sequence[Comparison]) -> list[str]:
    """Say of which groups more is read than of which others; each group once, the best first."""
    lines = []
    for more in dict.fromkeys(c.more for c in comparisons):
        less = [c.less for c in comparisons if c.more == more and c.told_apart]
        if less:
            lines.append(f"{more} than in {listed(less)}")
    return lines


def not_told_apart(comparisons: Sequence[Comparison]) -> list[str]:
    """List pairs that these seeds do not tell apart."""
    return [f"{c.more} and {c.less}" for c in comparisons if not c.told_apart]


def listed(names: Sequence[str]) -> str:
    """Write names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
