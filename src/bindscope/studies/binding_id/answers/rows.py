"""From log-probabilities to rows of the tables: shares, changes and effects.

Log-probabilities of a trial are (rows, queries, candidates); the row, a pair of contexts, is the
unit of every interval and test. What is expected are places of candidates, int64 (rows or 1,
queries), `NONE` where nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from scipy.special import bdtr

from bindscope.core.array_types import Doubles, Integers
from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.statistics.lower_limits import p_above, pessimistic_means
from bindscope.statistics.multiple_tests import holm
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.binding_id.experiment import Experiment
from bindscope.studies.binding_id.names import NO_EFFECT, label_role
from bindscope.studies.binding_id.plans import Expectation, Trial
from bindscope.tables.rows import Row, interval_columns

NONE = -1  # where no item is expected
_TAIL = 0.025  # beyond each end of an interval
_COLUMNS = 64  # that are resampled together: 10,000 resamples of them are 5 MB


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one experiment, by trial; trial 0 is the control.

    Natural log-probabilities are float64 (n, trials, questions, candidates).
    """

    logs: Doubles
    expected: Sequence[Expectation]

    def places(self, trial: int) -> Integers:
        """Return the numbers of a trial's expected candidates, int64 (1, questions)."""
        questions = range(self.logs.shape[2])
        return np.array([[self.expected[trial].get(question, NONE) for question in questions]])


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

    They are `change` with its interval, `p_value`, `p_adjusted` (by Holm's procedure over all, the
    comparisons of an experiment: one figure), and `p_within` and `p_beyond` of `change_tests`.
    """
    p_values = [sign_test(after, before) for after, before in pairs]
    differences = [after - before for after, before in pairs]
    changes = [
        change
        for _, alike in groupby(differences, key=len)
        for change in paired_changes(np.stack(list(alike), axis=1), samples, seed)
    ]
    p_adjusted = [float(p) for p in holm(p_values)] if p_values else []
    return [
        {
            **interval_columns("change", change),
            "p_value": p,
            "p_adjusted": adjusted,
            **change_tests(column),
        }
        for change, p, adjusted, column in zip(
            changes, p_values, p_adjusted, differences, strict=True
        )
    ]


def change_tests(differences: Doubles) -> dict[str, float]:
    """Return one-sided p-values that the mean of differences (n,) is small, and that it is not.

    `p_within`: it is between plus and minus `NO_EFFECT`; `p_beyond`: outside. A bootstrap is too
    sure where few rows change; Gaffke's limit counts the largest change that there may be.
    """
    rises, falls = differences, -differences
    return {
        "p_within": max(p_above(side, -1.0, -NO_EFFECT) for side in (rises, falls)),
        "p_beyond": min(p_above(side, -1.0, NO_EFFECT) for side in (rises, falls)),
    }


def paired_changes(differences: Doubles, samples: int, seed: int) -> list[Interval]:
    """Return the means of paired differences of shares, (n, q), between Gaffke's limits.

    They are as wide with one changed row as with none, or wider; a bootstrap is narrower.
    """
    intervals = []
    for start in range(0, differences.shape[1], _COLUMNS):
        columns = differences[:, start : start + _COLUMNS]
        worst = np.full(columns.shape[1], -1.0)
        lower, upper = (
            np.quantile(pessimistic_means(side, worst, samples, seed), _TAIL, axis=0)
            for side in (columns, -columns)
        )
        means = columns.mean(axis=0)
        # Sums of weights are rounded, and few draws may leave the mean outside.
        lows, highs = np.clip(lower, -1.0, means), np.clip(-upper, means, 1.0)
        intervals += list(map(Interval, means.tolist(), lows.tolist(), highs.tolist()))
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


def trial_rows(
    experiment: Experiment, answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> Iterator[Row]:
    """Yield the rows of each trial: a summary, and of some experiments one per cell.

    The first trial is the control. A row's `trial` is its number.
    """
    effects = _effects(experiment, answers, trials, samples, seed)
    tests = [{}, *_changes(answers, samples, seed)]
    for i, (effect, test) in enumerate(zip(effects, tests, strict=True)):
        yield {
            "trial": i,
            **_summary(answers, i, samples, seed),
            **interval_columns("effect", effect),
            **test,
        }
        for row in _cells(answers, i, samples, seed) if experiment.cells else ():
            yield {"trial": i, **row}


def _summary(answers: Answers, trial: int, samples: int, seed: int) -> Row:
    """Return what a trial's answers are, over all questions that something is expected of."""
    logs, expected = answers.logs[:, trial], answers.places(trial)
    per_row, leads = right(logs, expected), lead(logs, expected)
    means = resampled_means(leads[:, None], samples, seed)[:, 0]
    return {
        "query": "all",
        "candidate": "expected",
        "expected": 1,
        "n_rows": len(logs),
        **interval_columns("share", share(per_row)),
        **interval_columns("lead", Interval(float(leads.mean()), *interval(means))),
        **interval_columns("own", share(right(logs, answers.places(0)))),
    }


def _changes(answers: Answers, samples: int, seed: int) -> list[Row]:
    """Compare the expected answers of each trial but the control with the control's."""
    pairs = []
    for i in range(1, len(answers.expected)):
        expected = answers.places(i)
        pairs.append((right(answers.logs[:, i], expected), right(answers.logs[:, 0], expected)))
    return comparisons(pairs, samples, seed)


def _effects(
    experiment: Experiment, answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> list[Interval | None]:
    """Return normalized effects: of some layers or heads against all of them, else the control."""
    data = [trial.columns(len(trial.expected)) for trial in trials]
    whole: dict[tuple[str, str], int] = {}
    for i, row in enumerate(data):
        if row["first_layer"] is None and row["head"] is None:
            whole.setdefault((row["how"], row["groups"]), i)  # the first has a frozen context
    effects = []
    for i, row in enumerate(data):
        in_part = row["first_layer"] is not None or row["head"] is not None
        if in_part or (experiment.of_whole and i):
            reference = whole[row["how"], row["groups"]]
            effects.append(share_of_way(answers, i, reference, samples, seed))
        else:
            effects.append(normalized_effect(answers, i, answers.places(i), samples, seed))
    return effects


def _cells(answers: Answers, trial: int, samples: int, seed: int) -> Iterator[Row]:
    """Yield a row per question and candidate of a trial."""
    logs, expected = answers.logs[:, trial], answers.places(trial)[0]
    things = len(answers.expected[0])
    best, flat = chosen(logs), logs.reshape(len(logs), -1)
    means = resampled_means(flat, samples, seed).reshape(-1, *logs.shape[1:])
    for i, j in np.ndindex(*logs.shape[1:]):
        mean = Interval(float(logs[:, i, j].mean()), *interval(means[:, i, j]))
        yield {
            "query": label_role("O", i, things),
            "candidate": label_role("I", j, things),
            "expected": int(expected[i] == j),
            "n_rows": len(logs),
            **interval_columns("mean_logprob", mean),
            **interval_columns("share", share(best[:, i, j])),
        }
