"""Dual encoders out of the files of their jobs, and what they embed: for who analyses them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from bindscope.studies.concepts.dual.encoders.base import DualEncoder
from bindscope.studies.concepts.dual.job import run_of
from bindscope.studies.concepts.dual.objects import Ids
from bindscope.studies.concepts.dual_config import DualEncoders, Selected


@dataclass(frozen=True)
class StoredRun:
    """One coverage and seed of a job.

    Attributes
    ----------
    coverage, seed
        Which one.
    encoder
        Its encoders, on the CPU.
    train, validation, test
        Its objects, ascending int64.
    """

    coverage: float
    seed: int
    encoder: DualEncoder
    train: Ids
    validation: Ids
    test: Ids


def stored_runs(
    path: Path | str, encoder: Mapping[str, Any], sizes: Sequence[int]
) -> Iterator[StoredRun]:
    """Yield the runs of a job after its last step.

    Parameters
    ----------
    path
        The job's weights.
    encoder
        Kind and options, as the configuration has them.
    sizes
        The job's numbers of values.
    """
    # Of an entry, only its encoder is read: coverages and seeds stand in the file.
    fields = {"name": "stored", "encoder": encoder, "spaces": [tuple(sizes)], "coverages": [0.5]}
    return read_runs(path, DualEncoders.model_validate(fields), sizes)


def read_runs(
    path: Path | str, entry: DualEncoders, sizes: Sequence[int], selected: Selected = "final"
) -> Iterator[StoredRun]:
    """Yield the runs of a job, in its order.

    Parameters
    ----------
    path
        The job's weights.
    entry, sizes
        The entry of the configuration, and the job's numbers of values.
    selected
        Which weights.
    """
    with safe_open(str(path), framework="pt") as file:
        weights = {
            name.removeprefix(f"{selected}."): file.get_tensor(name)
            for name in file.keys()  # noqa: SIM118
            if name.startswith(f"{selected}.")
        }
        for i, about in enumerate(json.loads(file.metadata()["runs"])):
            parts = [
                file.get_tensor(f"objects.{i}.{part}").numpy()
                for part in ("train", "validation", "test")
            ]
            encoder = run_of(entry, sizes, about["seed"], weights, i)
            yield StoredRun(about["coverage"], about["seed"], encoder, *parts)
