"""What a job takes, counted from its spec before anything runs: memory, disk, and its size.

A step names the function that takes a product and returns its `Work` (`interfaces.Step.work`); most
jobs take little, and `small` is theirs. These functions import neither torch nor a study's science.
They may count too much, never too little. Time is not counted: `commands.hours` knows it of jobs
that have run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from bindscope.core.store.manifest import ArrayLayout

if TYPE_CHECKING:
    from bindscope.core.graph import Product

DECIDES_NOTHING = True

Content = Mapping[str, Any]  # of a spec
PROCESS_MB = 520
"""Memory of a process that has imported what jobs import: torch, pandas, timm and transformers."""
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
    units
        Size of the job, to which its time is proportional among jobs of its kind: scenes times
        weights, for example.
    bytes_host, bytes_loaded, bytes_computed
        Memory beside the libraries: what stays on the host, what is read there and then held on
        the device that computes, and what only this device holds.
    bytes_disk, bytes_rows
        Large files that it leaves, and the rows that tables are made from.
    elsewhere
        Whether files are outside of the results, in the cache of the hub.
    device
        `cpu` or `cuda`.
    key
        Key of the configuration that decides its memory, for who has too little.
    unknown
        Why less was counted than will be done; empty where all was.
    """

    units: float = 1
    bytes_host: float = 0
    bytes_loaded: float = 0
    bytes_computed: float = 0
    bytes_disk: float = 0
    bytes_rows: float = 0
    elsewhere: bool = False
    device: str = "cpu"
    key: str = "datasets, n_scenes"
    unknown: str = ""

    @property
    def memory_mb(self) -> int:
        """Memory of the process, MiB; its rule asks for that."""
        is_on_gpu = self.device == "cuda"
        total = self.bytes_host + self.bytes_loaded + self.bytes_computed * (not is_on_gpu)
        return ceil(MARGIN * (PROCESS_MB + CUDA_MB * is_on_gpu + total / 2**20))

    @property
    def device_mb(self) -> int:
        """Memory of the GPU that the job needs, MiB; 0 without one."""
        needed = CONTEXT_MB + (self.bytes_loaded + self.bytes_computed) / 2**20
        return ceil(MARGIN * needed) if self.device == "cuda" else 0


def small(product: Product) -> Work:
    """Count a job that takes little: at most 5 kB of each scene."""
    n = n_scenes(product)
    return Work(units=max(n, 1), bytes_host=5000 * n)


def n_scenes(product: Product) -> int:
    """Return how many scenes a job is about, by its spec or by what it reads."""
    content = product.content
    if "part" in content:
        return sum(piece["stop"] - piece["start"] for piece in content["part"])
    n = content.get("n_scenes", content.get("stop", 0) - content.get("start", 0))
    return int(sum(n.values()) if isinstance(n, dict) else n or sum(map(n_scenes, product.sources)))


def sides(content: Content) -> tuple[int, int]:
    """Return the number of possible objects and of values, of a spec's `sizes` or its space."""
    space = content.get("space") or content.get("dataset", {}).get("space", {})
    sizes = content.get("sizes") or [group["size"] for group in space["groups"]]
    return prod(sizes), sum(sizes)


def stored(dtype: str, *shapes: Sequence[int], axis: int = 0) -> int:
    """Return the bytes of arrays in a store whose numbers are not compressed."""
    whole = [shape for shape in shapes if min(shape) > 0]
    return sum(METADATA + ArrayLayout.plan(tuple(s), dtype, axis).stored_bytes for s in whole)
