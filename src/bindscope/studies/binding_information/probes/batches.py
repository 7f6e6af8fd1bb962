"""Batches of standardised inputs with their labels: from memory, or streamed in shuffled blocks.

Both kinds of source yield the same `ProbeBatch`. Labels are held where they are small beside what
may be held, and read in the blocks of the inputs where not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from bindscope.core.array_types import Integers
from bindscope.fitting.columns import Columns, measure
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows, Rows, as_rows, row_bytes, whole
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.module import InputShape, PatchInputs, ProbeInputs

Labelled: TypeAlias = tuple[Tensor, Tensor | None, Tensor]


@dataclass(frozen=True)
class Labels:
    """Labels of some scenes.

    `columns` are `objects` uint8 (B, K), `features` uint8 (B, n), `counts` uint8 (B, T) where there
    are count bits, and the anchors, float32.
    """

    columns: Mapping[str, Tensor]

    @classmethod
    def read(cls, split: SplitData, device: torch.device) -> Labels:
        """Read those of a whole split."""
        rows = label_rows(split)
        return cls({name: torch.from_numpy(whole(rows[name])).to(device) for name in rows})

    @classmethod
    def of_batch(
        cls, names: Sequence[str], values: Sequence[Tensor], device: torch.device
    ) -> Labels:
        """Take what was read, in the order of `label_rows`."""
        tensors = (value.to(device) for value in values)
        return cls(dict(zip(names, tensors, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Join those of successive scenes."""
        return cls({n: torch.cat([part.columns[n] for part in parts]) for n in parts[0].columns})

    def copy(self) -> Labels:
        """Return them apart from the buffer of a stream, which the next batch overwrites."""
        return Labels({name: values.clone() for name, values in self.columns.items()})

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.columns["objects"])

    def take(self, scenes: Tensor | slice) -> Labels:
        """Return those of some of the scenes."""
        return Labels({name: values[scenes] for name, values in self.columns.items()})

    def of_heads(self, heads: Heads) -> Labelled:
        """Return input bits (B, length), anchors (B, heads) or None, and true bits (B, heads)."""
        bits = self._joined(heads.codes).float()
        anchors = self._joined(heads.priors) if heads.anchored else None
        return bits, anchors, bits[:, heads.first :]

    def _joined(self, names: Sequence[str]) -> Tensor:
        columns = [self.columns[name] for name in names]
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


def label_rows(split: SplitData) -> dict[str, Rows]:
    """Return the labels of a split as rows."""
    return {name: as_rows(values) for name, values in split.labels.items()}


def label_bytes(split: SplitData) -> int:
    """Return how many bytes the labels of a scene take."""
    return sum(map(row_bytes, label_rows(split).values()))


WORK = 8  # arrays (N, heads) that L-BFGS holds: signs, offsets, margins, changes, slopes
LABELS_SHARE = 8  # labels are held beside streamed inputs up to this part of the memory


class ProbeBatch(NamedTuple):
    """Some scenes on the device: inputs, indices in their split, and labels."""

    inputs: ProbeInputs
    scenes: Tensor
    labels: Labels


class ProbeSource(Protocol):
    """Where a fit's inputs and labels come from."""

    shape: InputShape
    sizes: tuple[int, ...]  # of the feature groups
    n_counts: int  # count bits
    scenes: dict[str, int]  # number of them by split
    standardisers: dict[str, Standardiser]
    halves: Tensor  # the one of the two halves of val that each of its scenes is in
    shared_order: bool  # whether all seeds of a block read the same order

    def train(self, batch: int, seed: int, *, rest: bool = False) -> Iterator[ProbeBatch]:
        """Yield training batches without end, in an order that `seed` decides.

        Full ones only, or, with `rest`, what is left of each epoch too. A batch may be used until
        the next.
        """

    def split(self, name: str, batch: int) -> Iterator[ProbeBatch]:
        """Yield all scenes of a split in order."""

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split in order, without its inputs."""


def make_source(probe: AnyProbe, data: ProbeData) -> ProbeSource:
    """Return the source of a probe's inputs."""
    converged = probe.protocol == "converged"  # inputs are scaled, and families hold a linear part
    memory, device = probe.memory_mb * 2**20, torch.device(probe.device)
    if not data.patches and bytes_in_memory(data, convex=converged) <= memory:
        return VectorBatches(data, converged, device)
    return StreamedBatches(data, memory, converged, device)


