"""What a job takes, counted from its spec before anything runs: memory, disk, and its size.

Each step names a module whose function of the step's name takes a product and returns its `Work`
(`interfaces.Step.work`). Those functions import neither torch nor a study's science. Time is not
counted: `commands.hours` knows it of jobs that have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from bindscope.core.errors import ConfigError
from bindscope.core.store.manifest import ArrayLayout

if TYPE_CHECKING:
    from bindscope.core.graph import Product

DECIDES_NOTHING = True

Content = Mapping[str, Any]  # of a spec
Libraries = Literal["plain", "pandas", "torch", "hub"]
LIBRARIES_MB: Mapping[str, int] = {"plain": 90, "pandas": 160, "torch": 290, "hub": 520}
"""Memory of a process that has imported NumPy and Zarr, also pandas and matplotlib, torch, or also
timm and transformers."""
CUDA_MB = 3000
"""What a process that computes on CUDA holds on the host: the driver's context and libraries."""
CONTEXT_MB = 600
"""What CUDA's context and the libraries' kernels hold on the GPU."""
MARGIN = 1.1
"""By how much more memory is forecast than was counted."""
METADATA = 700
"""Bytes of an array's own record in a store, and about those of its line in the manifest."""


@dataclass(frozen=True)
class Work:
    """What one job takes.

    Attributes
    ----------
    libraries
        What it imports.
    units
        Size of the job, to which its time is proportional among jobs of its kind: scenes times
        weights, for example.
    bytes_host, bytes_loaded, bytes_computed
        Memory beside the libraries: what stays on the host, what is read there and then held on
        the device that computes, and what only this device holds.
    bytes_disk, bytes_rows
        Files that it leaves, and of these the rows that tables are made from.
    temporary, elsewhere
        Whether files go when they have been read; whether they are outside of the results, in the
        cache of the hub.
    device
        `cpu` or `cuda`.
    key
        Key of the configuration that decides its memory, for who has too little.
    unknown
        Why less was counted than will be done; empty where all was.
    """

    libraries: Libraries = "plain"
    units: float = 1
    bytes_host: float = 0
    bytes_loaded: float = 0
    bytes_computed: float = 0
    bytes_disk: float = 0
    bytes_rows: float = 0
    temporary: bool = False
    elsewhere: bool = False
    device: str = "cpu"
    key: str = "datasets, n_scenes"
    unknown: str = ""

    @property
    def memory_mb(self) -> int:
        """Memory of the process, MiB; its rule asks for that."""
        computed, fixed = self.bytes_computed, LIBRARIES_MB[self.libraries]
        if self.device == "cuda":
            computed, fixed = 0, fixed + CUDA_MB
        total = self.bytes_host + self.bytes_loaded + computed
        return ceil(MARGIN * (fixed + total / 2**20))

    @property
    def device_mb(self) -> int:
        """Memory of the GPU that the job needs, MiB; 0 without one."""
        if self.device != "cuda":
            return 0
        return ceil(MARGIN * (CONTEXT_MB + (self.bytes_loaded + self.bytes_computed) / 2**20))


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
    elsewhere = "set `device: cpu` there, or " if option == "gpu_mb" else ""
    raise ConfigError(
        f"{source}: {worst.work.key}",
        f"{worst.path()} needs about {most:,} MB of {kind}, and {limit_mb:,.0f} MB are "
        f"configured{others}",
        f"lower {worst.work.key}, or {elsewhere}give more {kind} (`--resources {option}={most}`)",
    )


def sides(content: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of possible objects and of values, of a spec's `sizes`."""
    cells, values = 1, 0
    for size in content["sizes"]:
        cells, values = cells * int(size), values + int(size)
    return cells, values
