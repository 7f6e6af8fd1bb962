"""From log-probabilities to rows of the tables: shares, changes, effects, and accounts of binding.

Log-probabilities of a trial are (rows, queries, candidates); the row, a pair of contexts, is the
unit of every interval and test. What is expected are places of candidates, int64 (rows or 1,
queries), `NONE` where nothing is.

Which item an account of binding predicts depends on what is edited and on what is asked. So an
exact oracle of the account (no noise, look-ups that find nothing where nothing matches) answers the
same questions; where it prefers no item, the account predicts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.statistics.lower_limits import p_above, pessimistic_means
from bindscope.statistics.multiple_tests import holm
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.binding_id.experiments.estimates import Effects, Estimates, Key, batches
from bindscope.studies.binding_id.experiments.plans import Batch, Plan, Trial
from bindscope.studies.binding_id.names import ACCOUNTS, ALL, NO_EFFECT
from bindscope.studies.binding_id.oracle import CELLS, Mechanism, Oracle
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Pairs, Rule, Words

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
NONE = -1  # where no item is expected
_TAIL = 0.025  # beyond each end of an interval
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

    They are `change` with its interval, `p_value`, `p_adjusted` (by Holm's procedure over all, the
    comparisons of an experiment: one figure), and `p_within` and `p_beyond` of `change_tests`.
    """
    p_values = [sign_test(after, before) for after, before in pairs]
    differences = [after - before for after, before in pairs]
    changes = [
        change for _, alike in groupby(differences, key=len)
        for change in paired_changes(np.stack(list(alike), axis=1), samples, seed)
    ]  # fmt: skip
    p_adjusted = [float(p) for p in holm(p_values)] if p_values else []
    return [
        {**ends("change", change), "p_value": p, "p_adjusted": adjusted, **change_tests(column)}
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


def ends(name: str, estimate: Interval | None) -> dict[str, Any]:
    """Return the columns of a number with its interval."""
    values: tuple[float | None, ...] = (None, None, None) if estimate is None else estimate
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(_number, values), strict=True))


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


Predictions = Mapping[str, Mapping[str, Integers]]
"""Account -> condition -> place of the predicted candidate, int64 (n, queries)."""
_AT_ONCE = 100  # rows
_APART = 0.1  # share of answers on which accounts differ that are told apart by them
_MARGIN = 3.0  # nats by which a predicted item is ahead of every other
# Experiment -> conditions on which accounts disagree.
DECIDING: dict[str, tuple[str, ...]] = {
    "signatures": (
        "none", "other shapes", "other colors", "from other slots", "objects exchanged",
        "items exchanged",
    ),
    "factorizability": ("O all", "I all"),
    # Without `by slot` where slots follow from roles (`Rule.slot_of_role`).
    "mean": ("O by slot", "I by slot", "O", "I"),
}  # fmt: skip
_MECHANISMS: dict[str, Mechanism] = dict(
    zip(ACCOUNTS, ("slot", "color", "gather", "order"), strict=True)
)


def exact_oracles() -> dict[str, Oracle]:
    """Return an oracle of each account, by its name."""
    return {name: Oracle(mechanism, 0.0, exact=True) for name, mechanism in _MECHANISMS.items()}


def true_estimates(oracle: Oracle, words: Words) -> Estimates:
    """Return an oracle's planted differences between slots, as if they had been estimated."""
    slots = range(len(words.places))
    effects: dict[Key, Effects] = {}
    for group in GROUPS:
        planted = np.stack([oracle.true_difference(group, words, (0, slot)) for slot in slots])
        values = np.repeat(planted[:, :, None], CELLS if group == "object" else 1, axis=2)
        effects[group, "slot"] = Effects("slot", values)
    return Estimates(effects, np.zeros((oracle.layers, CELLS, oracle.width), np.float32))


