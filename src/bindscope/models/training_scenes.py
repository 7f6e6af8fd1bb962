"""Scenes that a controlled model is trained on: drawn afresh for every step, or a fixed set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import SceneDistribution
from bindscope.core.array_types import UInt8
from bindscope.core.splits import SplitName
from bindscope.scenes.render import render_scenes

AT_ONCE = 1024  # scenes that are drawn at a time
# Scenes of a seed begin here in their split, far beyond those of any store.
FIRST = 2**40
ORDER = 1  # the stream of a seed that shuffles a fixed set


class TrainingBatch(NamedTuple):
    """Scenes of one step: images uint8 (B, px, px, 3), object codes uint8 (B, K)."""

    step: int
    images: UInt8
    objects: UInt8


class TrainingScenes(Protocol):
    """Scenes for a training; those of a step depend on nothing but its number."""

    def batches(self, first: int) -> Iterator[TrainingBatch]:
        """Yield the scenes of one step after the other without end, from step `first` on."""

    def sample(self) -> UInt8:
        """Return object codes of some training scenes, uint8 (N, K)."""

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return images and object codes of at most `n` validation scenes."""


@dataclass(frozen=True)
class FreshScenes:
    """Scenes that are drawn for one step and not seen again; models of another seed see others.

    They follow the split rule of the dataset, and none of them is in a store: their places in the
    stream of scenes are others.
    """

    dataset: SceneDistribution
    batch_size: int
    seed: int

    def batches(self, first: int) -> Iterator[TrainingBatch]:
        """Yield the scenes of one step after the other; see `TrainingScenes`."""
        steps = max(AT_ONCE // self.batch_size, 1)
        block = first // steps
        while True:
            n = steps * self.batch_size
            images, objects = self._draw("train", block * n, n)
            for step in range(max(first, block * steps), (block + 1) * steps):
                start = step % steps * self.batch_size
                part = slice(start, start + self.batch_size)
                yield TrainingBatch(step, images[part], objects[part])
            block += 1

    def sample(self) -> UInt8:
        """Return the object codes of the first scenes."""
        return self._codes("train", 0, AT_ONCE)

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return images and objects of `n` scenes, the same for all seeds."""
        objects = sample_codes(self.dataset, "val", FIRST, FIRST + n)
        return render_scenes(self.dataset, "val", FIRST, objects)["images"], objects

    def _codes(self, split: SplitName, start: int, n: int) -> UInt8:
        start += FIRST * (1 + self.seed)
        return sample_codes(self.dataset, split, start, start + n)

    def _draw(self, split: SplitName, start: int, n: int) -> tuple[UInt8, UInt8]:
        objects = self._codes(split, start, n)
        start += FIRST * (1 + self.seed)
        return render_scenes(self.dataset, split, start, objects)["images"], objects


@dataclass(frozen=True)
class StoredScenes:
    """A fixed set of scenes, passed over again and again in shuffled order.

    Images are uint8 (N, px, px, 3) of `train` and `val`, objects uint8 (N, K).
    """

    images: Mapping[str, UInt8]
    objects: Mapping[str, UInt8]
    batch_size: int
    seed: int

    def batches(self, first: int) -> Iterator[TrainingBatch]:
        """Yield the scenes of one step after the other; see `TrainingScenes`."""
        for step, which in enumerate(self._order()):
            if step >= first:
                yield TrainingBatch(step, self.images["train"][which], self.objects["train"][which])

    def sample(self) -> UInt8:
        """Return the object codes of all training scenes."""
        return self.objects["train"]

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return the first `n` validation scenes."""
        return self.images["val"][:n], self.objects["val"][:n]

    def _order(self) -> Iterator[NDArray[np.intp]]:
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, ORDER]))
        waiting = np.zeros(0, np.intp)
        while True:
            while len(waiting) < self.batch_size:
                waiting = np.concatenate([waiting, rng.permutation(len(self.images["train"]))])
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]
