"""Runs the experiments of a suite on one task and one model, each by itself, and its jobs.

Experiments share no product but the mean differences: contexts of the tested rows are read anew by
each, which costs passes (of nine experiments about three times as many contexts) and keeps what is
done when one of them fails or another one is added.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from bindscope.core.devices import hold_device
from bindscope.core.errors import ModelError
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.job import Job
from bindscope.core.progress import progress_bar
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.answers.rows import (
    DECIDING,
    Answers,
    Predictions,
    account_predictions,
    rivals_of,
    rows_of,
)
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.experiments.estimates import Estimates, Sums, batches
from bindscope.studies.binding_id.experiments.plans import Batch, Each, Plan
from bindscope.studies.binding_id.registry import (
    ACCOUNTED,
    ADDING,
    EXPERIMENTS,
    MIXTURE_ROWS,
    OPTIONS,
    RECORDS,
    engine_reference,
)
from bindscope.studies.binding_id.tasks.scenes import Pictures, Rule, draw_pairs

if TYPE_CHECKING:
    from torch import Tensor

    from bindscope.fitting.checkpoint import Checkpoint, Checkpoints

Row = dict[str, Any]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows of one experiment's table without names and keys, and its log-probabilities.

    These are float32 (n, trials, queries, candidates).
    """

    rows: list[Row]
    answers: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of the tables, without names and keys."""

    rows: list[Row] = field(default_factory=list)
    vectors: list[Row] = field(default_factory=list)


def run(engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any]) -> Results:
    """Run all experiments of a suite on one model, whose weights stay as they are.

    `spec` are the suite's options and `task`.
    """
    results, estimates = Results(), None
    if ADDING & set(spec["experiments"]):
        estimates, rows = estimated(engine, pictures, spec)
        results.vectors.extend(rows)
    for name in spec["experiments"]:
        options = [spec[key] for key in OPTIONS.get(name, ())]
        experiment_spec = {**spec, "experiment": name, "options": options}
        results.rows.extend(ask(engine, pictures, experiment_spec, estimates).rows)
    return results


def estimated(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
) -> tuple[Estimates, list[Row]]:  # fmt: skip
    """Estimate mean differences, and tell in rows of `binding_id_vectors` what they are like.

    `checkpoint` has the sums over batches of an earlier attempt, and takes more.
    """
    task, rule = spec["task"], Rule.from_task(spec["task"])
    scenes = draw_pairs(rule, "estimation", task["estimation_rows"], task["seed"]).base
    sums, done, saved = Sums(scenes), 0, time.monotonic()
    if checkpoint and (before := checkpoint.read()) is not None:
        sums.totals = {name: total.numpy() for name, total in before[0].items()}
        done = before[1]["step"]
    parts = list(batches(len(scenes), spec["batch_size"]))[done:]
    for number, rows in enumerate(progress_bar(parts, "batches of mean differences"), done + 1):
        sums.add(engine, scenes[rows], pictures)
        if checkpoint and checkpoint.is_due(time.monotonic() - saved):
            checkpoint.write(_tensors(sums.totals), {"step": number})
            saved = time.monotonic()
    return sums.solved(), list(sums.vector_rows(engine, scenes))


def ask(
    engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any],
    estimates: Estimates | None = None, checkpoints: Checkpoints | None = None,
) -> Asked:  # fmt: skip
    """Run one experiment on one model.

    `spec` is that of a job: `experiment` with its options, and `task`. `checkpoints` keep answers
    of batches, and of parts of them.

    ModelError if answers are not finite.
    """
    name, task, rule = spec["experiment"], spec["task"], Rule.from_task(spec["task"])
    pairs = draw_pairs(rule, "test", task["rows"], task["seed"])
    answered: list[dict[str, Doubles]] = []
    plan: Plan | None = None
    for rows in progress_bar(list(batches(task["rows"], spec["batch_size"])), f"batches of {name}"):
        plan, batch = None, Batch(
            engine, pictures, pairs[rows], rule, estimates, spec["seed"]
        )  # fmt: skip

        def answer(parts: Checkpoints | None, batch: Batch = batch) -> dict[str, Doubles]:
            nonlocal plan
            plan = plan_of(spec)(batch)
            logs = plan.answered(engine, batch.base, _each(parts))
            _refuse_nonsense(engine, logs)
            added = [trial.lengths(len(batch.pairs.base)) for trial in plan.trials]
            return {"logs": logs, "lengths": np.stack(added, axis=1)}

        answered.append(_remembered(checkpoints, answer))
    plan = plan or plan_of(spec)(batch)
    logs, lengths = (
        np.concatenate([part[kind] for part in answered]) for kind in ("logs", "lengths")
    )
    return Asked(list(_rows(spec, plan, logs, lengths)), logs.astype(np.float32))


def _refuse_nonsense(engine: Any, logs: Doubles) -> None:
    if not np.isfinite(logs).all():
        raise ModelError(
            engine.adapter.where if hasattr(engine, "adapter") else "the model",
            "its answers are not finite numbers",
            "check its weights; load it in bfloat16 or float32, as float16 overflows",
        )  # fmt: skip


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


def _rows(spec: Mapping[str, Any], plan: Plan, logs: Doubles, lengths: Doubles) -> Iterator[Row]:
    """Return the rows of an experiment's table."""
    name, statistics = spec["experiment"], (spec["resamples"], spec["seed"])
    expected = [trial.expected for trial in plan.trials]
    answers = Answers(logs, list(plan.queries), list(plan.candidates), expected)
    if name == "mixture":
        rows: Iterator[Row] = resolve(MIXTURE_ROWS)(answers, *statistics)
        return rows
    by_account: tuple[Any, ...] = ()
    if name in DECIDING:
        predictions = _predictions(canonical_json(spec["task"]))
        by_account = (predictions[name], rivals_of(list(predictions.values())))
    return rows_of(name, answers, plan.trials, lengths, *statistics, *by_account)


