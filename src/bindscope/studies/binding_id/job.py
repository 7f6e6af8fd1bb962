"""The jobs of a suite: which models they load, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from bindscope.core.devices import hold_device
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.job import Job
from bindscope.core.registries import resolve
from bindscope.studies.binding_id.experiments.estimates import Estimates
from bindscope.studies.binding_id.experiments.trials import Each
from bindscope.studies.binding_id.registry import RECORDS, engine_reference
from bindscope.studies.binding_id.suite import Asked, ask, estimated
from bindscope.studies.binding_id.tasks.prompts import Reading

if TYPE_CHECKING:
    from bindscope.fitting.checkpoint import Checkpoint


def estimates(job: Job) -> None:
    """Estimate mean differences on a task, model by model.

    `estimates` holds what `estimates.Estimates.stored` gives, each name behind ``<model>.``.
    """
    lines: list[str] = []
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with _device(job) as device:
        for model in job.spec["models"]:
            engine, pictures = _loaded(model, job, device)
            state = _Kept.of(job) if _keeps(model) else None
            measured, rows = estimated(engine, pictures, job.spec, state)
            lines += _lines(rows, {**_names(job, model), **job.keys})
            arrays |= {
                f"{model['name']}.{name}": values for name, values in measured.stored().items()
            }
    write_atomic(job.output["vectors"], "".join(lines))
    write_atomic(job.output["estimates"], save(arrays))
    _forget(job)


def interventions(job: Job) -> None:
    """Run an experiment of a suite on a task, or on records, model by model.

    `answers` holds log-probabilities by model, float32 (rows, trials, queries, candidates), in the
    order of the table's rows; of one that answers in bfloat16 also those of a few rows' control in
    float32, ``<model>.float32`` (rows, queries, candidates).
    """
    lines: list[str] = []
    answers: dict[str, np.ndarray[Any, Any]] = {}
    with _device(job) as device:
        for model in job.spec["models"]:
            results = _found(model, job, device)
            by = "words" if "records" in job.spec else Reading.of(job.spec).by
            lines += _lines(results.rows, {**_names(job, model), "named_by": by, **job.keys})
            answers[model["name"]] = results.answers
            if results.checked is not None:
                answers[f"{model['name']}.float32"] = results.checked
    write_atomic(job.output["rows"], "".join(lines))
    write_atomic(job.output["answers"], save(answers))
    _forget(job)


def _found(model: Mapping[str, Any], job: Job, device: str) -> Asked:
    """Ask one model about a task's scenes, or about a user's own photos."""
    if "records" in job.spec:
        photos: Asked = resolve(RECORDS)(model, _weights(job), job.spec, device)
        return photos
    engine, pictures = _loaded(model, job, device)
    stored = next((Path(path) for path in job.input.estimates), None)
    known = None if stored is None else Estimates.read(stored, model["name"])
    state = _Kept.of(job) if _keeps(model) else None
    return ask(engine, pictures, job.spec, known, state)


def _loaded(model: Mapping[str, Any], job: Job, device: str) -> Any:
    load = resolve(str(engine_reference(model["kind"])))
    return load(model, Reading.of(job.spec), _weights(job), device)


def _weights(job: Job) -> Path | None:
    return next((Path(path) for path in job.input.weights), None)


@contextmanager
def _device(job: Job) -> Iterator[str]:
    """Give a free device of the kind that the job is planned for."""
    with hold_device(job.spec.get("device", "cpu")) as device:
        yield device


@dataclass(frozen=True)
class _Kept:
    """Answers of batches on disk, or sums over batches."""

    checkpoint: Checkpoint
    output: Path

    @classmethod
    def of(cls, job: Job) -> _Kept:
        from bindscope.fitting.checkpoint import Checkpoint  # torch, which oracles do without

        output = _largest(job)
        path = output.with_name(f"{output.name}.checkpoint")
        return cls(Checkpoint(path, " ".join(job.keys.values())), output)

    def write(self, arrays: dict[str, NDArray[np.float64]], batches: int) -> None:
        """Keep the answers of the first batches."""
        import torch

        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        self.checkpoint.write(tensors, {"step": batches})

    def read(self) -> tuple[dict[str, NDArray[np.float64]], int] | None:
        """Return what was kept, and of how many batches."""
        arrays = self.checkpoint.read()
        if arrays is None:
            return None
        tensors, record = arrays
        return {name: value.numpy() for name, value in tensors.items()}, int(record["step"])

    def inside(self, batch: int) -> Each:
        """Return a `map` that keeps the answers of parts of a batch."""
        import torch

        from bindscope.fitting.checkpoint import Checkpoints, State

        parts = Checkpoints(self.output, f"{self.checkpoint.key} batch {batch}")

        def keep(
            make: Callable[[Any], NDArray[np.float64]], items: Sequence[Any]
        ) -> Iterator[NDArray[np.float64]]:
            def state(item: Any) -> State:
                return {"logs": torch.from_numpy(make(item))}, {}

            return (tensors["logs"].numpy() for tensors, _ in parts.each(items, state))

        return keep


def _keeps(model: Mapping[str, Any]) -> bool:
    """Whether a model takes so long that what it has computed is kept."""
    return bool(model["kind"] != "oracle")


def _largest(job: Job) -> Path:
    """Return the output beside which checkpoints stand, which Snakemake does not know."""
    return Path(job.output.get("answers") or job.output["estimates"])


def _forget(job: Job) -> None:
    """Delete what was kept, when the results are safe."""
    path = _largest(job)
    for pattern in (f"{path.name}.checkpoint", f"{path.name}.*.checkpoint"):
        for checkpoint in path.parent.glob(pattern):
            checkpoint.unlink()


def _names(job: Job, model: Mapping[str, Any]) -> dict[str, str]:
    return {
        "suite": job.wildcards["suite"], "task": job.wildcards["task"],
        "model": model["name"], "origin": model["origin"],
    }  # fmt: skip


def _lines(rows: Iterable[dict[str, Any]], names: dict[str, str]) -> list[str]:
    return [canonical_json({**names, **row}) + "\n" for row in rows]
