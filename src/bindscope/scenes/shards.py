"""Writing the scenes of a shard, so that memory holds a block of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from bindscope.core.progress import Progress
from bindscope.core.store.writer import StoreWriter


def write_blocks(
    writer: StoreWriter,
    n: int,
    block: int,
    unit: str,
    arrays_of: Callable[[int, int], Mapping[str, NDArray[Any]]],
) -> None:
    """Create arrays of `n` scenes in a store that is being written, and fill them block by block.

    `arrays_of(first, last)` gives arrays of the shard's scenes `first` to `last` - 1, scenes first;
    ``arrays_of(0, 0)`` says how wide they are, and of which type. Progress counts `unit`, a plural.
    """
    progress = Progress(n, unit)
    for name, empty in arrays_of(0, 0).items():
        writer.create(name, (n, *empty.shape[1:]), str(empty.dtype))
    for first in range(0, n, block):
        last = min(first + block, n)
        for name, values in arrays_of(first, last).items():
            writer.write(name, values)
        progress.advance(last - first)
