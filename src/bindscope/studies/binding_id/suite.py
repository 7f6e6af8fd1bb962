"""Runs the experiments of a suite on one task and some models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.registries import resolve
from bindscope.fitting.generators import rng
from bindscope.studies.binding_id.answers.metrics import Answers
from bindscope.studies.binding_id.answers.reading_out import Read
from bindscope.studies.binding_id.answers.rows import position_rows, rows_of, vector_rows
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import Estimates, batches, estimate
from bindscope.studies.binding_id.experiments.heads import head_rows
from bindscope.studies.binding_id.experiments.interventions import Rotate
from bindscope.studies.binding_id.experiments.spans import Spans
from bindscope.studies.binding_id.experiments.trials import Batch, Plan, Trial
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.registry import EXPERIMENTS, FINDERS, MIXTURE_ROWS
from bindscope.studies.binding_id.tasks.scenes import draw_pairs
from bindscope.studies.binding_id.tasks.task import Attribute, Pairs, Pictures, Question

Row = dict[str, Any]
# Splits share the words of all other attributes.
_NULL_WORDS: tuple[Attribute, ...] = ("shape", "colour", "item")

ADDING = frozenset({"mean", "nulls", "doses", "transfer", "cyclic", "subspaces"})
"""Experiments of mean differences, which are estimated for them."""


@dataclass(frozen=True, eq=False)
class Results:
    """What a model answered, and what it says.

    Attributes
    ----------
    rows, positions, vectors, heads, mixture
        Rows of the tables, without names and keys.
    answers
        Log-probabilities by experiment, float32 (n, trials, queries, candidates); losses of fits
        of subspaces, by ``<way>.<fit>``, float32 (steps,), in nats.
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
    spans = {
        way: resolve(FINDERS[way])(engine, other, pictures, estimates, reading, spec)
        for way in finders(spec)
    }
    asked: dict[str, _Asked] = {}
    read = Read.nothing()
    for rows in batches(task["rows"], spec["batch_size"]):
        batch = _batch(engine, pictures, pairs, rows, reading, estimates, spec, spans)
        if estimates is not None:
            read.add(engine, batch.base, estimates.means)
        for name in spec["experiments"]:
            plan = plans(spec)[name](batch)
            logs = plan.answered(engine, batch.base)
            asked.setdefault(name, _Asked.about(plan)).add(logs, _beside(name, plan, batch, rows))
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
            found.rows.extend(rows_of(name, answers, one.trials, *statistics))
    found.answers.update(
        (f"{way}.{fit}", losses)
        for way, span in spans.items()
        for fit, losses in span.losses.items()
    )
    return found


def finders(spec: Mapping[str, Any]) -> list[str]:
    """Return what finds the subspaces of a job, beside mean tokens."""
    ways = spec["subspaces_by"] if "subspaces" in spec["experiments"] else ()
    return [way for way in ways if way in FINDERS]


def plans(spec: Mapping[str, Any]) -> dict[str, Callable[[Batch], Plan]]:
    """Return the experiments of a job by name, each a function of the batch alone."""
    level = spec["levels"][-1]
    options: dict[str, tuple[Any, ...]] = {
        "positions": (spec["shares"],), "mean": (spec["levels"],), "nulls": (level,),
        "doses": (level, spec["scales"]), "transfer": (level,), "layers": (spec["window"],),
        "pairing": (spec["window"],), "heads": (spec["head_layers"],),
        "subspaces": (
            level, spec["dimensions"], spec["coefficients"], spec["subspaces_by"],
        ),
    }  # fmt: skip

    def bound(name: str) -> Callable[[Batch], Plan]:
        plan = resolve(EXPERIMENTS[name])
        return lambda batch: plan(batch, *options.get(name, ()))

    return {name: bound(name) for name in spec["experiments"]}


def _batch(
    engine: Engine, pictures: Pictures | None, pairs: Pairs, rows: NDArray[np.int64],
    reading: Reading, estimates: Estimates | None, spec: Mapping[str, Any],
    spans: Mapping[str, Spans],
) -> Batch:  # fmt: skip
    chosen = replace(pairs, base=pairs.base[rows], source=pairs.source[rows])
    null = None
    if spec["null_query"] and reading.by in _NULL_WORDS:
        words = reading.rule.words("estimation")
        draw = rng(spec["seed"], int(rows[0]), 1)
        null = Question(reading.by, words, draw.integers(len(words.of(reading.by)), size=len(rows)))
    return Batch(engine, pictures, chosen, reading, estimates, null, spec["seed"], spans)


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
