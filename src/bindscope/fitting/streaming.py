"""Reading ahead: shuffled blocks of scenes that come from a disk, in memory that is fixed.

Two threads stand before the fit. One reads the next buffer while the current one is used; the
other makes the next batch of the current buffer (its rows, cast and scaled) while the fit computes
with the last one. Buffers and batches are allocated once, two of each, and filled in turn.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from bindscope.core.array_types import Array, Integers
from bindscope.fitting.rows import ArrayRows, Rows
from bindscope.fitting.standardise import Standardiser, padded_width

T = TypeVar("T")
GROUP = 2**18  # numbers that are gathered, cast and scaled while they are in the cache


class BufferPlan(NamedTuple):
    """What one buffer holds: ranges of scenes, their permutation, and if it ends an epoch."""

    ranges: Sequence[tuple[int, int]]
    order: Integers
    last: bool


def epoch_order(
    n: int, block: int, buffer: int, generator: np.random.Generator
) -> Iterator[BufferPlan]:
    """Plan one epoch over `n` scenes: for each buffer what to read, and the shuffle of it.

    Every scene is in exactly one buffer. Only the order of the blocks is held of an epoch.
    """
    blocks = generator.permutation(-(-n // block))
    per_buffer = max(buffer // block, 1)
    for first in range(0, len(blocks), per_buffer):
        starts = [int(i) * block for i in blocks[first : first + per_buffer]]
        ranges = [(start, min(start + block, n)) for start in starts]
        order = generator.permutation(sum(stop - start for start, stop in ranges))
        yield BufferPlan(ranges, order, first + per_buffer >= len(blocks))


def in_order(n: int, rows: int) -> Iterator[BufferPlan]:
    """Plan one pass over `n` scenes in order, `rows` to a buffer."""
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        yield BufferPlan([(start, stop)], np.arange(stop - start), stop == n)


@dataclass(frozen=True)
class ScaledRows:
    """One array of the scenes: its rows, and what scales them to float32 (None: left as stored)."""

    rows: Rows
    scaling: Standardiser | None = None

    def empty(self, n: int) -> Tensor:
        """Return memory for a batch (n, ...): NumPy's, which asks for large pages.

        Rows of tokens lie apart as `padded` has them.
        """
        shape = (n, *self.rows.shape[1:])
        dtype = self.rows.dtype if self.scaling is None else np.dtype(np.float32)
        width = shape[-1] if len(shape) < 3 else padded_width(shape[-1])
        return torch.from_numpy(np.empty((*shape[:-1], width), dtype)[..., : shape[-1]])

    def put(self, out: Tensor, content: Array, rows: Integers) -> None:
        """Fill `out` with some rows of a buffer, a few at a time."""
        step = max(1, GROUP // max(1, content[:1].size))
        if self.scaling is not None:
            mean, scale = torch.from_numpy(self.scaling.mean), torch.from_numpy(self.scaling.scale)
        for start in range(0, len(rows), step):
            target = out[start : start + step]
            chosen = rows[start : start + step]
            if step == 1:  # a large scene is not gathered first
                target.copy_(torch.from_numpy(content[chosen[0] : chosen[0] + 1]))
            else:
                target.copy_(torch.from_numpy(content[chosen]))
            if self.scaling is not None:
                target.sub_(mean).mul_(scale)


def batches(
    columns: Sequence[ScaledRows], plan: Iterable[BufferPlan], batch: int, *, rest: bool = False
) -> Generator[tuple[list[Tensor], Integers], None, None]:
    """Yield batches (a tensor per column, scenes) of a plan, made and read ahead.

    A batch may join two buffers. What is left at the end of an epoch is dropped, or, with `rest`,
    comes as a smaller batch. A batch is valid until the next one is asked for: two places in memory
    take turns, because new memory costs more than the batch itself (the kernel finds and zeroes
    its pages).
    """
    return _ahead(_batched(columns, plan, batch, rest))


def _batched(
    columns: Sequence[ScaledRows], plan: Iterable[BufferPlan], batch: int, rest: bool
) -> Generator[tuple[list[Tensor], Integers], None, None]:
    ring = cycle([[column.empty(batch) for column in columns] for _ in range(2)])
    batch_arrays, scenes, have = next(ring), list[Integers](), 0
    with closing(buffers([column.rows for column in columns], plan)) as filled:
        for content, part in filled:
            index = np.concatenate([np.arange(*pair) for pair in part.ranges])
            position = 0
            while position < len(part.order):
                rows = part.order[position : position + batch - have]
                for column, out, values in zip(columns, batch_arrays, content, strict=True):
                    column.put(out[have : have + len(rows)], values, rows)
                scenes.append(index[rows])
                have, position = have + len(rows), position + len(rows)
                if have == batch:
                    yield batch_arrays, np.concatenate(scenes)
                    batch_arrays, scenes, have = next(ring), [], 0
            if part.last:
                if rest and have:
                    yield [out[:have] for out in batch_arrays], np.concatenate(scenes)
                    batch_arrays = next(ring)
                scenes, have = [], 0


def buffers(
    sources: Sequence[Rows], plan: Iterable[BufferPlan]
) -> Generator[tuple[list[Array], BufferPlan], None, None]:
    """Yield the content of each buffer of a plan, the next one being read meanwhile.

    What is yielded is overwritten when the second buffer after it is read. Of a source that is in
    memory, a buffer of one range is a view.
    """
    pair: list[list[Array]] = [[], []]

    def read(part: BufferPlan, turn: int) -> list[Array]:
        size, arrays = len(part.order), []
        if not pair[turn]:
            pair[turn] = [np.empty((0, *source.shape[1:]), source.dtype) for source in sources]
        for i, source in enumerate(sources):
            if isinstance(source, ArrayRows) and len(part.ranges) == 1:
                arrays.append(source.read(*part.ranges[0]))
                continue
            if len(pair[turn][i]) < size:
                pair[turn][i] = np.empty((size, *source.shape[1:]), source.dtype)
            out, position = pair[turn][i][:size], 0
            for start, stop in part.ranges:
                source.read(start, stop, out[position : position + stop - start])
                position += stop - start
            arrays.append(out)
        return arrays

    with ThreadPoolExecutor(1, "read") as pool:
        parts, turn = iter(plan), 0
        part = next(parts, None)
        coming = None if part is None else pool.submit(read, part, turn)
        while part is not None and coming is not None:
            content, now = coming.result(), part
            part, turn = next(parts, None), 1 - turn
            coming = None if part is None else pool.submit(read, part, turn)
            yield content, now


def _ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield what a generator yields, whose next item is made in a thread meanwhile.

    Two items exist at a time: the one that is used and the one that is being made.
    """
    with closing(items), ThreadPoolExecutor(1, "make") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
