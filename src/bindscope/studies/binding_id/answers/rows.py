"""Rows of the tables from the answers of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
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
    normalized_effect,
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
    effects, tests = _effects(answers, trials, samples, seed), _changes(answers, samples, seed)
    names = [
        {"experiment": experiment, "condition": trial.condition.name, "layers": trial.layers,
         "head": ALL, "dose": _number(trial.dose), "length": _number(mean)}
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


def head_rows(answers: Answers, trials: Sequence[Trial], samples: int, seed: int) -> Iterator[Row]:
    """Yield rows of `heads`: of each group for a head, a layer, or all of them.

    Trials are those of `plans.single_heads`. Effects are against the group hidden from all heads.
    """
    edits = [trial.condition.interventions[0] for trial in trials[1:]]
    # All heads of all layers come first. What is lost counts as 1, so leads are turned round.
    references = [None, *(1 + GROUPS.index(edit.group) for edit in edits)]
    lost = shares_of_way(replace(answers, logs=-answers.logs), references, samples, seed)
    changes = _changes(answers, samples, seed)
    for i, (edit, change) in enumerate(zip(edits, changes, strict=True), 1):
        assert isinstance(edit, Knockout)
        per_row = right(answers.logs[:, i], answers.places(i))
        yield {
            "experiment": "heads", "condition": trials[i].condition.name,
            "layers": trials[i].layers, "head": ALL if edit.heads is None else str(edit.heads[0]),
            "query": "all", "candidate": "expected", "expected": 1, "n_rows": len(per_row),
            **ends("share", share(per_row)), **change, **ends("effect", lost[i]),
        }  # fmt: skip
