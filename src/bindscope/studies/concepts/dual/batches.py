"""Scenes and queries of training steps: of all runs at once, and without a loop over scenes.

A run is a coverage and a seed. Random numbers follow from the seed and the step, so that runs of
one seed are shown the same places of their own lists of objects.

A scene is a list of objects that are drawn independently and with replacement from a run's training
objects. Queries are all values of all types, and objects: the whole query pool, or those of the
step's scenes with swaps of them (an object with one concept of another object of its scene).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.coverage import drawn_objects
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.config import DualTraining, QueryPool
from bindscope.studies.concepts.counting import n_training_objects
from bindscope.studies.concepts.scenes import values_of

# Streams of a seed: of the split, of training scenes, of those of the loss (3: `runs`).
SPLITTING, SCENES, VALIDATION = range(3)
SWAPS = 1  # per scene: an object of it with one concept of another object of it
Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]


def offsets(sizes: Sequence[int]) -> Ids:
    """Return the token of the first value of each type; tokens number the values of all types."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


class Split(NamedTuple):
    """Which objects are for training and for testing; ascending int64."""

    train: Ids
    test: Ids
    missing_values: int  # of all types, that no training object has


def split_objects(sizes: Sequence[int], coverage: float, seed: int, *, every_value: bool) -> Split:
    """Draw the objects that a dual encoder is trained on, of a share `coverage` of all.

    With `every_value` they are drawn again until they have every value; `ConfigError` if no draw
    has.
    """
    train = n_training_objects(sizes, coverage)
    order, missing = drawn_objects(sizes, train, rng(seed, SPLITTING), every_value=every_value)
    return Split(np.sort(order[:train]), np.sort(order[train:]), missing)


@dataclass(frozen=True)
class Batch:
    """Scenes of one step, and their queries."""

    slots: Ids  # object of each place, (runs, scenes, places), -1 where there is none
    queries: Ids  # objects (runs, queries), ascending; the last may be padding
    valid: Bools  # which of them are no padding, (runs, queries)
    objects: Bools  # which of them are in which scene, (runs, scenes, queries)
    concepts: Bools  # which values, of all types, are in which scene, (runs, scenes, tokens)


