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
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from bindscope.core.array_types import Doubles, Integers
from bindscope.core.devices import hold_device
from bindscope.core.errors import ModelError
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.job import Job
from bindscope.core.progress import progress_bar
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.answers.accounts import (
    Predictions,
    account_rows,
    find_rivals,
    predict,
)
from bindscope.studies.binding_id.answers.rows import Answers, trial_rows
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.estimates import Estimates, Sums, batches
from bindscope.studies.binding_id.experiment import Experiment
from bindscope.studies.binding_id.plans import Batch, Each, Plan
from bindscope.studies.binding_id.registry import (
    ENGINES,
    RECORDS,
    find_experiment,
    find_judged,
)
from bindscope.studies.binding_id.tasks.scenes import Pictures, Rule, draw_pairs
from bindscope.tables.rows import Row

if TYPE_CHECKING:
    from torch import Tensor

    from bindscope.fitting.checkpoint import Checkpoint, Checkpoints


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """Rows of one experiment's table without names and keys, and its log-probabilities.

    These are float32 (n, trials, queries, candidates).
    """

    rows: list[Row]
    answers: NDArray[np.float32]


def run(engine: Engine, pictures: Pictures | None, spec: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Run all experiments of a suite on one model; return rows by table, without names and keys.

    `spec` are the suite's options and `task`. The model's weights stay as they are.
    """
    tables: dict[str, list[Row]] = {"binding_id": []}
    experiments = {name: find_experiment(name) for name in spec["experiments"]}
    estimates = None
    if any(experiment.estimates for experiment in experiments.values()):
        estimates, tables["binding_id_vectors"] = estimated(engine, pictures, spec)
    for name, experiment in experiments.items():
        options = [spec[key] for key in experiment.options]
        experiment_spec = {**spec, "experiment": name, "options": options}
        tables["binding_id"] += ask(engine, pictures, experiment_spec, estimates).rows
    return tables


def estimated(
    engine: Engine,
    pictures: Pictures | None,
    spec: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
) -> tuple[Estimates, list[Row]]:
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
    engine: Engine,
    pictures: Pictures | None,
    spec: Mapping[str, Any],
    estimates: Estimates | None = None,
    checkpoints: Checkpoints | None = None,
) -> ExperimentResult:
    """Run one experiment on one model.

    `spec` is that of a job: `experiment` with its options, and `task`. `checkpoints` keep answers
    of batches, and of parts of them.

    ModelError if answers are not finite.
    """
    name, task, rule = spec["experiment"], spec["task"], Rule.from_task(spec["task"])
    experiment = find_experiment(name)
    pairs = draw_pairs(rule, "test", task["rows"], task["seed"])

    def make_plan(rows: Integers) -> tuple[Batch, Plan]:
        batch = Batch(engine, pictures, pairs[rows], rule, estimates, spec["seed"])
        return batch, experiment.plan(batch, *spec["options"])

    def answer(rows: Integers, parts: Checkpoints | None) -> dict[str, Doubles]:
        batch, plan = make_plan(rows)  # contexts are large: they go with the batch
        logs = plan.answered(engine, batch.base, _each(parts))
        _refuse_nonsense(engine, logs)
        added = [trial.lengths(len(rows)) for trial in plan.trials]
        return {"logs": logs, "lengths": np.stack(added, axis=1)}

    answered = [
        _remembered(checkpoints, partial(answer, rows))
        for rows in progress_bar(
            list(batches(task["rows"], spec["batch_size"])), f"batches of {name}"
        )
    ]
    logs, lengths = (
        np.concatenate([part[kind] for part in answered]) for kind in ("logs", "lengths")
    )
    _, plan = make_plan(np.arange(1))  # all batches have the same trials
    return ExperimentResult(
        list(_rows(spec, experiment, plan, logs, lengths)), logs.astype(np.float32)
    )


def _refuse_nonsense(engine: Any, logs: Doubles) -> None:
    if not np.isfinite(logs).all():
        raise ModelError(
            engine.adapter.where if hasattr(engine, "adapter") else "the model",
            "its answers are not finite numbers",
            "check its weights; load it in bfloat16 or float32, as float16 overflows",
        )


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


def _rows(
    spec: Mapping[str, Any], experiment: Experiment, plan: Plan, logs: Doubles, lengths: Doubles
) -> Iterator[Row]:
    """Yield the rows of an experiment's table: what was done, and what its answers are."""
    things, statistics = spec["task"]["things"], (spec["resamples"], spec["seed"])
    answers = Answers(logs, [trial.expected for trial in plan.trials])
    if experiment.rows:
        rows = experiment.rows(answers, *statistics)
    else:
        rows = trial_rows(experiment, answers, plan.trials, *statistics)
    if experiment.judged:
        predictions = _predictions(canonical_json(spec["task"]))
        judged = predictions[spec["experiment"]], find_rivals(list(predictions.values()))
        rows = chain(rows, account_rows(answers, plan.trials, *judged, *statistics))
    added = lengths.mean(axis=0)
    done = [
        {**trial.columns(things), "length": None if np.isnan(length) else float(length)}
        for trial, length in zip(plan.trials, added, strict=True)
    ]
    for row in rows:
        yield {"experiment": spec["experiment"], **done[row["trial"]], **row}


@lru_cache(maxsize=1)  # the same for all oracles of a job
def _predictions(task_json: str) -> dict[str, Predictions]:
    """Return what accounts predict in all experiments that tell them apart.

    All of them, whichever the job runs: they say together which accounts are rivals.
    """
    task = json.loads(task_json)
    rule = Rule.from_task(task)
    pairs = draw_pairs(rule, "test", task["rows"], task["seed"])
    return predict(find_judged(), pairs, rule)


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
) -> ExperimentResult:
    """Ask one model about a task's scenes, or about a user's own photos."""
    if "records" in job.spec:
        photos: ExperimentResult = resolve(RECORDS)(model, _weights(job), job.spec, device)
        return photos
    engine, pictures = _loaded(model, job, device)
    stored = next((Path(path) for path in job.input.estimates), None)
    known = None if stored is None else Estimates.read(stored, model["name"])
    return ask(engine, pictures, job.spec, known, checkpoints)


def _loaded(model: Mapping[str, Any], job: Job, device: str) -> Any:
    load = resolve(ENGINES[model["kind"]])
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
        "suite": job.wildcards["suite"],
        "task": job.wildcards["task"],
        "model": model["name"],
        "origin": model["origin"],
    }


def _lines(rows: Iterable[dict[str, Any]], names: dict[str, str]) -> list[str]:
    return [canonical_json({**names, **row}) + "\n" for row in rows]
