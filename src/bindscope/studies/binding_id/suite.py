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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.files import canonical_json
from bindscope.core.progress import progress_bar
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.answers.metrics import Answers
from bindscope.studies.binding_id.answers.rows import DECIDING, Accounts, rows_of, vector_rows
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

if TYPE_CHECKING:
    from torch import Tensor

    from bindscope.fitting.checkpoint import Checkpoint, Checkpoints

log = logging.getLogger(__name__)
Row = dict[str, Any]
Doubles = NDArray[np.float64]
_CHECKED = 4  # rows that are answered in float32, too
_ORACLES_READ = 100  # rows at once


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
        options = [spec[key] for key in OPTIONS.get(name, ())]
        experiment_spec = {**spec, "experiment": name, "options": options}
        answered = ask(engine, pictures, experiment_spec, estimates, check=check, precise=False)
        getattr(results, TABLES.get(name, "rows")).extend(answered.rows)
        results.answers[name] = answered.answers
    return results


def estimated(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
) -> tuple[Estimates, list[Row]]:  # fmt: skip
    """Estimate mean differences, and tell in rows of `binding_id_vectors` what they are like.

    `checkpoint` has the sums over batches of an earlier attempt, and takes more.
    """
    task, rule = spec["task"], Reading.from_spec(spec).rule
    base = draw_pairs(rule, "test", task["rows"], task["seed"]).base
    scenes = draw_pairs(rule, "estimation", task["estimation_rows"], task["seed"]).base
    sums, done, saved = Sums(scenes), 0, time.monotonic()
    if checkpoint and (before := checkpoint.read()) is not None:
        sums.totals, done = (
            {name: total.numpy() for name, total in before[0].items()},
            before[1]["step"],
        )
    first, second = (list(batches(len(part), spec["batch_size"])) for part in (scenes, base))
    steps = range(done, len(first) + len(second))
    for number in progress_bar(steps, "batches of mean differences"):
        if number < len(first):
            sums.add(engine, scenes[first[number]], pictures)
        else:
            rows = second[number - len(first)]
            sums.add_read(engine, read(engine, base[rows], pictures))
        if checkpoint and checkpoint.is_due(time.monotonic() - saved):
            checkpoint.write(_tensors(sums.totals), {"step": number + 1})
            saved = time.monotonic()
    estimates = sums.solved()
    return estimates, list(vector_rows(estimates, scenes, engine, sums.read_share))


def ask(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    estimates: Estimates | None = None, checkpoints: Checkpoints | None = None,
    check: Callable[[Doubles], None] = lambda _: None, precise: bool = True,
) -> Asked:  # fmt: skip
    """Run one experiment on one model.

    `spec` is that of a job: `experiment` with its options, and `task`. `checkpoints` keep answers
    of batches, and of parts of them; `check` may refuse those of a batch. `precise`: a model that
    answers in bfloat16 also answers a few rows in float32.
    """
    name, task, reading = spec["experiment"], spec["task"], Reading.from_spec(spec)
    pairs = draw_pairs(reading.rule, "test", task["rows"], task["seed"])
    answered: list[dict[str, Doubles]] = []
    plan: Plan | None = None
    for rows in progress_bar(list(batches(task["rows"], spec["batch_size"])), f"batches of {name}"):
        plan, batch = None, _batch(engine, pictures, pairs, rows, reading, estimates, spec)

        def answer(parts: Checkpoints | None, batch: Batch = batch) -> dict[str, Doubles]:
            nonlocal plan
            plan = plan_of(spec)(batch)
            logs = plan.answered(engine, batch.base, _each(parts))
            check(logs)
            return {"logs": logs, "beside": _beside(name, plan, batch)}

        answered.append(_remembered(checkpoints, answer))
    plan = plan or plan_of(spec)(batch)
    logs, beside = (
        np.concatenate([part[kind] for part in answered]) for kind in ("logs", "beside")
    )
    trials = [trial.without_vectors() for _, group in plan.trials for trial in group]
    expected = [trial.expected for trial in trials]
    answers = Answers(logs, list(plan.queries), list(plan.candidates), expected)

    def few() -> Batch:
        rows = np.arange(min(_CHECKED, task["rows"], spec["batch_size"]))
        return _batch(engine, pictures, pairs, rows, reading, estimates, spec)

    checked = _in_float32(engine, plan_of(spec), few, logs) if precise else None
    return Asked(list(_rows(name, answers, trials, beside, spec)), logs.astype(np.float32), checked)


def _remembered(
    checkpoints: Checkpoints | None, make: Callable[[Checkpoints | None], dict[str, Doubles]]
) -> dict[str, Doubles]:
    """Return arrays that an earlier attempt may have made; oracles do without it, and torch."""
    if checkpoints is None:
        return make(None)
    tensors, _ = checkpoints.remember(lambda parts: (_tensors(make(parts)), {}))
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _each(parts: Checkpoints | None) -> Each:
    """Return a `map` that keeps the answers to parts of a batch."""
    if parts is None:
        return map

    def keep(make: Callable[[Any], Doubles], items: Sequence[Any]) -> Iterator[Doubles]:
        states = parts.each(items, lambda item: (_tensors({"logs": make(item)}), {}))
        return (tensors["logs"].numpy() for tensors, _ in states)

    return keep


def _tensors(arrays: Mapping[str, Doubles]) -> dict[str, Tensor]:
    import torch

    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}


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
    reading = Reading(Rule.from_task(task))
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


def _beside(name: str, plan: Plan, batch: Batch) -> Doubles:
    """Return what rows hold besides answers, (n, ...): where heads look, or what is added."""
    if name == "heads":
        return batch.engine.attention(batch.base, list(plan.queries.values()))
    trials = (trial for _, group in plan.trials for trial in group)
    return np.stack([trial.lengths(len(batch.pairs.base)) for trial in trials], axis=1)


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
