"""Batches of standardised inputs with their labels: from memory, or streamed in shuffled blocks.

Both kinds of source yield the same `Batch`. What is streamed comes through `streaming`. Labels are
held where they are small beside what may be held, and read in the blocks of the inputs where not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.fitting.streaming import (
    Column,
    Indices,
    Part,
    batches,
    buffers,
    epoch_order,
    in_order,
)
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.data import (
    ArrayRows,
    PatchSource,
    ProbeData,
    Rows,
    as_rows,
    row_bytes,
)
from bindscope.studies.binding_information.probes.labels import Labels, label_bytes, label_rows
from bindscope.studies.binding_information.probes.module import Inputs, InputShape, Tokens

BLOCKS_PER_BUFFER = 16
READ_BYTES = 32 * 2**20
WORK = 8  # arrays (N, heads) that L-BFGS holds: signs, offsets, margins, changes, slopes
LABELS_SHARE = 8  # labels are held beside streamed inputs up to this part of the memory


class Batch(NamedTuple):
    """Some scenes on the device: inputs, indices in their split, and labels."""

    inputs: Inputs
    scenes: Tensor
    labels: Labels


class Source(Protocol):
    """Where a fit's inputs and labels come from; a batch is valid until the next is asked for."""

    shape: InputShape
    sizes: tuple[int, ...]  # of the feature groups
    scenes: dict[str, int]  # number of them by split
    standardisers: dict[str, Standardiser]
    shared_order: bool  # whether all seeds of a block read the same order

    def train(self, batch: int, seed: int) -> Iterator[Batch]:
        """Yield full training batches without end, in an order that `seed` decides."""

    def split(self, name: str, batch: int) -> Iterator[Batch]:
        """Yield all scenes of a split in order."""

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split in order, without its inputs."""


def rng(*key: int) -> np.random.Generator:
    """Return the generator of a key."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def make_source(probe: AnyProbe, data: ProbeData) -> Source:
    """Return the source of a probe's inputs."""
    standardise = probe.standardise and probe.protocol == "converged"
    memory, device = probe.memory_mb * 2**20, torch.device(probe.device)
    convex = probe.family == "linear" and probe.protocol == "converged"
    if data.patches:
        return PatchBatches(data, memory, standardise, device)
    if held_bytes(data, convex=convex) <= memory:
        return VectorBatches(data, standardise, device)
    return StreamedVectors(data, memory, standardise, device)


def held_bytes(data: ProbeData, *, convex: bool) -> int:
    """Return what a fit takes whose vectors, in float32, and labels are in memory.

    A convex fit adds the design matrices of train and val, and `WORK` numbers per scene and head.
    """
    dim, heads = data.train.z.shape[1], prod(data.sizes) + sum(data.sizes)
    numbers = sum(dim * split.n_scenes for split in data.splits.values())
    if convex:
        numbers += (data.train.n_scenes + data.val.n_scenes) * (dim + 1 + heads)
        numbers += data.train.n_scenes * WORK * heads
    return 4 * numbers + sum(s.n_scenes * label_bytes(s) for s in data.splits.values())


