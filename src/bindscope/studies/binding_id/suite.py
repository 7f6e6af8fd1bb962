"""Runs the experiments of a suite on one task and one model, each by itself.

Experiments share no product but the mean differences: contexts of the tested rows are read anew by
each, which costs passes (of nine experiments about three times as many contexts) and keeps what is
done when one of them fails or another one is added.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bindscope.core.files import canonical_json
from bindscope.core.progress import progress_bar
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.answers.accounts import DECIDING, Accounts
from bindscope.studies.binding_id.answers.metrics import Answers
from bindscope.studies.binding_id.answers.rows import rows_of, vector_rows
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import Estimates, Sums, batches, read
from bindscope.studies.binding_id.experiments.heads import head_rows
from bindscope.studies.binding_id.experiments.trials import Batch, Each, Plan, Trial
from bindscope.studies.binding_id.registry import (
    ADDING,
    EXPERIMENTS,
    MIXTURE_ROWS,
    OPTIONS,
    TABLES,
)
from bindscope.studies.binding_id.tasks.prompts import Reading
from bindscope.studies.binding_id.tasks.scenes import Pairs, Pictures, Rule, draw_pairs

log = logging.getLogger(__name__)
Row = dict[str, Any]
Doubles = NDArray[np.float64]
_CHECKED = 4  # rows that are answered in float32, too
_SAVED_S = 30.0  # between two states on disk
_ORACLES_READ = 100  # rows at once


class Kept(Protocol):
    """Where the answers of batches are kept until all are there (`fitting.checkpoint`)."""

    def write(self, arrays: dict[str, Doubles], batches: int) -> None:
        """Keep the answers of the first batches."""

    def read(self) -> tuple[dict[str, Doubles], int] | None:
        """Return what was kept, and of how many batches; None: nothing."""

    def inside(self, batch: int) -> Each:
        """Return a `map` that keeps the answers of parts of a batch."""


@runtime_checkable
class Remembering(Protocol):
    """An engine that goes on from contexts in memory, so that rounding hangs on what it read."""

    def forget(self) -> None:
        """Read the next context from its start, as a new engine does."""


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows of one experiment's table without names and keys, and its log-probabilities.

    These are float32 (n, trials, queries, candidates); `checked` those of the first rows' control
    in float32, of models that answer in bfloat16.
    """

    rows: list[Row]
    answers: NDArray[np.float32]
    checked: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of the tables, without names and keys, and log-probabilities by experiment."""

    rows: list[Row] = field(default_factory=list)
    vectors: list[Row] = field(default_factory=list)
    heads: list[Row] = field(default_factory=list)
    mixture: list[Row] = field(default_factory=list)
    answers: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def run(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    check: Callable[[Doubles], None] = lambda _: None,
) -> Results:  # fmt: skip
    """Run all experiments of a suite on one model, whose weights stay as they are.

    `spec` are the suite's options and `task`; `check` may refuse the log-probabilities of a batch.
    """
    results, estimates = Results(), None
    if ADDING & set(spec["experiments"]):
        estimates, rows = estimated(engine, pictures, spec)
        results.vectors.extend(rows)
    for name in spec["experiments"]:
        if isinstance(engine, Remembering):
            engine.forget()
        options = [spec[key] for key in OPTIONS.get(name, ())]
        experiment_spec = {**spec, "experiment": name, "options": options}
        answered = ask(engine, pictures, experiment_spec, estimates, check=check, precise=False)
        getattr(results, TABLES.get(name, "rows")).extend(answered.rows)
        results.answers[name] = answered.answers
    return results


def estimated(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any], state: Kept | None = None
) -> tuple[Estimates, list[Row]]:
    """Estimate mean differences, and tell in rows of `binding_id_vectors` what they are like.

    `state` has the sums over batches of an earlier attempt, and takes more.
    """
    task, rule = spec["task"], Reading.of(spec).rule
    base = draw_pairs(rule, "test", task["rows"], task["seed"]).base
    other = draw_pairs(rule, "estimation", task["estimation_rows"], task["seed"]).base
    sums, done, saved = Sums(other), 0, time.monotonic()
    if state and (before := state.read()) is not None:
        sums.totals, done = before
    first, second = (list(batches(len(scenes), spec["batch_size"])) for scenes in (other, base))
    steps = range(done, len(first) + len(second))
    for number in progress_bar(steps, "batches of mean differences"):
        if number < len(first):
            sums.add(engine, other[first[number]], pictures)
        else:
            rows = second[number - len(first)]
            sums.add_read(engine, read(engine, base[rows], pictures))
        if state and time.monotonic() > saved + _SAVED_S:
            state.write(sums.totals, number + 1)
            saved = time.monotonic()
    estimates = sums.solved()
    return estimates, list(vector_rows(estimates, other, engine, sums.read_share))


def ask(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    estimates: Estimates | None = None, kept: Kept | None = None,
    check: Callable[[Doubles], None] = lambda _: None, precise: bool = True,
) -> Asked:  # fmt: skip
    """Run one experiment on one model.

    `spec` is that of a job: `experiment` with its options, and `task`. `kept` has answers of
    batches that an earlier attempt has left, and takes more; `check` may refuse those of a batch.
    `precise`: a model that answers in bfloat16 also answers a few rows in float32.
    """
    name, task, reading = spec["experiment"], spec["task"], Reading.of(spec)
    pairs = draw_pairs(reading.rule, "test", task["rows"], task["seed"])
    parts = list(batches(task["rows"], spec["batch_size"]))
    logs, beside = _before(kept)
    saved = time.monotonic()
    first = min(len(logs), len(parts) - 1)
    for i in progress_bar(range(first, len(parts)), f"batches of {name}"):
        batch = _batch(engine, pictures, pairs, parts[i], reading, estimates, spec)
        plan = plan_of(spec)(batch)
        if i == len(logs):
            logs.append(plan.answered(engine, batch.base, kept.inside(i) if kept else map))
            check(logs[-1])
            beside.append(_beside(name, plan, batch, parts[i]))
        if kept is not None and time.monotonic() > saved + _SAVED_S:
            kept.write(_stored(logs, beside), len(logs))
            saved = time.monotonic()
    trials = [trial.told() for _, group in plan.trials for trial in group]
    expected = [trial.expected for trial in trials]
    answers = Answers(np.concatenate(logs), list(plan.queries), list(plan.candidates), expected)
    rows = _rows(name, answers, trials, np.concatenate(beside), spec)

    def few() -> Batch:
        rows = parts[0][:_CHECKED]
        return _batch(engine, pictures, pairs, rows, reading, estimates, spec)

    checked = _in_float32(engine, plan_of(spec), few, answers.logs) if precise else None
    return Asked(list(rows), answers.logs.astype(np.float32), checked)


def plan_of(spec: Mapping[str, Any]) -> Callable[[Batch], Plan]:
    """Return the experiment of a job, a function of the batch alone."""
    plan: Callable[..., Plan] = resolve(EXPERIMENTS[spec["experiment"]])
    return lambda batch: plan(batch, *spec["options"])


def _rows(
    name: str, answers: Answers, trials: Sequence[Trial], beside: Doubles, spec: Mapping[str, Any]
) -> Iterator[Row]:
    """Return the rows of an experiment's table."""
    statistics = (spec["resamples"], spec["seed"])
    if name == "heads":
        return head_rows(answers, trials, beside, *statistics)
    if name == "mixture":
        rows: Iterator[Row] = resolve(MIXTURE_ROWS)(answers, *statistics)
        return rows
    by_account: tuple[Any, ...] = ()
    if name in DECIDING:
        accounts = _accounts(canonical_json(spec["task"]))
        by_account = (accounts.predictions(name), accounts.rivals())
    return rows_of(name, answers, trials, beside, *statistics, *by_account)


