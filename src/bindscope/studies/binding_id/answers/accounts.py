"""Which answers accounts of binding predict, and how many there are.

What an account predicts depends on what is edited and on what is asked. So an exact oracle of the
account (no noise, look-ups that find nothing where nothing matches) answers the same questions;
where it prefers no item, the account predicts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bindscope.core.array_types import Doubles, Integers
from bindscope.studies.binding_id.answers.rows import (
    NONE,
    Answers,
    normalized_effect,
    right,
    share,
)
from bindscope.studies.binding_id.estimates import EffectKey, Estimates, LevelEffects, batches
from bindscope.studies.binding_id.names import ACCOUNTS
from bindscope.studies.binding_id.oracle import CELLS, Mechanism, OracleEngine
from bindscope.studies.binding_id.plans import Batch, Plan, Trial
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Pairs, Rule, Words
from bindscope.tables.rows import interval_columns

Predictions = Mapping[str, Mapping[tuple[Any, ...], Integers]]
"""Account -> condition (its columns) -> number of the predicted candidate, int64 (n, questions)."""
_AT_ONCE = 100  # rows
_APART = 0.1  # share of answers on which accounts differ that are told apart by them
_MARGIN = 3.0  # nats by which a predicted item is ahead of every other
_MECHANISMS: dict[str, Mechanism] = dict(
    zip(ACCOUNTS, ("slot", "color", "gather", "order"), strict=True)
)


def true_estimates(oracle: OracleEngine, words: Words) -> Estimates:
    """Return an oracle's planted differences between slots, as if they had been estimated."""
    slots = range(len(words.places))
    effects: dict[EffectKey, LevelEffects] = {}
    for group in GROUPS:
        planted = np.stack([oracle.true_difference(group, words, (0, slot)) for slot in slots])
        values = np.repeat(planted[:, :, None], CELLS if group == "object" else 1, axis=2)
        effects[group, "slot"] = LevelEffects("slot", values)
    return Estimates(effects, np.zeros((oracle.layers, CELLS, oracle.width), np.float32))


def predict(
    plans: Mapping[str, Callable[[Batch], Plan]], pairs: Pairs, rule: Rule
) -> dict[str, Predictions]:
    """Return what accounts predict in the judged trials of experiments, by experiment."""
    predictions: dict[str, dict[str, dict[tuple[Any, ...], Integers]]] = {
        name: {} for name in plans
    }
    for account, mechanism in _MECHANISMS.items():
        oracle: Any = OracleEngine(mechanism, 0.0, exact=True)  # its state is its own kind
        estimates = true_estimates(oracle, pairs.base.words)
        for name, plan in plans.items():
            parts: dict[tuple[Any, ...], list[Integers]] = {}
            for rows in batches(len(pairs.base), _AT_ONCE):
                batch = Batch(oracle, None, pairs[rows], rule, estimates)
                judged = _judged(plan(batch))
                preferred = prefer(judged.answered(oracle, batch.base))
                for trial, items in zip(judged.trials, np.moveaxis(preferred, 1, 0), strict=True):
                    parts.setdefault(_identity(trial, batch.things), []).append(items)
            predictions[name][account] = {
                condition: np.concatenate(items) for condition, items in parts.items()
            }
    return dict(predictions)


def _identity(trial: Trial, things: int) -> tuple[Any, ...]:
    return tuple(trial.columns(things).values())


def _judged(plan: Plan) -> Plan:
    by_source = [
        (source, [trial for trial in trials if trial.judged]) for source, trials in plan.by_source
    ]
    return Plan([part for part in by_source if part[1]], plan.questions, plan.candidates)


def prefer(logs: Doubles) -> Integers:
    """Return the number of the candidate that an exact oracle prefers, or `NONE`.

    Log-probabilities are (n, trials, questions, candidates), numbers int64 (n, trials, questions).
    """
    second, first = np.moveaxis(np.sort(logs, axis=-1)[..., -2:], -1, 0)
    return np.where(first - second > _MARGIN, logs.argmax(axis=-1), NONE)


def find_rivals(predictions: Sequence[Predictions]) -> dict[str, list[str]]:
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
    answers: Answers,
    trials: Sequence[Trial],
    predictions: Predictions,
    rivals: Mapping[str, Sequence[str]],
    samples: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield a row of how many of a trial's answers are those that an account predicts.

    `rivals` are the accounts that one is not told from by what it predicts itself.
    """
    numbers = {_identity(trial, len(trial.expected)): i for i, trial in enumerate(trials)}
    for account, by_condition in predictions.items():
        for condition, ours in by_condition.items():
            i = numbers[condition]
            rival_only = [
                np.where(ours == NONE, predictions[name][condition], NONE)
                for name in rivals[account]
            ]
            logs = answers.logs[:, i]
            row = _agreement("share", logs, ours) | _agreement("unpredicted", logs, *rival_only)
            if row:
                effect = normalized_effect(answers, i, ours, samples, seed)
                yield {
                    "trial": i,
                    "query": "all",
                    "candidate": account,
                    "expected": 0,
                    "n_rows": len(ours),
                    **row,
                    **interval_columns("effect", effect),
                }


def _agreement(name: str, logs: Doubles, *expected: Integers) -> dict[str, Any]:
    """Return the share of answers that are as predicted, of the best of several predictions."""
    shares = []
    for items in expected:
        rows = (items != NONE).any(axis=1)
        if rows.any():
            shares.append(share(right(logs[rows], items[rows])))
    return interval_columns(name, max(shares)) if shares else {}
