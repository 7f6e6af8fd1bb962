"""From log-probabilities to numbers: shares, changes against the control, effects.

Log-probabilities of a trial are (rows, queries, candidates); the row, a pair of contexts, is the
unit of every interval and test. What is expected are places of candidates, int64 (rows or 1,
queries), `NONE` where nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.statistics.multiple_tests import holm
from bindscope.statistics.proportions import wilson_interval

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
NONE = -1  # where no item is expected
_COLUMNS = 64  # that are resampled together: 10,000 resamples of them are 5 MB


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one experiment, by trial; trial 0 is the control.

    Natural log-probabilities are float64 (n, trials, queries, candidates), `expected` says query ->
    candidate of each trial.
    """

    logs: Doubles
    queries: Sequence[str]
    candidates: Sequence[str]
    expected: Sequence[Mapping[str, str]]

    def places(self, trial: int) -> Integers:
        """Return the places of a trial's expected candidates, int64 (1, queries)."""
        expected = [self.expected[trial].get(query) for query in self.queries]
        return np.array([[NONE if c is None else self.candidates.index(c) for c in expected]])


def chosen(logs: Doubles) -> Doubles:
    """Return who is the most probable candidate, 1 for it and 0 for the others.

    Candidates that tie share the 1, so that a model that tells nothing apart is at chance.
    """
    best = logs >= logs.max(axis=-1, keepdims=True)
    return np.asarray(best / best.sum(axis=-1, keepdims=True), np.float64)


def share(per_row: Doubles) -> Interval:
    """Return the mean of numbers in [0, 1], one per row, with Wilson's interval of as many trials.

    Where a row holds several answers its mean counts as one trial, which is conservative.
    """
    mean, n = float(per_row.mean()), len(per_row)
    low, high = wilson_interval(min(max(mean, 0.0), 1.0) * n, n)
    return Interval(mean, float(low), float(high))


def _mean_expected(values: Doubles, expected: Integers) -> Doubles:
    """Return the mean over the queries that something is expected of, (n,); 0 where of none."""
    there = np.broadcast_to(expected != NONE, values.shape)
    return np.asarray((values * there).sum(axis=1) / np.maximum(there.sum(axis=1), 1), np.float64)


def _select(values: Doubles, expected: Integers) -> Doubles:
    """Return the values (n, queries, candidates) of expected candidates, (n, queries)."""
    index = np.broadcast_to(np.maximum(expected, 0), values.shape[:2])
    return np.take_along_axis(values, index[..., None], axis=-1)[..., 0]


def right(logs: Doubles, expected: Integers) -> Doubles:
    """Return which share of the expected answers each row gives, float64 (n,)."""
    return _mean_expected(_select(chosen(logs), expected), expected)


def lead(logs: Doubles, expected: Integers) -> Doubles:
    """Return by how much expected candidates lead the mean of the others, nats (n,)."""
    leading = _select(logs, expected)
    others = (logs.sum(axis=-1) - leading) / (logs.shape[-1] - 1)
    return _mean_expected(leading - others, expected)


def comparisons(
    pairs: Sequence[tuple[Doubles, Doubles]], samples: int, seed: int
) -> list[dict[str, Any]]:
    """Return the columns of paired comparisons of shares, after and before, (rows,) each.

    They are `change` with its interval, `p_value`, and `p_adjusted`: by Holm's procedure over all,
    the comparisons of an experiment (one figure).
    """
    p_values = [sign_test(after, before) for after, before in pairs]
    changes = [
        change
        for _, alike in groupby((after - before for after, before in pairs), key=len)
        for change in paired_changes(np.stack(list(alike), axis=1), samples, seed)
    ]
    p_adjusted = [float(p) for p in holm(p_values)] if p_values else []
    return [
        {**ends("change", change), "p_value": p, "p_adjusted": adjusted}
        for change, p, adjusted in zip(changes, p_values, p_adjusted, strict=True)
    ]


def paired_changes(differences: Doubles, samples: int, seed: int) -> list[Interval]:
    """Return the means of paired differences of shares, (n, q), with their bootstrap intervals.

    Where rows all change alike, Wilson's interval of as many rows takes the place of no width.
    """
    width = float(wilson_interval(0, len(differences))[1])
    intervals = []
    for start in range(0, differences.shape[1], _COLUMNS):
        columns = differences[:, start : start + _COLUMNS]
        for column, drawn in zip(columns.T, resampled_means(columns, samples, seed).T, strict=True):
            value, (low, high) = float(column.mean()), interval(drawn)
            if high - low == 0:
                low, high = max(value - width, -1.0), min(value + width, 1.0)
            intervals.append(Interval(value, low, high))
    return intervals


def sign_test(after: Doubles, before: Doubles) -> float:
    """Return the exact two-sided p-value that as many rows rise as fall; 1 where none moves."""
    up, down = int((after > before).sum()), int((after < before).sum())
    return min(1.0, 2.0 * float(bdtr(min(up, down), up + down, 0.5)))  # stats takes 1 s to import


def share_of_way(
    answers: Answers, trial: int, reference: int, samples: int, seed: int
) -> Interval | None:
    """Return a trial's lead as a share of the way from the control's to a reference trial's.

    The way goes up, or down where tokens are hidden. None where there is none: where the reference
    cannot be told from the control.
    """
    expected = answers.places(trial)
    before, after, full = (lead(answers.logs[:, t], expected) for t in (0, trial, reference))
    columns = np.stack([after - before, full - before], axis=1)
    means = resampled_means(columns, samples, seed)
    low, high = interval(means[:, 1])
    if low <= 0 <= high:
        return None
    up = np.sign(low)
    part, way = means[up * means[:, 1] > 0].T  # nearly all of them
    value = float(columns[:, 0].mean() / columns[:, 1].mean())
    return Interval(value, *interval(part / way))


def normalized_effect(
    answers: Answers, trial: int, expected: Integers, samples: int, seed: int
) -> Interval | None:
    """Return how far a trial moves the lead of expected answers, as a share of the control's lead.

    0: the expected items lead as they do in the control, or not at all where the control already
    answers with them. 1: they lead as clearly as the things' own items lead in the control. A model
    that weighs two mechanisms in every answer is between, though its most probable item is always
    that of the stronger one. `expected` are places of candidates, int64 (n or 1, queries). None
    where nothing is expected, and where the control does not lead with the things' own items.
    """
    after, control = answers.logs[:, trial], answers.logs[:, 0]
    rows = np.broadcast_to((expected != NONE).any(axis=1), len(control))
    if not rows.any():
        return None
    leads = (lead(after, expected), lead(control, expected), lead(control, answers.places(0)))
    columns = np.stack(leads, axis=1)[rows]
    means = resampled_means(columns, samples, seed)
    if interval(means[:, 2])[0] <= 0:
        return None

    def ratio(means: Doubles) -> Doubles:
        after, before, full = means.T
        start = np.minimum(before, 0)
        return np.asarray((after - start) / (full - start), np.float64)

    value = float(ratio(columns.mean(axis=0)[None])[0])
    low, high = interval(ratio(means[means[:, 2] > 0]))  # nearly all of them
    return Interval(value, min(low, value), max(high, value))


def ends(name: str, estimate: Interval | None) -> dict[str, Any]:
    """Return the columns of a number with its interval."""
    values: tuple[float | None, ...] = (None, None, None) if estimate is None else estimate
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(_number, values), strict=True))


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