@lru_cache(maxsize=1)  # the same for all oracles of a job
def _predictions(task_json: str) -> dict[str, Predictions]:
    """Return what accounts predict in all experiments that tell them apart.

    All of them, whichever the job runs: they say together which accounts are rivals.
    """
    task = json.loads(task_json)
    rule = Rule.from_task(task)
    pairs = draw_pairs(rule, "test", task["rows"], task["seed"])
    plans = {name: resolve(reference) for name, reference in ACCOUNTED.items()}
    return account_predictions(plans, pairs, rule)


def estimates(job: Job) -> None:
    """Estimate mean differences on a task, model by model.

    `estimates` holds what `estimates.Estimates.stored` gives, each name behind ``<model>.``.
    """
    lines: list[str] = []
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with hold_device(job.spec.get("device", "cpu")) as device, _checkpoints(job) as checkpoints:
        for model in job.spec["models"]:
            engine, pictures = _loaded(model, job, device)
            checkpoint = checkpoints.take() if checkpoints else None
            measured, rows = estimated(engine, pictures, job.spec, checkpoint)
            lines += _lines(rows, {**_names(job, model), **job.keys})
            arrays |= {
                f"{model['name']}.{name}": values for name, values in measured.stored().items()
            }
        write_atomic(job.output["vectors"], "".join(lines))
        write_atomic(job.output["estimates"], save(arrays))


def interventions(job: Job) -> None:
    """Run an experiment of a suite on a task, or on records, model by model.

    `answers` holds log-probabilities by model, float32 (rows, trials, queries, candidates), in the
    order of the table's rows.
    """
    lines: list[str] = []
    answers: dict[str, np.ndarray[Any, Any]] = {}
    with hold_device(job.spec.get("device", "cpu")) as device, _checkpoints(job) as checkpoints:
        for model in job.spec["models"]:
            results = _answered(model, job, device, checkpoints)
            lines += _lines(results.rows, {**_names(job, model), **job.keys})
            answers[model["name"]] = results.answers
        write_atomic(job.output["rows"], "".join(lines))
        write_atomic(job.output["answers"], save(answers))


def _answered(
    model: Mapping[str, Any], job: Job, device: str, checkpoints: Checkpoints | None
) -> Asked:
    """Ask one model about a task's scenes, or about a user's own photos."""
    if "records" in job.spec:
        photos: Asked = resolve(RECORDS)(model, _weights(job), job.spec, device)
        return photos
    engine, pictures = _loaded(model, job, device)
    stored = next((Path(path) for path in job.input.estimates), None)
    known = None if stored is None else Estimates.read(stored, model["name"])
    return ask(engine, pictures, job.spec, known, checkpoints)


def _loaded(model: Mapping[str, Any], job: Job, device: str) -> Any:
    load = resolve(str(engine_reference(model["kind"])))
    return load(model, Rule.from_task(job.spec["task"]), _weights(job), device)


def _weights(job: Job) -> Path | None:
    return next((Path(path) for path in job.input.weights), None)


@contextmanager
def _checkpoints(job: Job) -> Iterator[Checkpoints | None]:
    """Keep what takes long until the results are safe; oracles are quick, and do without torch."""
    if all(model["kind"] == "oracle" for model in job.spec["models"]):
        yield None
        return
    from bindscope.fitting.checkpoint import Checkpoints

    output = Path(job.output.get("answers") or job.output["estimates"])
    checkpoints = Checkpoints(output, " ".join(job.keys.values()))
    yield checkpoints
    checkpoints.remove()


def _names(job: Job, model: Mapping[str, Any]) -> dict[str, str]:
    return {
        "suite": job.wildcards["suite"], "task": job.wildcards["task"],
        "model": model["name"], "origin": model["origin"],
    }  # fmt: skip


def _lines(rows: Iterable[dict[str, Any]], names: dict[str, str]) -> list[str]:
    return [canonical_json({**names, **row}) + "\n" for row in rows]
