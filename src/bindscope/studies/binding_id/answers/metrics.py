"""From log-probabilities to numbers: shares, calibration, changes against the control, effects.

All arrays are (rows, trials, queries, candidates); the row, a pair of contexts, is the unit of
every interval and test.
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
_COLUMNS = 64  # that are resampled together: 10,000 resamples of them are 5 MB


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one experiment, by trial; trial 0 is the control.

    Natural log-probabilities are float64 (n, trials, queries, candidates), `expected` says query ->
    candidate of each trial. A query `null` asks about what is not there.
    """

    logs: Doubles
    queries: Sequence[str]
    candidates: Sequence[str]
    expected: Sequence[Mapping[str, str]]

    @property
    def in_context(self) -> bool:
        """Whether all candidates stand in the base's context: only then calibrating is of use."""
        return not any(name.endswith("'") for name in self.candidates)

    @property
    def real(self) -> list[int]:
        """Places of the queries about things."""
        return [i for i, name in enumerate(self.queries) if name != "null"]


def chosen(logs: Doubles) -> Doubles:
    """Return who is the most probable candidate, 1 for it and 0 for the others.

    Candidates that tie share the 1, so that a model that tells nothing apart is at chance.
    """
    best = logs >= logs.max(axis=-1, keepdims=True)
    return np.asarray(best / best.sum(axis=-1, keepdims=True), np.float64)


def median_calibrated(answers: Answers) -> Doubles:
    """Take off each candidate's median over queries and rows, per trial (arXiv 2505.22200's code).

    Models prefer some roles, the last one for one; what is left is what the query adds.
    """
    real_logs = answers.logs[:, :, answers.real]
    return np.asarray(answers.logs - np.median(real_logs, axis=(0, 2), keepdims=True), np.float64)


def null_calibrated(answers: Answers) -> Doubles | None:
    """Take off each candidate's median answer to the null query (arXiv 2310.17191, Table 1)."""
    if "null" not in answers.queries:
        return None
    null = answers.logs[:, :, [list(answers.queries).index("null")]]
    return np.asarray(answers.logs - np.median(null, axis=0, keepdims=True), np.float64)


def share(per_row: Doubles) -> Interval:
    """Return the mean of numbers in [0, 1], one per row, with Wilson's interval of as many trials.

    Where a row holds several answers its mean counts as one trial, which is conservative.
    """
    mean, n = float(per_row.mean()), len(per_row)
    low, high = wilson_interval(min(max(mean, 0.0), 1.0) * n, n)
    return Interval(mean, float(low), float(high))


def right(answers: Answers, logs: Doubles, trial: int, expected: Mapping[str, str]) -> Doubles:
    """Return which share of the expected answers each row gives in a trial, float64 (n,)."""
    best = chosen(logs[:, trial])
    cells = [
        best[:, answers.queries.index(query), answers.candidates.index(candidate)]
        for query, candidate in expected.items()
    ]
    return np.asarray(np.mean(cells, axis=0), np.float64)


def swaps(answers: Answers, trial: int, expected: Mapping[str, str]) -> tuple[Doubles, float]:
    """Return which share of its answers each row gives to another thing there, float64 (n,).

    Those are the illusory conjunctions: the right kind of answer, there to be seen, with the wrong
    thing. What is there after an intervention are the expected answers of all things. Beside it
    which part of the wrong candidates are such ones: what guessing gives of every error.
    """
    there = [answers.candidates.index(name) for name in dict.fromkeys(expected.values())]
    best = chosen(answers.logs[:, trial])
    swapped = []
    for query, candidate in expected.items():
        others = [place for place in there if answers.candidates[place] != candidate]
        swapped.append(best[:, answers.queries.index(query), others].sum(axis=1))
    guessed = (len(there) - 1) / (len(answers.candidates) - 1)
    return np.asarray(np.mean(swapped, axis=0), np.float64), guessed


def lead(answers: Answers, trial: int, expected: Mapping[str, str]) -> Doubles:
    """Return by how much the expected candidate leads the mean of the others, nats (n,)."""
    leads = []
    for query, candidate in expected.items():
        query_logs = answers.logs[:, trial, answers.queries.index(query)]
        place = answers.candidates.index(candidate)
        leads.append(query_logs[:, place] - np.delete(query_logs, place, axis=1).mean(axis=1))
    return np.asarray(np.mean(leads, axis=0), np.float64)


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


def effects(
    answers: Answers, references: Sequence[int | None], samples: int, seed: int
) -> list[Interval | None]:
    """Return each trial's lead as a share of the way from the control's to a reference trial's.

    Numerator and denominator are resampled together. None without a reference, and where it cannot
    be told from the control.
    """
    intervals: list[Interval | None] = []
    for trial, reference in enumerate(references):
        if reference is None:
            intervals.append(None)
            continue
        expected = answers.expected[trial]
        before, after, full = (lead(answers, t, expected) for t in (0, trial, reference))
        columns = np.stack([after - before, full - before], axis=1)
        means = resampled_means(columns, samples, seed)
        low, _ = interval(means[:, 1])
        if low <= 0:
            intervals.append(None)
            continue
        value = float(columns[:, 0].mean() / columns[:, 1].mean())
        intervals.append(Interval(value, *interval(means[:, 0] / means[:, 1])))
    return intervals


def normalized_effect(
    answers: Answers, trial: int, expected: NDArray[np.int64], samples: int, seed: int
) -> Interval | None:
    """Return how far a trial moves the lead of expected answers, as a share of the control's lead.

    0: the expected items lead as they do in the control, or not at all where the control already
    answers with them. 1: they lead as clearly as the things' own items lead in the control. A model
    that weighs two mechanisms in every answer is between, though its most probable item is always
    that of the stronger one. `expected` are places of candidates, int64 (n, queries), negative
    where none is expected. None where the control does not lead with the things' own items.
    """
    rows = (expected >= 0).any(axis=1)
    if not rows.any():
        return None
    base_items = np.full_like(expected, -1)
    for query, candidate in answers.expected[0].items():
        base_items[:, answers.queries.index(query)] = answers.candidates.index(candidate)
    columns = np.stack(
        [
            _lead_of(answers.logs[:, trial], expected), _lead_of(answers.logs[:, 0], expected),
            _lead_of(answers.logs[:, 0], base_items),
        ],
        axis=1,
    )[rows]  # fmt: skip
    means = resampled_means(columns, samples, seed)
    if interval(means[:, 2])[0] <= 0:
        return None

    def ratio(means: Doubles) -> Doubles:
        after, before, full = means.T
        start = np.minimum(before, 0)
        return np.asarray((after - start) / (full - start), np.float64)

    value = float(ratio(columns.mean(axis=0)[None])[0])
    low, high = interval(ratio(means))
    return Interval(value, min(low, value), max(high, value))


def _lead_of(logs: Doubles, expected: NDArray[np.int64]) -> Doubles:
    """Return by how much expected candidates lead the mean of the others, nats (n,); else 0."""
    expected_logs = np.take_along_axis(logs, np.maximum(expected, 0)[..., None], axis=-1)[..., 0]
    others = (logs.sum(axis=-1) - expected_logs) / (logs.shape[-1] - 1)
    there = expected >= 0
    return np.asarray(
        ((expected_logs - others) * there).sum(axis=1) / np.maximum(there.sum(axis=1), 1),
        np.float64,
    )


def ends(name: str, estimate: Interval | None) -> dict[str, Any]:
    """Return the columns of a number with its interval."""
    values: tuple[float | None, ...] = (None, None, None) if estimate is None else estimate
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(_number, values), strict=True))


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
