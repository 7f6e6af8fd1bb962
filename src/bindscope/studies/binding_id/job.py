"""The job of a suite: which models it loads, and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.job import Job
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.registry import ENGINES, RECORDS
from bindscope.studies.binding_id.suite import Results, run

TABLES = ("rows", "positions", "vectors", "heads", "mixture")


def interventions(job: Job) -> None:
    """Run all experiments of a suite on a task, or on records, model by model.

    `answers` holds the log-probabilities of every experiment, ``<model>.<experiment>``, float32
    (rows, trials, queries, candidates), in the order of the table's rows.
    """
    weights = next((Path(path) for path in job.input.weights), None)
    lines: dict[str, list[str]] = {name: [] for name in TABLES}
    answers: dict[str, np.ndarray[Any, Any]] = {}
    for model in job.spec["models"]:
        found = _found(model, weights, job.spec)
        names = {
            "suite": job.wildcards["suite"], "task": job.wildcards["task"],
            "model": model["name"], "origin": model["origin"],
        }  # fmt: skip
        by = "words" if "records" in job.spec else Reading.of(job.spec).by
        for table in TABLES:
            more = {} if table == "vectors" else {"named_by": by}
            lines[table] += _lines(getattr(found, table), {**names, **more, **job.keys})
        answers |= {f"{model['name']}.{name}": logs for name, logs in found.answers.items()}
    for table in TABLES:
        write_atomic(job.output[table], "".join(lines[table]))
    write_atomic(job.output["answers"], save(answers))


def _found(model: Mapping[str, Any], weights: Path | None, spec: Mapping[str, Any]) -> Results:
    """Ask one model about a task's scenes, or about a user's own photos."""
    if "records" in spec:
        photos: Results = resolve(RECORDS)(model, weights, spec)
        return photos
    engine, pictures = resolve(ENGINES[model["kind"]])(model, Reading.of(spec), weights)
    return run(engine, pictures, spec)


def _lines(rows: Iterable[dict[str, Any]], names: dict[str, str]) -> list[str]:
    return [canonical_json({**names, **row}) + "\n" for row in rows]