def account_predictions(
    plans: Mapping[str, Callable[[Batch], Plan]], pairs: Pairs, rule: Rule
) -> dict[str, Predictions]:
    """Return what accounts predict in the deciding conditions of experiments, by experiment."""
    predictions: dict[str, dict[str, dict[str, Integers]]] = {name: {} for name in plans}
    words = pairs.base.words
    oracle: Any  # its state is its own kind of `engine.State`
    for account, oracle in exact_oracles().items():
        estimates = true_estimates(oracle, words)
        for name, plan in plans.items():
            parts: dict[str, list[Integers]] = {}
            for rows in batches(len(pairs.base), _AT_ONCE):
                batch = Batch(oracle, None, pairs[rows], rule, estimates)
                part = _deciding(name, plan(batch))
                places = predicted(part.answered(oracle, batch.base))
                for trial, items in zip(part.trials, np.moveaxis(places, 1, 0), strict=True):
                    parts.setdefault(trial.condition.name, []).append(items)
            predictions[name][account] = {
                condition: np.concatenate(items) for condition, items in parts.items()
                if condition in DECIDING[name]
            }  # fmt: skip
    return dict(predictions)


def _deciding(experiment: str, plan: Plan) -> Plan:
    """Return the control and the conditions of a plan on which accounts disagree."""
    names = ("none", *DECIDING[experiment])
    by_source = [
        (source, [trial for trial in trials if trial.condition.name in names])
        for source, trials in plan.by_source
    ]
    return Plan(by_source, plan.queries, plan.candidates)


def predicted(logs: Doubles) -> Integers:
    """Return the place of the candidate that an exact oracle prefers, or `NONE`.

    Log-probabilities are (n, trials, queries, candidates), places int64 (n, trials, queries).
    """
    second, first = np.moveaxis(np.sort(logs, axis=-1)[..., -2:], -1, 0)
    return np.where(first - second > _MARGIN, logs.argmax(axis=-1), NONE)


def rivals_of(predictions: Sequence[Predictions]) -> dict[str, list[str]]:
    """Return the accounts that never predict another item than an account does, in any experiment.

    What it predicts itself does not tell it from them; what they alone predict does.
    """

    def apart(account: str, rival: str) -> bool:
        return any(
            ((ours != NONE) & (theirs != NONE) & (ours != theirs)).mean() > _APART
            for by_account in predictions
            for ours, theirs in zip(
                by_account[account].values(), by_account[rival].values(), strict=True
            )
        )

    return {
        account: [rival for rival in ACCOUNTS if rival != account and not apart(account, rival)]
        for account in ACCOUNTS
    }


def account_rows(
    answers: Answers, trials: Sequence[Trial], predictions: Predictions,
    rivals: Mapping[str, Sequence[str]], samples: int, seed: int,
) -> Iterator[tuple[int, dict[str, Any]]]:  # fmt: skip
    """Yield a trial and a row of how many answers are those that an account predicts.

    Trial 0 is the control; `rivals` are the accounts that one is not told from by what it predicts
    itself.
    """
    places = {trial.condition.name: i for i, trial in enumerate(trials)}
    for account, by_condition in predictions.items():
        for condition, ours in by_condition.items():
            if condition not in places:  # of slots, where the suite has differences of roles alone
                continue
            i = places[condition]
            alone = [
                np.where(ours == NONE, predictions[name][condition], NONE)
                for name in rivals[account]
            ]
            logs = answers.logs[:, i]
            row = {**_agreement("share", logs, ours), **_agreement("unpredicted", logs, *alone)}
            if row:
                effect = normalized_effect(answers, i, ours, samples, seed)
                yield i, {"query": "all", "candidate": account, "expected": 0,
                          "n_rows": len(ours), **row, **ends("effect", effect)}  # fmt: skip


def _agreement(name: str, logs: Doubles, *expected: Integers) -> dict[str, Any]:
    """Return the share of answers that are as predicted, of the best of several predictions."""
    shares = [
        share(right(logs[rows], items[rows]))
        for items in expected if (rows := (items != NONE).any(axis=1)).any()
    ]  # fmt: skip
    return ends(name, max(shares)) if shares else {}


