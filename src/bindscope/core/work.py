"""What a job takes, counted from its spec before anything runs.

Each step names a module whose function of the step's name takes a product and returns its `Work`
(`interfaces.Step.work`). Those functions import neither torch nor a study's science.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from bindscope.core.errors import ConfigError
from bindscope.core.store.manifest import ArrayLayout

if TYPE_CHECKING:
    from bindscope.core.graph import Product

Libraries = Literal["plain", "pandas", "torch", "hub"]
LIBRARIES_MB: Mapping[str, int] = {"plain": 90, "pandas": 160, "torch": 290, "hub": 520}
"""Memory of a process that has imported NumPy and Zarr, also pandas and matplotlib, torch, or also
timm and transformers; the largest of its kind in the default run and the rehearsals."""
CUDA_MB = 3000
"""What a process that computes on CUDA holds on the host: the driver's context and libraries."""
MARGIN = 1.1
"""By how much more memory is forecast than was counted."""
PATIENCE, SHORTEST_MIN = 4, 30
"""A job may take so many times what is counted, and at least so long."""
METADATA = 700
"""Bytes of an array's own record in a store, and about those of its line in the manifest."""


@dataclass(frozen=True)
class Work:
    """What one job takes.

    Attributes
    ----------
    libraries
        What it imports, which decides how long it takes to start and what it then holds.
    passes
        Images, texts or contexts that a model reads.
    flops
        Floating-point operations of matrix products and convolutions.
    elements
        Numbers that functions such as exp make, one by one.
    python
        Steps of the interpreter; small calls of NumPy and torch are about ten each.
    bytes_peak, bytes_device
        Memory beside the libraries, at most, and that on a GPU.
    bytes_disk, bytes_rows
        Files that it leaves, of these the rows that tables are made from;
        `temporary` where they go when they have been read, `elsewhere` where they are outside of
        the results (the cache of the hub).
    threads, device
        CPU threads, and `cpu` or `cuda`.
    key
        Key of the configuration that decides its memory, for who has too little.
    unknown
        Why less was counted than will be done; empty where all was.
    """

    libraries: Libraries = "plain"
    passes: float = 0
    flops: float = 0
    elements: float = 0
    python: float = 0
    bytes_peak: float = 0
    bytes_device: float = 0
    bytes_disk: float = 0
    bytes_rows: float = 0
    temporary: bool = False
    elsewhere: bool = False
    threads: int = 1
    device: str = "cpu"
    key: str = ""
    unknown: str = ""

    @property
    def memory_mb(self) -> int:
        """Memory of the process, MiB; its rule asks for that."""
        cuda = CUDA_MB if self.device == "cuda" else 0
        return ceil(MARGIN * (LIBRARIES_MB[self.libraries] + cuda + self.bytes_peak / 2**20))

    @property
    def runtime_min(self) -> int:
        """Minutes that its rule asks for, of the slowest machine of its kind that is known."""
        machine = DEVICES["t4"] if self.device == "cuda" else REFERENCE
        return max(SHORTEST_MIN, ceil(PATIENCE * machine.seconds(self) / 60))


@dataclass(frozen=True)
class Machine:
    """How fast a machine works; rates per second, of one CPU thread or of its GPU.

    Attributes
    ----------
    name
        For people.
    flops, elements, python
        As in `Work`.
    start_s
        Seconds to start a process with some libraries.
    gpu_flops, gpu_elements
        Those of a GPU; 0: there is none.
    """

    name: str
    flops: float
    elements: float
    python: float
    start_s: Mapping[str, float] = field(default_factory=dict)
    gpu_flops: float = 0
    gpu_elements: float = 0

    def seconds(self, work: Work) -> float:
        """Return the seconds of a job that has its threads to itself."""
        rest = work.python / self.python + self.start_s[work.libraries]
        if work.device == "cuda" and self.gpu_flops:
            return rest + work.flops / self.gpu_flops + work.elements / self.gpu_elements
        counted = work.flops / self.flops + work.elements / self.elements
        return rest + counted / work.threads


# Measured by `commands.calibration` on the two-core machine of the committed benchmarks.
_START = {"plain": 0.7, "pandas": 1.5, "torch": 2.2, "hub": 5.0}
REFERENCE = Machine("two-core reference machine", 8.5e10, 5.5e8, 1.9e7, _START)
# GPUs: half of the float32 rate (TF32 is off) and of the memory's rate that their makers give.
_GPUS = {
    "t4": (8.1e12, 3.2e11),
    "l4": (30e12, 3e11),
    "a100": (19.5e12, 2e12),
    "h100": (67e12, 3.35e12),
    "h200": (67e12, 4.8e12),
}
DEVICES: Mapping[str, Machine] = {
    name: Machine(
        name, REFERENCE.flops, REFERENCE.elements, REFERENCE.python, _START, flops / 2, rate / 16
    )
    for name, (flops, rate) in _GPUS.items()
}
"""Machines with a GPU of a name, and processors like the reference machine's."""


def stored(dtype: str, *shapes: Sequence[int], axis: int = 0) -> int:
    """Return the bytes of arrays in a store whose numbers are not compressed."""
    whole = [shape for shape in shapes if min(shape) > 0]
    return sum(METADATA + ArrayLayout.plan(tuple(s), dtype, axis).stored_bytes for s in whole)


def refuse(products: Iterable[Product], memory_mb: float, source: str) -> None:
    """Refuse jobs that cannot fit into memory, before anything runs.

    Parameters
    ----------
    products
        Jobs that would run; those that need more are refused.
    memory_mb
        What there is, MiB.
    source
        Configuration files, for the message.

    Raises
    ------
    ConfigError
        If there is one; the message is about the largest.
    """
    too_large = [made for made in products if made.work.memory_mb > memory_mb]
    if too_large:
        worst = max(too_large, key=lambda made: made.work.memory_mb)
        others = f", and so do {len(too_large) - 1} other jobs" if len(too_large) > 1 else ""
        key = worst.work.key or "datasets, n_scenes"
        raise ConfigError(
            f"{source}: {key}",
            f"{worst.path()} needs about {worst.work.memory_mb:,} MB of memory, and "
            f"{memory_mb:,.0f} MB are configured{others}",
            f"lower {key}, or give more memory (`--resources mem_mb={worst.work.memory_mb}`)",
        )


def sides(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of possible objects and of values, of a spec's `sizes`."""
    cells, values = 1, 0
    for size in content["sizes"]:
        cells, values = cells * int(size), values + int(size)
    return cells, values