def bytes_in_memory(data: ProbeData, *, convex: bool) -> int:
    """Return what a fit takes whose vectors, in float32, and labels are in memory.

    A convex fit adds the design matrices of train and val, and `WORK` numbers per scene and head.
    """
    dim = data.train.z.shape[1]
    heads = prod(data.sizes) + sum(data.sizes) + data.n_counts
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
        self.shape, self.sizes, self.n_counts = InputShape(dim), data.sizes, data.n_counts
        self.scenes = {name: split.n_scenes for name, split in data.splits.items()}
        self.held = {name: Labels.read(split, device) for name, split in data.splits.items()}
        self.halves = torch.from_numpy(data.val.halves()).to(device)
        self.standardisers = {"z": Standardiser.identity(dim)}
        self.z: dict[str, Tensor] = {}
        for name, split in data.splits.items():  # train comes first
            z, rows = torch.empty(split.z.shape), as_rows(split.z)
            rows.read(0, len(z), z.numpy())
            if standardise and name == "train":
                self.standardisers["z"] = measure(ArrayRows(z.numpy()))
            self.z[name] = self.standardisers["z"].scaled(z.to(device))

    def train(self, batch: int, seed: int, *, rest: bool = False) -> Iterator[ProbeBatch]:
        """Yield training batches without end (see `ProbeSource`)."""
        z, epoch = self.z["train"], 0
        batch = min(batch, len(z))
        while True:
            order = torch.from_numpy(rng(seed, 1, epoch).permutation(len(z))).to(z.device)
            for start in range(0, len(z) if rest else len(z) - batch + 1, batch):
                index = order[start : start + batch]
                yield ProbeBatch(z[index], index, self.held["train"].take(index))
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[ProbeBatch]:
        """Yield all scenes of a split in order."""
        z = self.z[name]
        for start in range(0, len(z), batch):
            stop = min(start + batch, len(z))
            scenes = torch.arange(start, stop, device=z.device)
            yield ProbeBatch(z[start:stop], scenes, self.held[name].take(slice(start, stop)))

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split, at once."""
        yield self.held[name]


class StreamedBatches:
    """Patch tokens, or vectors that do not fit in memory; all seeds of a block share one order.

    Patch tokens, and [CLS] where there is one, are scaled over all tokens of the train split, and
    in memory if they fit. Buffers, or scenes held, may take `memory` bytes, and are cast and scaled
    batch by batch.
    """

    shared_order = True

    def __init__(
        self, data: ProbeData, memory: int, standardise: bool, device: torch.device
    ) -> None:
        self.device, self.sizes, self.n_counts = device, data.sizes, data.n_counts
        self.halves = torch.from_numpy(data.val.halves()).to(device)
        self.label_names = tuple(data.train.labels)
        self.scenes = {name: split.n_scenes for name, split in data.splits.items()}
        columns = {name: _input_rows(split) for name, split in data.splits.items()}
        names = tuple(columns["train"])
        _, *tokens, dim = columns["train"][names[0]].shape
        self.shape = InputShape(dim, "cls" in names, *tokens)
        self.held: dict[str, Labels] = {}
        if sum(s.n_scenes * label_bytes(s) for s in data.splits.values()) <= memory // LABELS_SHARE:
            self.held = {name: Labels.read(split, device) for name, split in data.splits.items()}
        else:
            columns = {n: columns[n] | label_rows(split) for n, split in data.splits.items()}
        self.columns = Columns(columns, names, memory, standardise, device)
        self.standardisers = self.columns.standardisers

    def train(self, batch: int, seed: int, *, rest: bool = False) -> Iterator[ProbeBatch]:
        """Yield training batches without end (see `ProbeSource`); `seed` has no effect."""
        batches = self.columns.train(min(batch, self.scenes["train"]), rest=rest)
        return (self._batch("train", *ranges) for ranges in batches)

    def split(self, name: str, batch: int) -> Iterator[ProbeBatch]:
        """Yield all scenes of a split in order."""
        return (self._batch(name, *ranges) for ranges in self.columns.split(name, batch))

    def labels(self, name: str) -> Iterator[Labels]:
        """Yield the labels of a split in order, at once or in pieces."""
        if self.held:
            yield self.held[name]
            return
        for values in self.columns.unscaled(name):
            yield Labels.of_batch(self.label_names, values, self.device)

    def _batch(self, name: str, tensors: list[Tensor], index: Integers) -> ProbeBatch:
        scenes = torch.from_numpy(index).to(self.device)
        n = len(self.standardisers)
        (first, *more), values = tensors[:n], tensors[n:]
        inputs = PatchInputs(first, more[0] if more else None) if self.shape.tokens else first
        if self.held:
            return ProbeBatch(inputs, scenes, self.held[name].take(scenes))
        return ProbeBatch(inputs, scenes, Labels.of_batch(self.label_names, values, self.device))


def _input_rows(split: SplitData) -> dict[str, Rows]:
    """Return what a probe reads of a split, by name."""
    rows = as_rows(split.z)
    if len(rows.shape) == 2:
        return {"z": rows}
    return {"patches": rows} | ({} if split.cls is None else {"cls": as_rows(split.cls)})
