"""Columns of scenes (inputs, labels) as batches: in memory where they fit, streamed where not.

An epoch's order is a shuffle of blocks of successive scenes, dealt into buffers, and a shuffle of
each buffer; with all scenes in one buffer, an ordinary shuffle. Buffers and batches are made ahead
(`streaming`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from bindscope.core.array_types import Integers
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows, Rows, row_bytes
from bindscope.fitting.standardise import Standardiser
from bindscope.fitting.streaming import (
    BufferPlan,
    ScaledRows,
    batches,
    buffers,
    epoch_order,
    in_order,
)

BLOCKS_PER_BUFFER = 16
READ_BYTES = 32 * 2**20


class Columns:
    """The columns of the splits `train`, `val` and any others, by name.

    `splits` maps a split to its columns' rows. Those in `scaled` stand first, become float32 on
    `device` and, with `standardise`, are scaled by mean and deviation of the train split; others
    stay on the CPU. `memory` is what buffers, or scenes held, may take, in bytes: scenes are read
    and shuffled in blocks of `block`, `buffer` scenes at a time.
    """

    def __init__(
        self,
        splits: Mapping[str, Mapping[str, Rows]],
        scaled: Sequence[str],
        memory: int,
        standardise: bool,
        device: torch.device,
    ) -> None:
        self.rows = {split: dict(columns) for split, columns in splits.items()}
        self.scaled, self.device = tuple(scaled), device
        self.scenes = {split: columns[scaled[0]].shape[0] for split, columns in self.rows.items()}
        self._hold(memory)
        measured = {name: self.rows["train"][name] for name in self.scaled}
        self.standardisers = {
            name: measure(column) if standardise else Standardiser.identity(column.shape[-1])
            for name, column in measured.items()
        }

    def _hold(self, memory: int) -> None:
        """Decide what is held in memory, and how many scenes a buffer and a block have."""
        train = self.rows["train"]
        deciding = [name for name in train if name not in self.scaled[1:]]
        bytes_each = sum(row_bytes(train[name]) for name in deciding)
        sizes = {split: n * bytes_each for split, n in self.scenes.items()}
        in_memory = ["val"] * (sizes["val"] <= memory // 4)
        if sizes["train"] + sizes["val"] <= memory:
            in_memory = ["train", "val"]
        for split in in_memory:
            for name, rows in self.rows[split].items():
                self.rows[split][name] = ArrayRows(rows.read(0, self.scenes[split]))
        self.buffer = self.block = self.scenes["train"]
        if "train" not in in_memory:
            free_values = memory - (sizes["val"] if in_memory else 0)
            per_scene = sum(map(row_bytes, train.values()))
            self.buffer = max(free_values // 2 // per_scene, BLOCKS_PER_BUFFER)
            self.block = self.buffer // BLOCKS_PER_BUFFER
            file = int(getattr(train[self.scaled[0]], "block", 1))  # scenes that are read at a time
            self.block = max(self.block // file * file, min(file, self.block))

    def train(self, batch: int, *, rest: bool = False) -> Iterator[tuple[list[Tensor], Integers]]:
        """Yield training batches without end: columns, and the scenes' indices.

        Full ones only, or, with `rest`, what is left of each epoch as a smaller one too. A batch
        may be used until the next one is asked for.
        """
        loaded = batches(self._columns("train"), self._epochs(), batch, rest=rest)
        return ((self._on_device(values), index) for values, index in loaded)

    def _epochs(self) -> Iterator[BufferPlan]:
        epoch = 0
        while True:
            yield from epoch_order(self.scenes["train"], self.block, self.buffer, rng(0, 1, epoch))
            epoch += 1

    def split(self, name: str, batch: int) -> Iterator[tuple[list[Tensor], Integers]]:
        """Yield all scenes of a split in order."""
        columns = self._columns(name)
        plan = in_order(self.scenes[name], _at_a_time(columns))
        loaded = batches(columns, plan, batch, rest=True)
        return ((self._on_device(values), index) for values, index in loaded)

    def unscaled(self, name: str) -> Iterator[list[Tensor]]:
        """Yield the columns of a split that are not scaled, in order, in pieces."""
        columns = self._columns(name)[len(self.scaled) :]
        size = _at_a_time(columns)
        loaded = batches(columns, in_order(self.scenes[name], size), size, rest=True)
        return (values for values, _ in loaded)

    def _columns(self, name: str) -> list[ScaledRows]:
        """Return the columns of a split; for another device they are scaled there."""
        here = self.device.type == "cpu"
        return [
            ScaledRows(rows, self.standardisers.get(column) if here else None)
            for column, rows in self.rows[name].items()
        ]

    def _on_device(self, values: list[Tensor]) -> list[Tensor]:
        if self.device.type == "cpu":
            return values
        scaled = [
            scaling.apply(value.numpy(), self.device)
            for scaling, value in zip(self.standardisers.values(), values, strict=False)
        ]
        return scaled + values[len(scaled) :]


def measure(column: Rows) -> Standardiser:
    """Measure a column of the train split in pieces, each read while the last one is measured."""
    n, dim = column.shape[0], column.shape[-1]
    step = max(1, READ_BYTES // max(row_bytes(column), 1))
    return Standardiser.measure(
        (content[0] for content, _ in buffers([column], in_order(n, step))), dim
    )


def _at_a_time(columns: Sequence[ScaledRows]) -> int:
    """Return how many scenes to read at a time where all are read in order: about `READ_BYTES`.

    A file holds several scenes and is read whole: whole files where that many fit.
    """
    rows = max(READ_BYTES // max(sum(row_bytes(column.rows) for column in columns), 1), 1)
    file = int(getattr(columns[0].rows, "block", 1))
    return max(rows // file * file, min(file, rows))