class VectorBatches:
    """Vectors, all in memory; every seed reads its own order."""

    shared_order = False

    def __init__(self, data: ProbeData, standardise: bool, device: torch.device) -> None:
        dim = data.train.z.shape[1]
        self.shape, self.sizes = InputShape(dim), data.sizes
        self.scenes = {name: split.n_scenes for name, split in data.splits.items()}
        self.held = {name: Labels.held(split, device) for name, split in data.splits.items()}
        self.standardisers = {"z": Standardiser.identity(dim)}
        self.z: dict[str, Tensor] = {}
        for name, split in data.splits.items():  # train comes first
            z, rows = torch.empty(split.z.shape), as_rows(split.z)
            rows.read(0, len(z), z.numpy())
            if standardise and name == "train":
                self.standardisers["z"] = _measured(ArrayRows(z.numpy()))
            self.z[name] = self.standardisers["z"].scaled(z.to(device))

    def train(self, batch: int, seed: int) -> Iterator[Batch]:
        """Yield full training batches without end."""
        z, epoch = self.z["train"], 0
        batch = min(batch, len(z))
        while True:
            order = torch.from_numpy(rng(seed, 1, epoch).permutation(len(z))).to(z.device)
            for start in range(0, len(z) - batch + 1, batch):
                index = order[start : start + batch]
                yield Batch(z[index], index, self.held["train"].at(index))
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[Batch]:
        """Yield all scenes of a split in order."""
        z = self.z[name]
        for start in range(0, len(z), batch):
            stop = min(start + batch, len(z))
            scenes = torch.arange(start, stop, device=z.device)
            yield Batch(z[start:stop], scenes, self.held[name].at(slice(start, stop)))

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split, at once."""
        yield self.held[name]


class Streamed:
    """Columns of scenes, in memory if they fit and streamed if not.

    An epoch's order is a shuffle of blocks of successive scenes, dealt into buffers, and a shuffle
    inside each buffer; when everything fits, there is one buffer, and the shuffle is complete. The
    order does not depend on the seed, so that all seeds of a block share one pass.

    Parameters
    ----------
    data
        The splits. Their labels are held on the device, beside `memory`, if they take an eighth of
        it at most; otherwise they are columns as the inputs are.
    rows
        Split -> name of the column -> its rows; the first column is the largest.
    memory
        Bytes for columns: the first ones of train and val if they fit; otherwise two buffers (one
        is read while the other is used), and val too if it takes a quarter at most.
    standardise
        Whether to scale columns per channel, by what train holds.
    device
        Where batches go.
    """

    shared_order = True

    def __init__(
        self,
        data: ProbeData,
        rows: Mapping[str, dict[str, Rows]],
        memory: int,
        standardise: bool,
        device: torch.device,
    ) -> None:
        self.device, self.rows = device, {name: dict(columns) for name, columns in rows.items()}
        self.scenes = {name: split.n_scenes for name, split in data.splits.items()}
        self.inputs = tuple(self.rows["train"])
        self.shape, self.sizes = self._shape(), data.sizes
        self.held: dict[str, Labels] = {}
        if sum(s.n_scenes * label_bytes(s) for s in data.splits.values()) <= memory // LABELS_SHARE:
            self.held = {name: Labels.held(split, device) for name, split in data.splits.items()}
        else:
            for name, split in data.splits.items():
                self.rows[name] |= label_rows(split)
        self._place(memory)
        measured = {name: self.rows["train"][name] for name in self.inputs}
        self.standardisers = {
            name: _measured(column) if standardise else Standardiser.identity(column.shape[-1])
            for name, column in measured.items()
        }

    def _shape(self) -> InputShape:
        return InputShape(self.rows["train"][self.inputs[0]].shape[-1])

    def _place(self, memory: int) -> None:
        """Decide what is held in memory, and how many scenes a buffer and a block have."""
        train = self.rows["train"]
        deciding = [self.inputs[0], *list(train)[len(self.inputs) :]]  # labels where they are read
        bytes_each = sum(row_bytes(train[column]) for column in deciding)
        sizes = {name: n * bytes_each for name, n in self.scenes.items()}
        held = ["val"] * (sizes["val"] <= memory // 4)
        if sizes["train"] + sizes["val"] <= memory:
            held = ["train", "val"]
        for name in held:
            for column, rows in self.rows[name].items():
                self.rows[name][column] = ArrayRows(rows.read(0, self.scenes[name]))
        self.buffer = self.block = self.scenes["train"]
        if "train" not in held:
            left = memory - (sizes["val"] if held else 0)
            per_scene = sum(map(row_bytes, train.values()))
            self.buffer = max(left // 2 // per_scene, BLOCKS_PER_BUFFER)
            self.block = self.buffer // BLOCKS_PER_BUFFER
            file = int(getattr(train[self.inputs[0]], "block", 1))  # scenes that are read at a time
            self.block = max(self.block // file * file, min(file, self.block))

    def train(self, batch: int, seed: int) -> Iterator[Batch]:
        """Yield full training batches without end; `seed` has no effect."""
        columns, batch = self._columns("train"), min(batch, self.scenes["train"])
        for made, index in batches(columns, self._epochs(), batch):
            yield self._batch("train", made, index)

    def _epochs(self) -> Iterator[Part]:
        epoch = 0
        while True:
            yield from epoch_order(self.scenes["train"], self.block, self.buffer, rng(0, 1, epoch))
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[Batch]:
        """Yield all scenes of a split in order."""
        columns = self._columns(name)
        plan = in_order(self.scenes[name], _at_a_time(columns))
        for made, index in batches(columns, plan, batch, rest=True):
            yield self._batch(name, made, index)

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split in order, at once or in pieces."""
        if self.held:
            yield self.held[name]
            return
        columns = self._columns(name)[len(self.inputs) :]
        size = _at_a_time(columns)
        for made, _ in batches(columns, in_order(self.scenes[name], size), size, rest=True):
            yield Labels.of_batch(made, self.device)

    def _columns(self, name: str) -> list[Column]:
        """Return the columns of a split; for another device they are scaled there."""
        here = self.device.type == "cpu"
        return [
            Column(rows, self.standardisers.get(column) if here else None)
            for column, rows in self.rows[name].items()
        ]

    def _batch(self, name: str, made: list[Tensor], index: Indices) -> Batch:
        values, read = made[: len(self.inputs)], made[len(self.inputs) :]
        if self.device.type != "cpu":
            scalings = self.standardisers.values()
            values = [
                s.apply(t.numpy(), self.device) for s, t in zip(scalings, values, strict=True)
            ]
        scenes = torch.from_numpy(index).to(self.device)
        labels = self.held[name].at(scenes) if self.held else Labels.of_batch(read, self.device)
        return Batch(self._inputs(values), scenes, labels)

    def _inputs(self, made: list[Tensor]) -> Inputs:
        return made[0]


