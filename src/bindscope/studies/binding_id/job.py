"""The jobs of a suite: which models they load, and what they write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from bindscope.core.devices import hold_device
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.job import Job
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.experiments.estimates import Estimates
from bindscope.studies.binding_id.registry import RECORDS, engine_reference
from bindscope.studies.binding_id.suite import Asked, ask, estimated
from bindscope.studies.binding_id.tasks.prompts import Reading

if TYPE_CHECKING:
    from bindscope.fitting.checkpoint import Checkpoints


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
            by = "words" if "records" in job.spec else Reading.from_spec(job.spec).by
            lines += _lines(results.rows, {**_names(job, model), "named_by": by, **job.keys})
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
    return load(model, Reading.from_spec(job.spec), _weights(job), device)


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
