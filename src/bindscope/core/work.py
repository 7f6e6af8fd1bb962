"""What a job takes, counted from its spec before anything runs.

Each step names a module whose function of the step's name takes a product and returns its `Work`
(`interfaces.Step.work`). Those functions import neither torch nor a study's science.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from bindscope.core.errors import ConfigError
from bindscope.core.store.manifest import ArrayLayout

if TYPE_CHECKING:
    from bindscope.core.graph import Product

DECIDES_NOTHING = True

Libraries = Literal["plain", "pandas", "torch", "hub"]
LIBRARIES_MB: Mapping[str, int] = {"plain": 90, "pandas": 160, "torch": 290, "hub": 520}
"""Memory of a process that has imported NumPy and Zarr, also pandas and matplotlib, torch, or also
timm and transformers; the largest of its kind in the default run and the rehearsals."""
CUDA_MB = 3000
"""What a process that computes on CUDA holds on the host: the driver's context and libraries."""
CONTEXT_MB = 600
"""What CUDA's context and the libraries' kernels hold on the GPU."""
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
    bytes_disk, bytes_rows, rows_of
        Files that it leaves, of these the rows that tables are made from, and rows in another of
        its outputs, by the output's name (strata);
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
    rows_of: Mapping[str, float] = field(default_factory=dict)
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
    def device_mb(self) -> int:
        """Memory of the GPU that the job needs, MiB; 0 without one."""
        if self.device != "cuda":
            return 0
        return ceil(MARGIN * (CONTEXT_MB + self.bytes_device / 2**20))

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
    gpu_mb
        Memory of the GPU, MiB; 0: it is not known.
    """

    name: str
    flops: float
    elements: float
    python: float
    start_s: Mapping[str, float] = field(default_factory=dict)
    gpu_flops: float = 0
    gpu_elements: float = 0
    gpu_mb: float = 0

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
# GPUs: half of the float32 rate (TF32 is off) and of the memory's rate that their makers give, and
# GiB of memory of the largest one of the name.
_GPUS = {
    "t4": (8.1e12, 3.2e11, 15),
    "l4": (30e12, 3e11, 22),
    "a100": (19.5e12, 2e12, 79),
    "h100": (67e12, 3.35e12, 79),
    "h200": (67e12, 4.8e12, 140),
}
DEVICES: Mapping[str, Machine] = {
    name: replace(
        REFERENCE, name=name, gpu_flops=flops / 2, gpu_elements=rate / 16, gpu_mb=1024 * memory
    )
    for name, (flops, rate, memory) in _GPUS.items()
}
"""Machines with a GPU of a name, and processors like the reference machine's."""


def stored(dtype: str, *shapes: Sequence[int], axis: int = 0) -> int:
    """Return the bytes of arrays in a store whose numbers are not compressed."""
    whole = [shape for shape in shapes if min(shape) > 0]
    return sum(METADATA + ArrayLayout.plan(tuple(s), dtype, axis).stored_bytes for s in whole)


def refuse(products: Iterable[Product], memory_mb: float, source: str, gpu_mb: float = 0) -> None:
    """Refuse jobs that cannot fit into memory with ConfigError, about the largest.

    `memory_mb` and `gpu_mb` are MiB there are, the latter of the largest GPU; 0: not known, and
    nothing is said. `source` names configuration files, for the message.
    """
    jobs = list(products)
    _refuse(jobs, [job.work.memory_mb for job in jobs], memory_mb, source, "memory", "mem_mb")
    _refuse(jobs, [job.work.device_mb for job in jobs], gpu_mb, source, "GPU memory", "gpu_mb")


def _refuse(
    jobs: Sequence[Product],
    needs: Sequence[int],
    limit_mb: float,
    source: str,
    kind: str,
    option: str,
) -> None:
    """Refuse the largest job if it needs more than a limit, which is 0 where it is not known."""
    too_large = sum(need > limit_mb for need in needs) if limit_mb else 0
    if not too_large:
        return
    most = max(needs)
    worst = jobs[needs.index(most)]
    others = f", and so do {too_large - 1} other jobs" if too_large > 1 else ""
    key = worst.work.key or "datasets, n_scenes"
    elsewhere = "set `device: cpu` there, or " if option == "gpu_mb" else ""
    raise ConfigError(
        f"{source}: {key}",
        f"{worst.path()} needs about {most:,} MB of {kind}, and {limit_mb:,.0f} MB are "
        f"configured{others}",
        f"lower {key}, or {elsewhere}give more {kind} (`--resources {option}={most}`)",
    )


def sides(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of possible objects and of values, of a spec's `sizes`."""
    cells, values = 1, 0
    for size in content["sizes"]:
        cells, values = cells * int(size), values + int(size)
    return cells, values
