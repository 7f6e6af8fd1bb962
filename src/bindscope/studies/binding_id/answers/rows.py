"""Rows of the tables from the answers of an experiment, and what each account of binding predicts.

Which item an account predicts depends on what is edited and on what a question names a thing by.
So an exact oracle of the account (no noise, look-ups that find nothing where nothing matches)
answers the same questions; where it prefers no item, the account predicts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.metrics import (
    NONE,
    Answers,
    Doubles,
    Integers,
    chosen,
    comparisons,
    ends,
    lead,
    normalized_effect,
    right,
    share,
    share_of_way,
)
from bindscope.studies.binding_id.experiments.estimates import Effects, Estimates, Key, batches
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial
from bindscope.studies.binding_id.names import ACCOUNTS, ALL
from bindscope.studies.binding_id.oracle import CELLS, Mechanism, Oracle
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Pairs, Rule, Words

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


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


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
