"""Rows of the tables, from the answers of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.accounts import NONE, Predictions, account_rows
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
from bindscope.studies.binding_id.experiments.estimates import Effects, Estimates, Key, cosine
from bindscope.studies.binding_id.experiments.trials import Trial
from bindscope.studies.binding_id.tasks.scenes import Scenes

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


def _names(one: Trial) -> Row:
    return {
        "condition": one.condition.name, "layers": one.layers, "dose": _number(one.dose),
    }  # fmt: skip


def _summary(answers: Answers, trial: int, one: Trial, samples: int, seed: int) -> Row:
    """Return what a trial's answers are, over all questions that something is expected of."""
    per_row = right(answers, answers.logs, trial, one.expected)
    answered_own = right(answers, answers.logs, trial, answers.expected[0])
    leads = lead(answers, trial, one.expected)
    means = resampled_means(leads[:, None], samples, seed)[:, 0]
    swapped, guessed = swaps(answers, trial, one.expected)
    return {
        "query": "all", "candidate": "expected", "expected": 1, "n_rows": len(answers.logs),
        **ends("share", share(per_row)), **ends("own", share(answered_own)),
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


def _calibrated_shares(answers: Answers, calibrated: Row, trial: int, one: Trial) -> Row:
    return {
        f"share_{kind}": float(right(answers, logs, trial, one.expected).mean())
        for kind, logs in calibrated.items()
        if logs is not None
    }


def _cells(
    answers: Answers, calibrated: Row, trial: int, one: Trial, samples: int, seed: int
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
                "expected": int(one.expected.get(query) == candidate),
                **ends("mean_logprob", Interval(float(logs[:, place, column].mean()),
                                                *interval(column_means))),
                **ends("share", share(best["share"][:, place, column])),
                **{kind: float(values[:, place, column].mean())
                   for kind, values in best.items() if kind != "share"},
            }  # fmt: skip


def vector_rows(
    estimates: Estimates, scenes: Scenes, engine: Engine, read_share: Callable[[Key], Doubles]
) -> Iterator[Row]:
    """Yield rows of `binding_id_vectors`: mean differences (E5), and what is read (E14)."""
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


def _compared(one: Effects) -> tuple[int, int]:
    """Return the first two levels that were seen; -1 where there are none."""
    seen = np.flatnonzero(one.seen)
    return (int(seen[0]), int(seen[1])) if len(seen) > 1 else (0, -1)


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
