"""Rows of the tables from the answers of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bindscope.statistics.bootstrap import Interval, interval, resampled_means
from bindscope.studies.binding_id.answers.accounts import Predictions, account_rows
from bindscope.studies.binding_id.answers.metrics import (
    Answers,
    Doubles,
    chosen,
    comparisons,
    ends,
    lead,
    median_calibrated,
    normalized_effect,
    null_calibrated,
    right,
    share,
    shares_of_way,
    swaps,
)
from bindscope.studies.binding_id.engine import Knockout
from bindscope.studies.binding_id.experiments.trials import Trial
from bindscope.studies.binding_id.names import ALL
from bindscope.studies.binding_id.tasks.scenes import GROUPS

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
    calibrated: dict[str, Doubles] = {}
    if answers.in_context:
        calibrated["share_median"] = median_calibrated(answers)
        if (by_null := null_calibrated(answers)) is not None:
            calibrated["share_null"] = by_null
    effects, tests = _effects(answers, trials, samples, seed), _changes(answers, samples, seed)
    names = [
        {"experiment": experiment, "condition": trial.condition.name, "layers": trial.layers,
         "dose": _number(trial.dose), "length": _number(mean)}
        for trial, mean in zip(trials, lengths.mean(axis=0), strict=True)
    ]  # fmt: skip
    for i, test in enumerate([{}, *tests]):
        expected = answers.places(i)
        shares = {name: float(right(logs[:, i], expected).mean())
                  for name, logs in calibrated.items()}  # fmt: skip
        yield {
            **names[i], **_summary(answers, i, samples, seed), **shares,
            **ends("effect", effects[i]), **test,
        }  # fmt: skip
        if experiment in DETAILED:
            for row in _cells(answers, calibrated, i, samples, seed):
                yield {**names[i], "n_rows": len(answers.logs), **row}
    for i, row in account_rows(answers, trials, predictions or {}, rivals or {}, samples, seed):
        yield {**names[i], **row}


def _summary(answers: Answers, trial: int, samples: int, seed: int) -> Row:
    """Return what a trial's answers are, over all questions that something is expected of."""
    logs, expected = answers.logs[:, trial], answers.places(trial)
    per_row, leads = right(logs, expected), lead(logs, expected)
    means = resampled_means(leads[:, None], samples, seed)[:, 0]
    swapped, guessed = swaps(logs, expected)
    return {
        "query": "all", "candidate": "expected", "expected": 1, "n_rows": len(logs),
        **ends("share", share(per_row)), **ends("own", share(right(logs, answers.places(0)))),
        **ends("lead", Interval(float(leads.mean()), *interval(means))),
        **ends("swap", share(swapped)), "swap_chance": float(1 - per_row.mean()) * guessed,
    }  # fmt: skip


def _changes(answers: Answers, samples: int, seed: int) -> list[Row]:
    """Compare the expected answers of each trial but the control with the control's."""
    pairs = []
    for i in range(1, len(answers.expected)):
        expected = answers.places(i)
        pairs.append((right(answers.logs[:, i], expected), right(answers.logs[:, 0], expected)))
    return comparisons(pairs, samples, seed)


def _effects(
    answers: Answers, trials: Sequence[Trial], samples: int, seed: int
) -> list[Interval | None]:
    """Return normalized effects: of a sweep against all layers, else against the control."""
    whole = {trial.condition.name: i for i, trial in enumerate(trials) if trial.layers == "all"}
    references = [
        None if trial.layers == "all" else whole[trial.condition.name.removesuffix(" anew")]
        for trial in trials
    ]
    swept = shares_of_way(answers, references, samples, seed)
    return [
        normalized_effect(answers, i, answers.places(i), samples, seed)
        if references[i] is None else effect
        for i, effect in enumerate(swept)
    ]  # fmt: skip


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _cells(
    answers: Answers, calibrated: Mapping[str, Doubles], trial: int, samples: int, seed: int
) -> Iterator[Row]:
    """Yield a row per query and candidate of a trial."""
    logs, expected = answers.logs[:, trial], answers.places(trial)[0]
    best = {name: chosen(values[:, trial]) for name, values in calibrated.items()}
    uncalibrated = chosen(logs)
    means = resampled_means(logs.reshape(len(logs), -1), samples, seed).reshape(-1, *logs.shape[1:])
    for place in answers.real:
        for column, candidate in enumerate(answers.candidates):
            mean = float(logs[:, place, column].mean())
            yield {
                "query": answers.queries[place], "candidate": candidate,
                "expected": int(expected[place] == column),
                **ends("mean_logprob", Interval(mean, *interval(means[:, place, column]))),
                **ends("share", share(uncalibrated[:, place, column])),
                **{name: float(values[:, place, column].mean()) for name, values in best.items()},
            }  # fmt: skip


def head_rows(answers: Answers, trials: Sequence[Trial], samples: int, seed: int) -> Iterator[Row]:
    """Yield rows of `binding_id_heads`: of each group for a head, a layer, or all of them.

    Trials are those of `plans.single_heads`.
    """
    blinded = [trial.condition.interventions[0] for trial in trials[1:]]
    groups = [edit.group for edit in blinded]
    # All heads of all layers come first. What is lost counts as 1, so leads are turned round.
    references = [None, *(1 + GROUPS.index(group) for group in groups)]
    lost = shares_of_way(replace(answers, logs=-answers.logs), references, samples, seed)
    changes = _changes(answers, samples, seed)
    for i, (trial, edit, change) in enumerate(zip(trials[1:], blinded, changes, strict=True), 1):
        assert isinstance(edit, Knockout)
        yield {
            "layer": trial.layers, "head": ALL if edit.heads is None else str(edit.heads[0]),
            "group": edit.group, "n_rows": len(answers.logs),
            **ends("share", share(right(answers.logs[:, i], answers.places(i)))),
            **change, **ends("effect", lost[i]),
        }  # fmt: skip
