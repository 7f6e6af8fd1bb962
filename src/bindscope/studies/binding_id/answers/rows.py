"""Rows of the tables from the answers of an experiment, and what each account of binding predicts.

Which item an account predicts depends on what is edited and on what a question names a thing by.
So an exact oracle of the account (no noise, look-ups that find nothing where nothing matches)
answers the same questions; where it prefers no item, the account predicts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.metrics import (
    Answers,
    Doubles,
    chosen,
    comparisons,
    effects,
    ends,
    lead,
    median_calibrated,
    normalized_effect,
    null_calibrated,
    right,
    share,
    swaps,
)
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import (
    Effects,
    Estimates,
    Key,
    Levels,
    cosine,
)
from bindscope.studies.binding_id.experiments.trials import Plan, Trial
from bindscope.studies.binding_id.names import ACCOUNTS
from bindscope.studies.binding_id.oracles.oracle import CELLS, Mechanism, Oracle
from bindscope.studies.binding_id.tasks.scenes import GROUPS, Attribute, Group, Scenes, Words

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
        part = deciding(experiment, plan)
        expected = predicted(part.answered(self._oracles[account], base))
        parts = self._parts.setdefault(experiment, {}).setdefault(account, {})
        for i, entry in enumerate(entry for _, trials in part.trials for entry in trials):
            parts.setdefault(entry.condition.name, []).append(expected[:, i])

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
        (source, [trial for trial in of_source if trial.condition.name in condition_names])
        for source, of_source in plan.trials
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
            expected = _by_query(expected, answers)
            others = [_by_query(predictions[name][condition], answers) for name in rivals[account]]
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


def _by_query(expected: Integers, answers: Answers) -> Integers:
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
    shares = []
    for items in expected:
        definite = items != NONE
        rows = definite.any(axis=1)
        if rows.any():
            right = np.take_along_axis(best, np.maximum(items, 0)[..., None], axis=-1)[..., 0]
            per_row = (right * definite).sum(axis=1)[rows] / definite.sum(axis=1)[rows]
            shares.append(share(per_row))
    return ends(name, max(shares)) if shares else {}


Row = dict[str, Any]
DETAILED = ("factorizability", "positions", "signatures", "mean")
"""Experiments whose every cell (query, candidate) has a row."""


def rows_of(
    experiment: str, answers: Answers, trials: Sequence[Trial], lengths: Doubles, samples: int,
    seed: int,
    predictions: Predictions | None = None, rivals: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Yield a row per trial, and per account and cell where there are any.

    The first trial is the control. `lengths` (n, trials) is what each adds to each row,
    `predictions` and `rivals` are those of accounts (`accounts.account_rows`).
    """
    calibrated: Row = {"median": None, "null": None}
    if answers.in_context:
        calibrated = {"median": median_calibrated(answers), "null": null_calibrated(answers)}
    intervals = _effects(answers, trials, samples, seed)
    pairs = [
        (right(answers, answers.logs, i, expected), right(answers, answers.logs, 0, expected))
        for i, expected in enumerate(answers.expected)
    ]
    tests: list[Row] = [{}, *comparisons(pairs[1:], samples, seed)]
    means = lengths.mean(axis=0)
    names = [
        {"experiment": experiment, **_names(trial), "length": _number(mean)}
        for trial, mean in zip(trials, means, strict=True)
    ]
    for i, trial in enumerate(trials):
        yield {
            **names[i], **_summary(answers, i, trial, samples, seed),
            **_calibrated_shares(answers, calibrated, i, trial), **ends("effect", intervals[i]),
            **tests[i],
        }  # fmt: skip
        if experiment in DETAILED:
            for row in _cells(answers, calibrated, i, trial, samples, seed):
                yield {**names[i], "n_rows": len(answers.logs), **row}
    for i, row in account_rows(answers, trials, predictions or {}, rivals or {}, samples, seed):
        yield {**names[i], **row}


def _names(entry: Trial) -> Row:
    return {
        "condition": entry.condition.name, "layers": entry.layers, "dose": _number(entry.dose),
    }  # fmt: skip


def _summary(answers: Answers, trial: int, entry: Trial, samples: int, seed: int) -> Row:
    """Return what a trial's answers are, over all questions that something is expected of."""
    per_row = right(answers, answers.logs, trial, entry.expected)
    unchanged = right(answers, answers.logs, trial, answers.expected[0])
    leads = lead(answers, trial, entry.expected)
    means = resampled_means(leads[:, None], samples, seed)[:, 0]
    swapped, guessed = swaps(answers, trial, entry.expected)
    return {
        "query": "all", "candidate": "expected", "expected": 1, "n_rows": len(answers.logs),
        **ends("share", share(per_row)), **ends("own", share(unchanged)),
        **ends("lead", Interval(float(leads.mean()), *interval(means))),
        **ends("swap", share(swapped)), "swap_chance": float(1 - per_row.mean()) * guessed,
    }  # fmt: skip