@lru_cache(maxsize=1)  # the same for all oracles of a job
def _accounts(task_json: str) -> Accounts:
    """Ask the experiments that tell accounts apart of an exact oracle of each account.

    All of them, whichever the job runs: they say together which accounts are rivals.
    """
    task = json.loads(task_json)
    reading = Reading(Rule.of(task))
    pairs = draw_pairs(reading.rule, "test", task["rows"], task["seed"])
    accounts = Accounts(reading.rule.mention, pairs.base.words)
    for rows in batches(len(pairs.base), _ORACLES_READ):
        for name in DECIDING:
            plan = plan_of({"experiment": name, "options": [["slot"]] * (name == "mean")})
            for account, oracle, known in accounts.oracles():
                batch = Batch(oracle, None, _rows_of(pairs, rows), reading, known)
                accounts.predict(name, account, plan(batch), batch.base)
    return accounts


def _rows_of(pairs: Pairs, rows: NDArray[np.int64]) -> Pairs:
    return replace(pairs, base=pairs.base[rows], source=pairs.source[rows])


def _batch(
    engine: Engine, pictures: Pictures | None, pairs: Pairs, rows: NDArray[np.int64],
    reading: Reading, estimates: Estimates | None, spec: Mapping[str, Any],
) -> Batch:  # fmt: skip
    first = int(rows[0])
    return Batch(engine, pictures, _rows_of(pairs, rows), reading, estimates, first, spec["seed"])


def _before(kept: Kept | None) -> tuple[list[Doubles], list[Doubles]]:
    """Return the answers of batches that were kept, and what stands beside them."""
    found = kept.read() if kept is not None else None
    if found is None:
        return [], []
    arrays, done = found
    logs, beside = ([arrays[f"{kind}.{i}"] for i in range(done)] for kind in ("logs", "beside"))
    return logs, beside


def _stored(logs: Sequence[Doubles], beside: Sequence[Doubles]) -> dict[str, Doubles]:
    kinds = {"logs": logs, "beside": beside}
    return {f"{kind}.{i}": part for kind, parts in kinds.items() for i, part in enumerate(parts)}


def _beside(name: str, plan: Plan, batch: Batch, rows: NDArray[np.int64]) -> Doubles:
    """Return what rows hold besides answers, (n, ...): where heads look, or what is added."""
    if name == "heads":
        return batch.engine.attention(batch.base, list(plan.queries.values()))
    trials = (trial for _, group in plan.trials for trial in group)
    return np.stack([trial.lengths(len(rows)) for trial in trials], axis=1)


def _in_float32(
    engine: Any, plan: Callable[[Batch], Plan], few: Callable[[], Batch], logs: Doubles
) -> NDArray[np.float32] | None:
    """Answer the control of a few rows in float32, and log how far a model's own answers are off.

    float32 (rows, queries, candidates); None of models that answer in float32 anyway, and where
    there is no room for them.
    """
    precise: Callable[[], AbstractContextManager[bool]] | None
    precise = getattr(engine, "in_float32", None)
    if precise is None:
        return None
    checked = None
    with precise() as there:
        if there:
            batch = few()
            control = replace(plan(batch), trials=[(None, [batch.control()])])
            checked = control.answered(engine, batch.base)[:, 0]
    if checked is None:
        return None
    usual = logs[: len(checked), 0]
    same = int((usual.argmax(axis=-1) == checked.argmax(axis=-1)).sum())
    total = usual[..., 0].size
    log.log(
        logging.INFO if same == total else logging.WARNING,
        "%d rows in float32: log-probabilities differ by up to %.3f nats, %d of %d answers agree",
        len(checked), np.abs(usual - checked).max(), same, total,
    )  # fmt: skip
    return checked.astype(np.float32)
