"""Scenes and queries of training steps of a dual encoder, without a loop over scenes.

Random numbers follow from the seed and the step, so that runs of one seed are shown the same places
of their own lists of objects.

A scene is a list of objects that are drawn independently and with replacement from a run's training
objects. Queries are all values of all types, and objects: the whole query pool, or those of the
step's scenes with swaps of them (an object with one value of another object of its scene).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from bindscope.codes.coverage import drawn_objects
from bindscope.core.array_types import Bools, Integers
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.config import DualTraining, QueryPool
from bindscope.studies.concepts.counting import n_training
from bindscope.studies.concepts.scenes import values_of

# Streams of a seed: of the split, of training scenes, of those of the loss (3: `runs`).
SPLITTING, SCENES, VALIDATION = range(3)
SWAPS = 1  # per scene: an object of it with one concept of another object of it


def offsets(sizes: Sequence[int]) -> Integers:
    """Return the token of the first value of each type; tokens number the values of all types."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


class TrainTestObjects(NamedTuple):
    """Which objects are for training and for testing; ascending int64."""

    train: Integers
    test: Integers
    missing_values: int  # of all types, that no training object has


def split_objects(
    sizes: Sequence[int], coverage: float, seed: int, *, every_value: bool
) -> TrainTestObjects:
    """Draw the objects that a dual encoder is trained on, of a share `coverage` of all.

    With `every_value` they are drawn again until they have every value; `ConfigError` if no draw
    has.
    """
    train = n_training(prod(sizes), coverage)
    order, missing = drawn_objects(sizes, train, rng(seed, SPLITTING), every_value=every_value)
    return TrainTestObjects(np.sort(order[:train]), np.sort(order[train:]), missing)


class PairBatch(NamedTuple):
    """Scenes of one step, and their queries."""

    slots: Integers  # object of each place, (scenes, places), -1 where there is none
    queries: Integers  # objects, ascending, (queries,)
    objects: Bools  # which of them are in which scene, (scenes, queries)
    values: Integers  # tokens of values that are queries, ascending, (values,)
    concepts: Bools  # which of them are in which scene, (scenes, values)


class Batches:
    """Draws the batches of a run, of its training objects."""

    def __init__(
        self,
        sizes: Sequence[int],
        train: Integers,
        seed: int,
        query_pool: QueryPool,
        training: DualTraining,
    ) -> None:
        self.sizes, self.train, self.seed, self.training = tuple(sizes), train, seed, training
        self.n_objects, self.n_tokens = prod(self.sizes), sum(self.sizes)
        # The last one is no object; it is never a query.
        self.pool = np.zeros(self.n_objects + 1, bool)
        self.pool[slice(self.n_objects) if query_pool == "all" else train] = True
        self.values = values_of(np.arange(self.n_objects), self.sizes)
        self.tokens = np.concatenate(
            [self.values + offsets(self.sizes), np.full((1, len(self.sizes)), self.n_tokens)]
        )
        self.strides = np.cumprod((1, *self.sizes[:0:-1]))[::-1]

    def batch(self, step: int, stream: int = SCENES) -> PairBatch:
        """Return the batch of a step: the same whatever steps came before."""
        generator = rng(self.seed, stream, step)
        slots = self._scenes(generator)
        of_pool = self.training.queries == "pool"
        marked = self.pool if of_pool else self._queried(slots, generator)
        queries = np.flatnonzero(marked)
        place = np.full(self.n_objects + 1, len(queries))
        place[queries] = np.arange(len(queries))
        concepts = _marked(self.tokens[slots], self.n_tokens)
        values = np.arange(self.n_tokens)
        if most := self.training.max_values:
            values = np.sort(generator.permutation(np.flatnonzero(concepts.any(axis=0)))[:most])
        return PairBatch(
            slots, queries, _marked(place[slots], len(queries)), values, concepts[:, values]
        )

    def _scenes(self, generator: np.random.Generator) -> Integers:
        counts, size = self.training.objects_per_scene, self.training.batch_size
        places = generator.random((size, max(counts)))
        slots = self.train[(places * len(self.train)).astype(np.int64)]
        if len(counts) > 1:
            n = np.array(counts)[(generator.random(size) * len(counts)).astype(np.int64)]
            slots[np.arange(max(counts)) >= n[:, None]] = -1
        return slots

    def _queried(self, slots: Integers, generator: np.random.Generator) -> Bools:
        """Mark the objects that are queries, bool (objects + 1,)."""
        mask = np.zeros_like(self.pool)
        mask[slots] = True
        if self.training.max_objects:
            keys = np.where(mask[:-1], generator.random(self.n_objects), 2.0)
            n = min(self.training.max_objects, self.n_objects)
            few = np.zeros_like(mask)
            few[np.argpartition(keys, n - 1)[:n]] = True  # the least, in any order
            mask &= few
        if slots.shape[1] > 1:
            mask[self._swapped(slots, generator)] = True
        return mask & self.pool

    def _swapped(self, slots: Integers, generator: np.random.Generator) -> Integers:
        """Return objects (scenes, swaps) with one concept of another object; -1: none."""
        n = (slots >= 0).sum(1)[:, None]
        first, second, type_ = (generator.random((len(slots), SWAPS)) for _ in range(3))
        i = (first * n).astype(np.int64)
        j = (i + 1 + (second * np.maximum(n - 1, 1)).astype(np.int64)) % n
        k = (type_ * len(self.sizes)).astype(np.int64)
        unchanged, moved = (np.take_along_axis(slots, places, 1) for places in (i, j))
        swapped = unchanged + (self.values[moved, k] - self.values[unchanged, k]) * self.strides[k]
        return np.where(n > 1, swapped, -1)


def _marked(places: Integers, n: int) -> Bools:
    """Mark places (scenes, ...) in rows of n; place n is none."""
    marked = np.zeros((len(places), n + 1), bool)
    np.put_along_axis(marked, places.reshape(len(places), -1), True, axis=1)
    return marked[:, :n]