def _effects(
    answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> list[Interval | None]:
    """Return normalized effects: of a sweep against all layers, else against the control."""
    swept = effects(answers, [_reference(trials, i) for i in range(len(trials))], samples, seed)
    for i, trial in enumerate(trials):
        if trial.layers == "all":
            expected = np.full((len(answers.logs), len(answers.queries)), NONE)
            for query, candidate in trial.expected.items():
                place = answers.candidates.index(candidate)
                expected[:, answers.queries.index(query)] = place
            swept[i] = normalized_effect(answers, i, expected, samples, seed)
    return swept


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _reference(trials: Sequence[Trial], place: int) -> int | None:
    """Return the trial of the same edit at all layers, for a sweep over layers."""
    trial = trials[place]
    if trial.layers == "all":
        return None
    name = trial.condition.name.removesuffix(" anew")
    return next(
        i for i, candidate in enumerate(trials)
        if candidate.layers == "all" and candidate.condition.name == name
    )  # fmt: skip


def _calibrated_shares(answers: Answers, calibrated: Row, trial: int, entry: Trial) -> Row:
    return {
        f"share_{kind}": float(right(answers, logs, trial, entry.expected).mean())
        for kind, logs in calibrated.items()
        if logs is not None
    }


def _cells(
    answers: Answers, calibrated: Row, trial: int, entry: Trial, samples: int, seed: int
) -> Iterator[Row]:
    """Yield a row per query and candidate of a trial."""
    logs = answers.logs[:, trial]
    best = {"share": chosen(logs)} | {
        f"share_{kind}": chosen(values[:, trial])
        for kind, values in calibrated.items()
        if values is not None
    }
    means = resampled_means(logs.reshape(len(logs), -1), samples, seed)
    for place in answers.real:
        query = answers.queries[place]
        for column, candidate in enumerate(answers.candidates):
            column_means = means[:, place * len(answers.candidates) + column]
            yield {
                "query": query, "candidate": candidate,
                "expected": int(entry.expected.get(query) == candidate),
                **ends("mean_logprob", Interval(float(logs[:, place, column].mean()),
                                                *interval(column_means))),
                **ends("share", share(best["share"][:, place, column])),
                **{kind: float(values[:, place, column].mean())
                   for kind, values in best.items() if kind != "share"},
            }  # fmt: skip


def vector_rows(
    estimates: Estimates, scenes: Scenes, engine: Engine, read_share: Callable[[Key], Doubles]
) -> Iterator[Row]:
    """Yield rows of `binding_id_vectors`: mean differences, and what is read."""
    for (group, levels), effect in estimates.effects.items():
        first, second = _compared(effect)
        if second < 0:
            continue
        difference = effect.values[second] - effect.values[first]
        lengths = np.linalg.norm(difference.astype(np.float64), axis=-1).mean(axis=-1)
        halves = effect.split_half(first, second)
        truth = _true_cosines(engine, scenes, group, levels, difference, (first, second))
        neighbours = _layer_cosines(difference)
        tokens = _token_cosines(difference)
        right = read_share((group, levels))
        for layer in range(len(lengths)):
            yield {
                "group": group, "levels": levels, "layer": layer, "compared": f"{second}-{first}",
                "length": float(lengths[layer]), "split_half": float(halves[layer]),
                "explained": float(effect.explained[layer]), "cosine_truth": truth[layer],
                "cosine_last_layer": neighbours[layer], "cosine_tokens": tokens[layer],
                "read": float(right[layer]), "n_rows": effect.rows,
            }  # fmt: skip


def _compared(effects: Effects) -> tuple[int, int]:
    """Return the first two levels that were seen; -1 where there are none."""
    present = np.flatnonzero(effects.present)
    return (int(present[0]), int(present[1])) if len(present) > 1 else (0, -1)


def _true_cosines(
    engine: Any, scenes: Scenes, group: str, levels: str, difference: Any, pair: tuple[int, int]
) -> list[float | None]:
    """Return cosines with the planted difference, where the model is an oracle and has one."""
    fixed = levels == "slot" or len({tuple(row) for row in scenes.slot}) == 1
    if not hasattr(engine, "true_difference") or not fixed:
        return [None] * len(difference)
    truth = engine.true_difference(group, scenes.words, pair)
    cosines = cosine(difference.mean(axis=-2), truth)
    there = np.linalg.norm(truth, axis=-1) > 0
    return [float(c) if ok else None for c, ok in zip(cosines, there, strict=True)]


def _layer_cosines(difference: Any) -> list[float]:
    return [float(cosine(layer[None], difference[-1:])[0]) for layer in difference]


def _token_cosines(difference: Any) -> list[float | None]:
    """Return the mean cosine between a layer's tokens; None of a single token."""
    if difference.shape[1] < 2:
        return [None] * len(difference)
    unit = difference / np.maximum(np.linalg.norm(difference, axis=-1, keepdims=True), 1e-12)
    t = difference.shape[1]
    products = np.einsum("lad,lbd->lab", unit, unit)
    off = products.sum(axis=(1, 2)) - np.trace(products, axis1=1, axis2=2)
    return [float(value) for value in off / (t * (t - 1))]
