"""What each account of binding predicts, by an oracle that does exactly what the account says.

Which item an account predicts depends on what is edited and on what a question names a thing by.
So an exact oracle of the account (no noise, look-ups that find nothing where nothing matches)
answers the same questions; where it prefers no item, the account predicts none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.answers.metrics import (
    Answers,
    Doubles,
    chosen,
    ends,
    normalized_effect,
    share,
)
from bindscope.studies.binding_id.experiments.estimates import Effects, Estimates, Levels
from bindscope.studies.binding_id.experiments.trials import Plan, Trial
from bindscope.studies.binding_id.names import ACCOUNTS
from bindscope.studies.binding_id.oracles.oracle import CELLS, Mechanism, Oracle
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Attribute, Group, Words

Integers = NDArray[np.int64]
Predictions = Mapping[str, Mapping[str, Integers]]
"""Account -> condition -> place of the predicted candidate, int64 (n, queries)."""
NONE = -1  # where an account predicts no item
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


class Accounts:
    """What accounts of binding predict, experiment by experiment and batch after batch."""

    def __init__(self, mention: Attribute, words: Words) -> None:
        # Any: an oracle's state is its own kind of `engine.State`.
        self._oracles: dict[str, Any] = dict(exact_oracles(mention))
        self._estimates = {name: true_estimates(o, words) for name, o in self._oracles.items()}
        self._parts: dict[str, dict[str, dict[str, list[Integers]]]] = {}

    def oracles(self) -> Iterator[tuple[str, Any, Estimates]]:
        """Yield each account with its exact oracle and what is planted in that."""
        for name, oracle in self._oracles.items():
            yield name, oracle, self._estimates[name]

    def predict(self, experiment: str, account: str, plan: Plan, base: Any) -> None:
        """Ask an experiment's deciding conditions of the oracle of an account."""
        asked = deciding(experiment, plan)
        expected = predicted(asked.answered(self._oracles[account], base))
        parts = self._parts.setdefault(experiment, {}).setdefault(account, {})
        for i, one in enumerate(one for _, trials in asked.trials for one in trials):
            parts.setdefault(one.condition.name, []).append(expected[:, i])

    def rivals(self) -> dict[str, list[str]]:
        """Return which accounts are not told from each other by what they predict themselves."""
        return rivals_of([self.predictions(name) for name in self._parts])

    def predictions(self, experiment: str) -> dict[str, dict[str, Integers]]:
        """Return what accounts predict in an experiment where they disagree."""
        return {
            account: {
                condition: np.concatenate(parts)
                for condition, parts in part.items() if condition in DECIDING[experiment]
            }
            for account, part in self._parts[experiment].items()
        }  # fmt: skip


def exact_oracles(mention: Attribute) -> dict[str, Oracle]:
    """Return an oracle of each account, by its name."""
    return {
        name: Oracle(mechanism, 0.0, mention, exact=True) for name, mechanism in _MECHANISMS.items()
    }


def true_estimates(oracle: Oracle, words: Words) -> Estimates:
    """Return an oracle's planted differences between slots, as if they had been estimated."""
    slots, levels = range(len(words.places)), len(words.places)
    effects: dict[tuple[Group, Levels], Effects] = {}
    for group in GROUPS:
        planted = np.stack([oracle.true_difference(group, words, (0, slot)) for slot in slots])
        tokens = CELLS if group == "object" else 1
        values = np.repeat(planted[:, :, None], tokens, axis=2)
        used_levels, explained = np.ones(levels, bool), np.ones(oracle.layers)
        halves = np.stack([values, values])
        effects[group, "slot"] = Effects("slot", values, halves, used_levels, 0, explained)
    content = np.zeros((oracle.layers, CELLS, oracle.width), np.float32)
    return Estimates(effects, content)


def deciding(experiment: str, plan: Plan) -> Plan:
    """Return the control and the conditions of a plan on which accounts disagree."""
    condition_names = ("none", *DECIDING[experiment])
    trials = [
        (source, [trial for trial in own if trial.condition.name in condition_names])
        for source, own in plan.trials
    ]
    queries = {name: query for name, query in plan.queries.items() if name != "null"}
    return Plan(trials, queries, plan.candidates)


def predicted(logs: Doubles) -> Integers:
    """Return the place of the candidate that an exact oracle prefers, or `NONE`.

    Log-probabilities are (n, trials, queries, candidates), places int64 (n, trials, queries).
    """
    second, first = np.moveaxis(np.sort(logs, axis=-1)[..., -2:], -1, 0)
    return np.where(first - second > _MARGIN, logs.argmax(axis=-1), NONE)


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
        for condition, expected in by_condition.items():
            if condition not in places:  # of slots, where the suite has differences of roles alone
                continue
            i = places[condition]
            expected = _asked(expected, answers)
            others = [_asked(predictions[name][condition], answers) for name in rivals[account]]
            row = {
                **_agreement("share", answers, i, expected),
                **_agreement("unpredicted", answers, i, *_alone(expected, others)),
            }
            if row:
                effect = normalized_effect(answers, i, expected, samples, seed)
                yield i, {"query": "all", "candidate": account, "expected": 0,
                          "n_rows": len(expected), **row, **ends("effect", effect)}  # fmt: skip


def rivals_of(predictions: Sequence[Predictions]) -> dict[str, list[str]]:
    """Return the accounts that never predict another item than an account does, in any experiment.

    What it predicts itself does not tell it from them; what they alone predict does.
    """

    def apart(one: str, other: str) -> bool:
        return any(
            ((answer != NONE) & (rival != NONE) & (answer != rival)).mean() > _APART
            for found in predictions
            for answer, rival in zip(found[one].values(), found[other].values(), strict=True)
        )

    return {
        one: [other for other in ACCOUNTS if other != one and not apart(one, other)]
        for one in ACCOUNTS
    }


def _asked(expected: Integers, answers: Answers) -> Integers:
    """Give predictions about things a place for each query; of what is not there none."""
    items = np.full((len(expected), len(answers.queries)), NONE)
    items[:, answers.real] = expected
    return items


def _alone(expected: Integers, others: Sequence[Integers]) -> list[Integers]:
    """Return what each other account predicts where this one predicts none."""
    return [np.where(expected == NONE, items, NONE) for items in others]


def _agreement(name: str, answers: Answers, trial: int, *expected: Integers) -> dict[str, Any]:
    """Return the share of answers that are as predicted, of the best of several predictions."""
    best = chosen(answers.logs[:, trial])
    found = []
    for items in expected:
        definite = items != NONE
        rows = definite.any(axis=1)
        if rows.any():
            right = np.take_along_axis(best, np.maximum(items, 0)[..., None], axis=-1)[..., 0]
            per_row = (right * definite).sum(axis=1)[rows] / definite.sum(axis=1)[rows]
            found.append(share(per_row))
    return ends(name, max(found)) if found else {}
