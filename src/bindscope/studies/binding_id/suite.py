"""Runs the experiments of a suite on one task and some models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.registries import resolve
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.answers.accounts import (
    DECIDING,
    Integers,
    deciding,
    exact_oracles,
    predicted,
    rivals_of,
    true_estimates,
)
from bindscope.studies.binding_id.answers.metrics import Answers
from bindscope.studies.binding_id.answers.reading_out import Read
from bindscope.studies.binding_id.answers.rows import position_rows, rows_of, vector_rows
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import Estimates, batches, estimate
from bindscope.studies.binding_id.experiments.heads import head_rows
from bindscope.studies.binding_id.experiments.interventions import Rotate
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.registry import EXPERIMENTS, MIXTURE_ROWS
from bindscope.studies.binding_id.tasks.scenes import draw_pairs
from bindscope.studies.binding_id.tasks.task import Attribute, Pairs, Pictures, Question, Words

Row = dict[str, Any]
# Splits share the words of all other attributes.
_NULL_WORDS: tuple[Attribute, ...] = ("shape", "colour")

ADDING = frozenset({"mean", "nulls", "doses", "transfer", "subspaces"})
"""Experiments of mean differences, which are estimated for them."""


@dataclass(frozen=True, eq=False)
class Results:
    """What a model answered, and what it says.

    Attributes
    ----------
    rows, positions, vectors, heads, mixture
        Rows of the tables, without names and keys.
    answers
        Log-probabilities by experiment, float32 (n, trials, queries, candidates).
    """

    rows: list[Row]
    positions: list[Row]
    vectors: list[Row]
    answers: dict[str, NDArray[np.float32]]
    heads: list[Row] = field(default_factory=list)
    mixture: list[Row] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Asked:
    """An experiment, batch after batch: its answers are kept, what it read is not."""

    queries: list[str]
    candidates: list[str]
    trials: list[Trial]
    logs: list[NDArray[np.float64]] = field(default_factory=list)
    beside: list[NDArray[np.float64]] = field(default_factory=list)

    @classmethod
    def about(cls, plan: Plan) -> _Asked:
        trials = [one for _, trials in plan.trials for one in trials]
        return cls(list(plan.queries), list(plan.candidates), trials)

    def add(self, logs: NDArray[np.float64], beside: NDArray[np.float64]) -> None:
        self.logs.append(logs)
        self.beside.append(beside)

    def answers(self) -> Answers:
        expected = [one.expected for one in self.trials]
        return Answers(np.concatenate(self.logs), self.queries, self.candidates, expected)


def run(engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any]) -> Results:
    """Run all experiments of a job on one model.

    Parameters
    ----------
    engine
        The model.
    pictures
        Images of scenes, for engines that need them.
    spec
        The job's specification: the suite's options, and `task`.
    """
    task, reading = spec["task"], Reading.of(spec)
    rule = reading.rule
    pairs = draw_pairs(rule, "test", task["rows"], task["seed"])
    other = draw_pairs(rule, "estimation", task["estimation_rows"], task["seed"]).base
    estimates = None
    if ADDING & set(spec["experiments"]):
        estimates = estimate(engine, other, pictures, spec["batch_size"])
    asked: dict[str, _Asked] = {}
    read = Read.nothing()
    accounts = _Accounts(reading, pairs.base.words, spec)
    for rows in batches(task["rows"], spec["batch_size"]):
        batch = _batch(engine, pictures, pairs, rows, reading, estimates, spec)
        if estimates is not None:
            read.add(engine, batch.base, estimates.means)
        for name in spec["experiments"]:
            plan = plans(spec)[name](batch)
            logs = plan.answered(engine, batch.base)
            asked.setdefault(name, _Asked.about(plan)).add(logs, _beside(name, plan, batch, rows))
            if name in accounts.experiments:
                accounts.predict(name, batch)
    vectors = [] if estimates is None else list(vector_rows(estimates, other, engine, read))
    found = Results([], [], vectors, {})
    for name, one in asked.items():
        answers, beside = one.answers(), np.concatenate(one.beside)
        found.answers[name] = answers.logs.astype(np.float32)
        statistics = (spec["resamples"], spec["seed"])
        if name == "positions":
            distances = beside.mean(axis=0)
            found.positions.extend(position_rows(answers, one.trials, distances, *statistics))
        elif name == "heads":
            found.heads.extend(head_rows(answers, one.trials, beside, *statistics))
        elif name == "mixture":
            found.mixture.extend(resolve(MIXTURE_ROWS)(answers, *statistics))
        else:
            by_account = (accounts.predictions(name), accounts.rivals())
            found.rows.extend(rows_of(name, answers, one.trials, *statistics, *by_account))
    return found


class _Accounts:
    """What accounts of binding predict, experiment by experiment and batch after batch."""

    def __init__(self, reading: Reading, words: Words, spec: Mapping[str, Any]) -> None:
        self._spec = {**spec, "levels": ["slot"]}
        # Any: an oracle's state is its own kind of `engine.State`.
        self._oracles: dict[str, Any] = dict(exact_oracles(reading.rule.mention))
        self._estimates = {name: true_estimates(o, words) for name, o in self._oracles.items()}
        # Accounts are told apart by signatures; mean differences of roles say nothing of slots.
        without = {"mean"} if "slot" not in spec["levels"] else set()
        asked = set(spec["experiments"]) if "signatures" in spec["experiments"] else set()
        self.experiments = (asked & set(DECIDING)) - without
        self._parts: dict[str, dict[str, dict[str, list[Integers]]]] = {}

    def predict(self, name: str, batch: Batch) -> None:
        """Ask an experiment's deciding conditions of the exact oracle of each account."""
        for account, oracle in self._oracles.items():
            own = replace(batch, engine=oracle, estimates=self._estimates[account])
            plan = deciding(name, plans(self._spec)[name](own))
            expected = predicted(plan.answered(oracle, own.base))
            parts = self._parts.setdefault(name, {}).setdefault(account, {})
            for i, one in enumerate(_Asked.about(plan).trials):
                parts.setdefault(one.condition.name, []).append(expected[:, i])

    def rivals(self) -> dict[str, list[str]]:
        """Return which accounts are not told from each other by what they predict themselves."""
        return rivals_of([self.predictions(name) for name in self._parts])

    def predictions(self, name: str) -> dict[str, dict[str, Integers]]:
        """Return what accounts predict in an experiment; nothing where they do not disagree."""
        return {
            account: {
                condition: np.concatenate(parts)
                for condition, parts in own.items() if condition in DECIDING[name]
            }
            for account, own in self._parts.get(name, {}).items()
        }  # fmt: skip


