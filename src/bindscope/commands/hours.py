"""How long jobs take: what jobs of their kind and size have taken, by results/benchmarks.

A job leaves a record of what it was and took (`core.job`). Nothing else is known of time: where no
record fits a job, its time is not known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bindscope.core.graph import Product
from bindscope.core.job import BENCHMARKS

# Wildcards that say what is done, and not of what data: jobs of a kind agree in them.
_WHAT = ("probe", "experiment", "encoder", "approximator", "table", "figure")
_ALIKE = 10
"""By how much a job may be larger or smaller than one that has run, to be forecast by it."""
SAFETY = 1.2
"""How much longer than its like a job is forecast to take."""

JobKind = tuple[str, ...]


@dataclass(frozen=True)
class Hours:
    """What jobs take together.

    Attributes
    ----------
    gpu
        Seconds of GPUs.
    wall
        Seconds that pass where all cores work, and one GPU.
    unknown
        Jobs whose time is not known.
    """

    gpu: float
    wall: float
    unknown: tuple[Product, ...]


def kind_of(rule: str, device: str, wildcards: Mapping[str, str]) -> JobKind:
    """Return what jobs have in common whose times compare."""
    return rule, device, *(wildcards.get(name, "") for name in _WHAT)


def read_records(folder: Path = BENCHMARKS) -> dict[JobKind, list[tuple[float, float]]]:
    """Return units of work and seconds of jobs that ran here, by their kind."""
    records: dict[JobKind, list[tuple[float, float]]] = {}
    for path in folder.rglob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # of other programs, or cut off
            record = json.loads(path.read_text())
            kind = kind_of(record["rule"], record["device"], record["wildcards"])
            records.setdefault(kind, []).append((float(record["units"]), float(record["s"])))
    return records


def seconds_of(
    product: Product, records: Mapping[JobKind, Iterable[tuple[float, float]]]
) -> float | None:
    """Return the seconds of a job by those of its kind and about its size; None: not known."""
    units = max(1, product.work.units)
    of_kind = records.get(kind_of(product.rule, product.work.device, product.wildcards), ())
    alike = [(size, s) for size, s in of_kind if units / _ALIKE <= size <= units * _ALIKE]
    if not alike:
        return None
    return SAFETY * units * sum(s for _, s in alike) / sum(size for size, _ in alike)


def hours_of(products: Iterable[Product]) -> Hours:
    """Add up what is known of the times of jobs."""
    records, cpu, gpu, longest, unknown = read_records(), 0.0, 0.0, 0.0, []
    for product in products:
        seconds = seconds_of(product, records)
        if seconds is None:
            unknown.append(product)
            continue
        longest = max(longest, seconds)
        cpu += seconds * int(product.content.get("threads", 1))
        gpu += seconds * (product.work.device == "cuda")
    wall = max(cpu / (os.cpu_count() or 1), gpu, longest)
    return Hours(gpu, wall, tuple(unknown))