class Batches:
    """Draws the batches of some runs, each with a split and a seed of its own."""

    def __init__(
        self,
        sizes: Sequence[int],
        splits: Sequence[Split],
        seeds: Sequence[int],
        query_pool: QueryPool,
        training: DualTraining,
    ) -> None:
        self.sizes, self.seeds, self.training = tuple(sizes), tuple(seeds), training
        self.n_objects, self.n_tokens = prod(self.sizes), sum(self.sizes)
        self._kinds = sorted(set(self.seeds))
        self._seed_of_run = np.array([self._kinds.index(seed) for seed in self.seeds])
        self.train, self.n_train = padded([split.train for split in splits])
        # The last column is that of no object; it is never a query.
        self.pool = np.zeros((len(splits), self.n_objects + 1), bool)
        for row, split in zip(self.pool, splits, strict=True):
            row[slice(self.n_objects) if query_pool == "all" else split.train] = True
        values = values_of(np.arange(self.n_objects), self.sizes)
        self.tokens = np.concatenate(
            [values + offsets(self.sizes), np.full((1, len(self.sizes)), self.n_tokens)]
        )
        self.strides = np.cumprod((1, *self.sizes[:0:-1]))[::-1]
        self.values = values
        self._pool_queries = self._listed(self.pool) if training.queries == "pool" else None

    def batch(self, step: int, stream: int = SCENES) -> Batch:
        """Return the batch of a step: the same whatever steps came before."""
        generators = [rng(seed, stream, step) for seed in self._kinds]
        slots = self._scenes(generators)
        if self._pool_queries is not None:
            queries, valid, place = self._pool_queries
        else:
            queries, valid, place = self._listed(self._queried(slots, generators))
        return Batch(
            slots, queries, valid,
            self._marked(np.take_along_axis(place[:, None], slots, 2)[..., None], queries.shape[1]),
            self._marked(self.tokens[slots], self.n_tokens),
        )  # fmt: skip

    def _drawn(self, generators: Sequence[np.random.Generator], *shape: int) -> NDArray[np.float64]:
        """Return uniform numbers (runs, ...), equal for runs of one seed."""
        by_seed = np.stack([generator.random(shape) for generator in generators])
        numbers: NDArray[np.float64] = by_seed[self._seed_of_run]
        return numbers

    def _scenes(self, generators: Sequence[np.random.Generator]) -> Ids:
        counts, size = self.training.objects_per_scene, self.training.batch_size
        place = self._drawn(generators, size, max(counts))
        chosen = (place * self.n_train[:, None, None]).astype(np.int64)
        slots = np.take_along_axis(self.train[:, None], chosen, 2)
        if len(counts) > 1:
            kind = (self._drawn(generators, size) * len(counts)).astype(np.int64)
            n = np.array(counts)[kind]
            slots[np.arange(max(counts)) >= n[..., None]] = -1
        return slots

    def _queried(self, slots: Ids, generators: Sequence[np.random.Generator]) -> Bools:
        """Mark the objects that are queries, bool (runs, objects + 1)."""
        mask = np.zeros_like(self.pool)
        runs = np.arange(len(slots))[:, None]
        mask[runs, slots.reshape(len(slots), -1)] = True
        if self.training.max_objects:
            keys = np.where(mask[:, :-1], self._drawn(generators, self.n_objects), 2.0)
            n = min(self.training.max_objects, self.n_objects)
            least = np.argpartition(keys, n - 1, axis=1)[:, :n]  # the least, in any order
            few = np.zeros_like(mask)
            few[runs, least] = True
            mask &= few
        if slots.shape[2] > 1:
            mask[runs, self._swapped(slots, generators).reshape(len(slots), -1)] = True
        return mask & self.pool

    def _swapped(self, slots: Ids, generators: Sequence[np.random.Generator]) -> Ids:
        """Return objects (runs, scenes, swaps) with one concept of another object; -1: none."""
        shape = (*slots.shape[1:2], SWAPS)
        n = (slots >= 0).sum(2)[..., None]
        first, second, type_ = (self._drawn(generators, *shape) for _ in range(3))
        i = (first * n).astype(np.int64)
        j = (i + 1 + (second * np.maximum(n - 1, 1)).astype(np.int64)) % n
        k = (type_ * len(self.sizes)).astype(np.int64)
        unchanged, moved = (np.take_along_axis(slots, places, 2) for places in (i, j))
        swapped = unchanged + (self.values[moved, k] - self.values[unchanged, k]) * self.strides[k]
        return np.where(n > 1, swapped, -1)

    def _listed(self, marked: Bools) -> tuple[Ids, Bools, Ids]:
        """Return marked objects as a padded list, which of it is no padding, and places in it.

        The place of what is not marked is the list's length.
        """
        run, items = np.nonzero(marked[:, : self.n_objects])
        n = np.bincount(run, minlength=len(marked))
        longest = int(n.max())
        column = np.arange(len(run)) - np.repeat(np.cumsum(n) - n, n)
        queries = np.zeros((len(marked), longest), np.int64)
        queries[run, column] = items
        place = np.full(marked.shape, longest, np.int64)
        place[run, items] = column
        return queries, np.arange(longest) < n[:, None], place

    @staticmethod
    def _marked(places: Ids, n: int) -> Bools:
        """Mark places (runs, scenes, objects, ...) in rows of n; place n is none."""
        runs, scenes = places.shape[:2]
        marked = np.zeros((runs * scenes, n + 1), bool)
        marked[np.arange(runs * scenes)[:, None], places.reshape(runs * scenes, -1)] = True
        return marked[:, :n].reshape(runs, scenes, n)


def padded(lists: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return lists as rows of one array, their first entry repeated at the end, and the lengths."""
    n = np.array([len(entries) for entries in lists])
    rows = np.stack([np.resize(entries, n.max()) for entries in lists])
    return rows, n
