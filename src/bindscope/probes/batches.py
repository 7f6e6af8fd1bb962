"""Batches of standardised inputs: from memory, or from patch tokens streamed in shuffled blocks.

A source yields (inputs, scenes): a batch of inputs on the device and the indices of its scenes, by
which the caller picks the labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.config.probes import AnyProbe
from bindscope.probes.data import Array, PatchSource, ProbeData
from bindscope.probes.module import Inputs, InputShape, Tokens
from bindscope.probes.standardise import Standardiser

Indices = npt.NDArray[np.int64]
BLOCKS_PER_BUFFER = 16
READ_BYTES = 32 * 2**20


class Source(Protocol):
    """Where a fit's inputs come from."""

    shape: InputShape
    standardisers: dict[str, Standardiser]
    shared_order: bool  # whether all seeds of a block read the same order

    def train(self, batch: int, seed: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield full training batches without end, in an order that `seed` decides."""

    def split(self, name: str, batch: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield all scenes of a split in order."""


def rng(*key: int) -> np.random.Generator:
    """Return the generator of a key."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def make_source(probe: AnyProbe, data: ProbeData) -> Source:
    """Return the source of a probe's inputs."""
    standardise = probe.standardise and probe.protocol == "converged"
    if probe.family == "attention_quadratic":
        return PatchBatches(data, probe.memory_mb * 2**20, standardise, torch.device(probe.device))
    return VectorBatches(data, standardise, torch.device(probe.device))


class VectorBatches:
    """Vectors, all in memory; every seed reads its own order."""

    shared_order = False

    def __init__(self, data: ProbeData, standardise: bool, device: torch.device) -> None:
        z = {name: _vectors(split.z) for name, split in data.splits.items()}
        dim = z["train"].shape[1]
        scaling = Standardiser.of([z["train"]], dim) if standardise else Standardiser.identity(dim)
        self.standardisers = {"z": scaling}
        self.shape = InputShape(dim)
        self.z = {name: scaling.apply(values, device) for name, values in z.items()}

    def train(self, batch: int, seed: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield full training batches without end."""
        z, epoch = self.z["train"], 0
        batch = min(batch, len(z))
        while True:
            order = torch.from_numpy(rng(seed, 1, epoch).permutation(len(z))).to(z.device)
            for start in range(0, len(z) - batch + 1, batch):
                index = order[start : start + batch]
                yield z[index], index
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield all scenes of a split in order."""
        z = self.z[name]
        for start in range(0, len(z), batch):
            stop = min(start + batch, len(z))
            yield z[start:stop], torch.arange(start, stop, device=z.device)


class PatchBatches:
    """Patch tokens, in memory if they fit and streamed if not.

    An epoch's order is a shuffle of blocks of successive scenes, dealt into buffers, and a shuffle
    inside each buffer; when everything fits, there is one buffer, and the shuffle is complete. The
    order does not depend on the seed, so that all seeds of a block share one pass.

    Parameters
    ----------
    data
        The splits.
    memory
        Bytes for tokens: those of train and val if they fit; otherwise two buffers (one is read
        while the other is used), and val too if it takes a quarter at most.
    standardise
        Whether to scale tokens, and [CLS], per channel.
    device
        Where batches go.
    """

    shared_order = True

    def __init__(
        self, data: ProbeData, memory: int, standardise: bool, device: torch.device
    ) -> None:
        self.device = device
        self.patches: dict[str, PatchSource] = {k: _patches(s.z) for k, s in data.splits.items()}
        train = self.patches["train"]
        cls = {name: patches.cls() for name, patches in self.patches.items()}
        self.scenes = {name: patches.shape[0] for name, patches in self.patches.items()}
        dim = train.shape[2]
        self.shape = InputShape(dim, cls["train"] is not None)
        self._place(memory)
        self.standardisers = {"patches": Standardiser.identity(dim)}
        if standardise:
            self.standardisers["patches"] = Standardiser.of(_blocks(train), dim)
        self.cls: dict[str, Tensor] = {}
        if self.shape.cls:
            vectors = {name: np.asarray(value, np.float32) for name, value in cls.items()}
            scaling = Standardiser.identity(dim)
            if standardise:
                scaling = Standardiser.of([vectors["train"]], dim)
            self.standardisers["cls"] = scaling
            self.cls = {name: scaling.apply(value, device) for name, value in vectors.items()}

    def _place(self, memory: int) -> None:
        """Decide what is held in memory, and how many scenes a buffer and a block have."""
        per_scene = self.patches["train"].read(0, 1).nbytes
        train, val = (self.scenes[name] * per_scene for name in ("train", "val"))
        held = ["train", "val"] if train + val <= memory else ["val"] * (val <= memory // 4)
        for name in held:
            self.patches[name] = _Held(_read(self.patches[name], [(0, self.scenes[name])]))
        self.buffer = self.block = self.scenes["train"]
        if "train" not in held:
            left = memory - (val if held else 0)
            self.buffer = max(left // 2 // per_scene, BLOCKS_PER_BUFFER)
            self.block = self.buffer // BLOCKS_PER_BUFFER

    def train(self, batch: int, seed: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield full training batches without end; `seed` has no effect."""
        epoch, n = 0, self.scenes["train"]
        while True:
            order = epoch_order(n, self.block, self.buffer, rng(0, 1, epoch))
            for tokens, index in stream(self.patches["train"], order, min(batch, n)):
                yield self._inputs("train", tokens, index)
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield all scenes of a split in order."""
        for start in range(0, self.scenes[name], batch):
            stop = min(start + batch, self.scenes[name])
            tokens = self.patches[name].read(start, stop)
            yield self._inputs(name, tokens, np.arange(start, stop))

    def _inputs(self, name: str, tokens: Array, index: Indices) -> tuple[Tokens, Tensor]:
        scenes = torch.from_numpy(index).to(self.device)
        patches = self.standardisers["patches"].apply(tokens, self.device)
        return Tokens(patches, self.cls[name][scenes] if self.cls else None), scenes


class _Held:
    """Tokens read into memory, in their stored precision."""

    def __init__(self, tokens: Array) -> None:
        self.tokens, self.shape = tokens, tokens.shape

    def read(self, start: int, stop: int) -> Array:
        return self.tokens[start:stop]

    def cls(self) -> Array | None:
        return None


def epoch_order(
    n: int, block: int, buffer: int, generator: np.random.Generator
) -> list[tuple[list[tuple[int, int]], Indices]]:
    """Plan one epoch over `n` scenes.

    Returns
    -------
    list
        Per buffer: the ranges [start, stop) to read, one after the other, and the shuffle of what
        they hold. Every scene is in exactly one buffer.
    """
    ranges = [(start, min(start + block, n)) for start in range(0, n, block)]
    shuffled = [ranges[i] for i in generator.permutation(len(ranges))]
    per_buffer = max(buffer // block, 1)
    plan = []
    for first in range(0, len(shuffled), per_buffer):
        part = shuffled[first : first + per_buffer]
        size = sum(stop - start for start, stop in part)
        plan.append((part, generator.permutation(size)))
    return plan


def stream(
    patches: PatchSource, plan: Sequence[tuple[list[tuple[int, int]], Indices]], batch: int
) -> Iterator[tuple[Array, Indices]]:
    """Yield full batches (tokens, scenes) of one epoch; the next buffer is read meanwhile.

    A batch may join two buffers; what is left at the end of the epoch is dropped.
    """
    pieces: list[tuple[Array, Indices]] = []
    have = 0
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(_read, patches, plan[0][0])
        for i, (ranges, shuffle) in enumerate(plan):
            buffer = coming.result()
            if i + 1 < len(plan):
                coming = reader.submit(_read, patches, plan[i + 1][0])
            scenes = np.concatenate([np.arange(*pair) for pair in ranges])
            position = 0
            while position < len(shuffle):
                rows = shuffle[position : position + batch - have]
                pieces.append((buffer[rows], scenes[rows]))
                have, position = have + len(rows), position + len(rows)
                if have == batch:
                    yield _join([tokens for tokens, _ in pieces]), _join([s for _, s in pieces])
                    pieces, have = [], 0


def _join(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _read(patches: PatchSource, ranges: Sequence[tuple[int, int]]) -> Array:
    """Read ranges of scenes into one array, without a second copy of the whole."""
    n = sum(stop - start for start, stop in ranges)
    first = patches.read(*ranges[0])
    if len(ranges) == 1:
        return first
    out: Array = np.empty((n, *first.shape[1:]), first.dtype)
    position = len(first)
    out[:position] = first
    for start, stop in ranges[1:]:
        out[position : position + stop - start] = patches.read(start, stop)
        position += stop - start
    return out


def _blocks(patches: PatchSource) -> Iterator[Array]:
    """Read a split in pieces of bounded size."""
    n = patches.shape[0]
    step = max(1, READ_BYTES // max(patches.read(0, 1).nbytes, 1))
    for start in range(0, n, step):
        yield patches.read(start, min(start + step, n))


def _vectors(z: Any) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(z, np.float32)


def _patches(z: Any) -> PatchSource:
    return z  # type: ignore[no-any-return]