def plans(spec: Mapping[str, Any]) -> dict[str, Callable[[Batch], Plan]]:
    """Return the experiments of a job by name, each a function of the batch alone."""
    level = spec["levels"][-1]
    options: dict[str, tuple[Any, ...]] = {
        "positions": (spec["shares"],), "mean": (spec["levels"],), "nulls": (level,),
        "doses": (level, spec["scales"]), "transfer": (level,), "layers": (spec["window"],),
        "pairing": (spec["window"],), "heads": (spec["head_layers"],),
        "subspaces": (level, spec["dimensions"], spec["coefficients"]),
    }  # fmt: skip

    def bound(name: str) -> Callable[[Batch], Plan]:
        plan = resolve(EXPERIMENTS[name])
        return lambda batch: plan(batch, *options.get(name, ()))

    return {name: bound(name) for name in spec["experiments"]}


def _batch(
    engine: Engine, pictures: Pictures | None, pairs: Pairs, rows: NDArray[np.int64],
    reading: Reading, estimates: Estimates | None, spec: Mapping[str, Any],
) -> Batch:  # fmt: skip
    chosen = replace(pairs, base=pairs.base[rows], source=pairs.source[rows])
    null = None
    if spec["null_query"] and reading.by in _NULL_WORDS:
        words = reading.rule.words("estimation")
        draw = rng(spec["seed"], int(rows[0]), 1)
        null = Question(reading.by, words, draw.integers(len(words.of(reading.by)), size=len(rows)))
    return Batch(engine, pictures, chosen, reading, estimates, null, spec["seed"])


def _beside(name: str, plan: Plan, batch: Batch, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what an experiment's table holds besides answers, (n, ...)."""
    if name == "positions":
        return _moved(plan, rows)
    if name == "heads":
        return batch.engine.attention(batch.base, list(plan.queries.values()))
    return np.zeros(0)


def _moved(plan: Plan, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how many positions each trial moves the first role's keys, float64 (n, trials).

    Of several views the first counts, of positions of several parts the one that moves most.
    """

    def moved(one: Trial) -> NDArray[np.float64]:
        first = next(iter(one.condition.interventions), None)
        delta = np.asarray(first.delta if isinstance(first, Rotate) else 0, np.float64)
        parts = delta if delta.ndim < 2 else np.abs(delta).max(axis=1)
        return np.asarray(np.broadcast_to(parts, (len(rows),)))

    return np.stack([moved(one) for _, trials in plan.trials for one in trials], axis=1)