class PatchBatches(Streamed):
    """Patch tokens, and [CLS] where the model has one; scaled over all tokens of the train split.

    Takes the splits, and what `Streamed` takes.
    """

    def __init__(
        self, data: ProbeData, memory: int, standardise: bool, device: torch.device
    ) -> None:
        rows: dict[str, dict[str, Rows]] = {}
        for name, split in data.splits.items():
            assert isinstance(split.z, PatchSource)
            cls = split.z.cls()
            rows[name] = {"patches": split.z} | ({} if cls is None else {"cls": as_rows(cls)})
        super().__init__(data, rows, memory, standardise, device)

    def _shape(self) -> InputShape:
        train = self.rows["train"]
        return InputShape(train["patches"].shape[2], "cls" in train)

    def _inputs(self, made: list[Tensor]) -> Inputs:
        return Tokens(made[0], made[1] if len(made) > 1 else None)


class StreamedVectors(Streamed):
    """Vectors that do not fit in memory; all seeds of a block share one order.

    Takes the splits, and what `Streamed` takes.
    """

    def __init__(
        self, data: ProbeData, memory: int, standardise: bool, device: torch.device
    ) -> None:
        rows = {name: {"z": as_rows(split.z)} for name, split in data.splits.items()}
        super().__init__(data, rows, memory, standardise, device)


def _at_a_time(columns: Sequence[Column]) -> int:
    """Return how many scenes to read at a time where all are read in order: about `READ_BYTES`.

    A file holds several scenes and is read whole: whole files where that many fit.
    """
    rows = max(READ_BYTES // max(sum(row_bytes(column.rows) for column in columns), 1), 1)
    file = int(getattr(columns[0].rows, "block", 1))
    return max(rows // file * file, min(file, rows))


def _measured(column: Rows) -> Standardiser:
    """Measure a column of the train split in pieces, each read while the last one is measured."""
    n, dim = column.shape[0], column.shape[-1]
    step = max(1, READ_BYTES // max(row_bytes(column), 1))
    return Standardiser.of((content[0] for content, _ in buffers([column], in_order(n, step))), dim)