Row = dict[str, Any]
DETAILED = ("factorizability", "positions")
"""Experiments whose every cell (query, candidate) has a row."""


def rows_of(
    experiment: str, answers: Answers, trials: Sequence[Trial], lengths: Doubles, samples: int,
    seed: int,
    predictions: Predictions | None = None, rivals: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Yield a row per trial, and per account and cell where there are any.

    The first trial is the control. `lengths` (n, trials) is what each adds to each row,
    `predictions` and `rivals` are those of accounts (`account_rows`).
    """
    effects = _effects(experiment, answers, trials, samples, seed)
    tests = _changes(answers, samples, seed)
    names = [
        {"experiment": experiment, "condition": trial.condition.name, "layers": trial.layers,
         "head": trial.head, "dose": _number(trial.dose), "length": _number(mean)}
        for trial, mean in zip(trials, lengths.mean(axis=0), strict=True)
    ]  # fmt: skip
    for i, test in enumerate([{}, *tests]):
        summary = _summary(answers, i, samples, seed)
        yield {**names[i], **summary, **ends("effect", effects[i]), **test}
        if experiment in DETAILED:
            for row in _cells(answers, i, samples, seed):
                yield {**names[i], "n_rows": len(answers.logs), **row}
    for i, row in account_rows(answers, trials, predictions or {}, rivals or {}, samples, seed):
        yield {**names[i], **row}


def _summary(answers: Answers, trial: int, samples: int, seed: int) -> Row:
    """Return what a trial's answers are, over all questions that something is expected of."""
    logs, expected = answers.logs[:, trial], answers.places(trial)
    per_row, leads = right(logs, expected), lead(logs, expected)
    means = resampled_means(leads[:, None], samples, seed)[:, 0]
    return {
        "query": "all", "candidate": "expected", "expected": 1, "n_rows": len(logs),
        **ends("share", share(per_row)),
        **ends("lead", Interval(float(leads.mean()), *interval(means))),
        **ends("own", share(right(logs, answers.places(0)))),
    }  # fmt: skip


def _changes(answers: Answers, samples: int, seed: int) -> list[Row]:
    """Compare the expected answers of each trial but the control with the control's."""
    pairs = []
    for i in range(1, len(answers.expected)):
        expected = answers.places(i)
        pairs.append((right(answers.logs[:, i], expected), right(answers.logs[:, 0], expected)))
    return comparisons(pairs, samples, seed)


def _effects(
    experiment: str, answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> list[Interval | None]:
    """Return normalized effects: of some layers or heads against all of them, else the control."""
    in_part = [(trial.layers, trial.head) != (ALL, ALL) for trial in trials]
    whole = {
        trial.condition.name: i for i, trial in enumerate(trials) if not in_part[i]
    }  # fmt: skip
    effects = []
    for i, trial in enumerate(trials):
        if in_part[i] or (experiment == "heads" and i):
            reference = whole[trial.condition.name.removesuffix(" anew")]
            effects.append(share_of_way(answers, i, reference, samples, seed))
        else:
            effects.append(normalized_effect(answers, i, answers.places(i), samples, seed))
    return effects


def _cells(answers: Answers, trial: int, samples: int, seed: int) -> Iterator[Row]:
    """Yield a row per query and candidate of a trial."""
    logs, expected = answers.logs[:, trial], answers.places(trial)[0]
    best, flat = chosen(logs), logs.reshape(len(logs), -1)
    means = resampled_means(flat, samples, seed).reshape(-1, *logs.shape[1:])
    for (i, query), (j, candidate) in product(
        enumerate(answers.queries), enumerate(answers.candidates)
    ):
        mean = Interval(float(logs[:, i, j].mean()), *interval(means[:, i, j]))
        yield {
            "query": query, "candidate": candidate, "expected": int(expected[i] == j),
            **ends("mean_logprob", mean), **ends("share", share(best[:, i, j])),
        }  # fmt: skip
