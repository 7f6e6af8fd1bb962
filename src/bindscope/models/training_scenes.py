"""Scenes that a controlled model is trained on: drawn afresh for every step, or a fixed set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import SceneDistribution
from bindscope.core.splits import SplitName
from bindscope.scenes.render import render_scenes

UInt8 = NDArray[np.uint8]

AT_ONCE = 1024  # scenes that are drawn at a time
# Scenes of a seed begin here in their split, far beyond those of any store.
FIRST = 2**40
ORDER = 1  # the stream of a seed that shuffles a fixed set


class Masks(NamedTuple):
    """Which object each pixel of some scenes shows, (B, H, W), 0 = none.

    `stuff`, uint8 (B, M), says whether the object with id j is stuff, in column j - 1.
    """

    ids: NDArray[Any]
    stuff: NDArray[Any]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Masks:
        """Return those of drawn or stored scenes; without `stuff`, all objects are things."""
        return cls(arrays["masks"], arrays.get("stuff", np.zeros_like(arrays["cells"], np.uint8)))

    def take(self, which: slice | NDArray[np.intp]) -> Masks:
        """Return those of some of the scenes."""
        return Masks(self.ids[which], self.stuff[which])


class Batch(NamedTuple):
    """Scenes of one step: images uint8 (B, px, px, 3), object codes uint8 (B, K), masks or None."""

    step: int
    images: UInt8
    objects: UInt8
    masks: Masks | None = None


class Scenes(Protocol):
    """Scenes for a training; those of a step depend on nothing but its number."""

    def batches(self, first: int) -> Iterator[Batch]:
        """Yield the scenes of one step after the other without end, from step `first` on."""

    def sample(self) -> UInt8:
        """Return object codes of some training scenes, uint8 (N, K)."""

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return images and object codes of at most `n` validation scenes."""

    def validation_masks(self, n: int) -> Masks | None:
        """Return the masks of these scenes; None where there are none."""


@dataclass(frozen=True)
class FreshScenes:
    """Scenes that are drawn for one step and not seen again; models of another seed see others.

    They follow the split rule of the dataset, and none of them is in a store: their places in the
    stream of scenes are others.
    """

    dataset: SceneDistribution
    batch_size: int
    seed: int

    def batches(self, first: int) -> Iterator[Batch]:
        """Yield the scenes of one step after the other; see `Scenes`."""
        steps = max(AT_ONCE // self.batch_size, 1)
        block = first // steps
        while True:
            n = steps * self.batch_size
            images, objects, masks = self._draw("train", block * n, n)
            for step in range(max(first, block * steps), (block + 1) * steps):
                start = step % steps * self.batch_size
                part = slice(start, start + self.batch_size)
                yield Batch(step, images[part], objects[part], masks.take(part))
            block += 1

    def sample(self) -> UInt8:
        """Return the object codes of the first scenes."""
        return self._codes("train", 0, AT_ONCE)

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return images and objects of `n` scenes, the same for all seeds."""
        objects = sample_codes(self.dataset, "val", FIRST, FIRST + n)
        return render_scenes(self.dataset, "val", FIRST, objects)["images"], objects

    def validation_masks(self, n: int) -> Masks:
        """Return the masks of these scenes, which are drawn once more."""
        objects = sample_codes(self.dataset, "val", FIRST, FIRST + n)
        return Masks.from_arrays(render_scenes(self.dataset, "val", FIRST, objects))

    def _codes(self, split: SplitName, start: int, n: int) -> UInt8:
        start += FIRST * (1 + self.seed)
        return sample_codes(self.dataset, split, start, start + n)

    def _draw(self, split: SplitName, start: int, n: int) -> tuple[UInt8, UInt8, Masks]:
        objects = self._codes(split, start, n)
        start += FIRST * (1 + self.seed)
        scenes = render_scenes(self.dataset, split, start, objects)
        return scenes["images"], objects, Masks.from_arrays(scenes)


@dataclass(frozen=True)
class StoredScenes:
    """A fixed set of scenes, passed over again and again in shuffled order.

    Images are uint8 (N, px, px, 3) of `train` and `val`, objects uint8 (N, K), masks where a loss
    asks for them.
    """

    images: Mapping[str, UInt8]
    objects: Mapping[str, UInt8]
    batch_size: int
    seed: int
    masks: Mapping[str, Masks] = field(default_factory=dict)

    def batches(self, first: int) -> Iterator[Batch]:
        """Yield the scenes of one step after the other; see `Scenes`."""
        for step, which in enumerate(self._order()):
            if step >= first:
                masks = self.masks["train"].take(which) if self.masks else None
                yield Batch(step, self.images["train"][which], self.objects["train"][which], masks)

    def sample(self) -> UInt8:
        """Return the object codes of all training scenes."""
        return self.objects["train"]

    def validation(self, n: int) -> tuple[UInt8, UInt8]:
        """Return the first `n` validation scenes."""
        return self.images["val"][:n], self.objects["val"][:n]

    def validation_masks(self, n: int) -> Masks | None:
        """Return their masks."""
        return self.masks["val"].take(slice(n)) if self.masks else None

    def _order(self) -> Iterator[NDArray[np.intp]]:
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, ORDER]))
        waiting = np.zeros(0, np.intp)
        while True:
            while len(waiting) < self.batch_size:
                waiting = np.concatenate([waiting, rng.permutation(len(self.images["train"]))])
            yield waiting[: self.batch_size]
            waiting = waiting[self.batch_size :]
