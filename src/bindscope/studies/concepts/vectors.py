"""Vectors of objects and of values, estimated from the embeddings of scenes.

Four estimators (specification, section 2.4), mu being the mean of all scenes:

- `avg`: the mean over scenes that hold the object in any slot (equal objects count once);
- `avg_pos`: over those that hold it in one slot; on all pairs, the main effects of least squares;
- `single`: the embedding of scenes with that object alone;
- `ols`: least squares on which object stands in which slot. Where the other objects of a scene
  depend on this one, it is the only one without bias.

A vector that nothing was seen of is NaN, and so is all that is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bindscope.core.errors import InputError
from bindscope.studies.concepts.least_squares import (
    object_columns,
    one_hot_fit,
    sums,
    value_columns,
)
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes

Estimator = Literal["avg", "avg_pos", "single", "ols"]
ESTIMATORS: tuple[Estimator, ...] = ("avg", "avg_pos", "single", "ols")


@dataclass(frozen=True, eq=False)
class ObjectVectors:
    """What an object adds to the embedding of a scene.

    Attributes
    ----------
    table
        float64 (m, U, d): of each object in each slot, centred; NaN where nothing was seen of it.
    mean
        Mean of the scenes, mu, float64 (d,).
    """

    table: Doubles
    mean: Doubles

    def of(self, scenes: Scenes) -> Doubles:
        """Return the vector of each slot's object, (n, m, d)."""
        return self.table[np.arange(scenes.n_slots), scenes.slots]

    def reconstruct(self, scenes: Scenes) -> Doubles:
        """Return mu plus the vectors of the scene's objects, (n, d)."""
        found = np.repeat(self.mean[None], len(scenes), axis=0)
        for slot in range(scenes.n_slots):
            found += self.table[slot, scenes.slots[:, slot]]
        return found

    @property
    def unknown(self) -> int:
        """Objects that lack a vector in some slot."""
        return int(np.isnan(self.table[:, :, 0]).any(axis=0).sum())

    @property
    def without_slots(self) -> Doubles:
        """Mean over slots, (U, d)."""
        averaged: Doubles = self.table.mean(axis=0)
        return averaged


@dataclass(frozen=True, eq=False)
class SingleScenes:
    """Embeddings of scenes with one object.

    Attributes
    ----------
    z
        (n, d).
    objects
        Its number, (n,).
    positions
        The slot whose place the object has, (n,); -1 where it has a place of its own.
    """

    z: Floats
    objects: Integers
    positions: Integers


def object_vectors(
    z: Floats, scenes: Scenes, estimator: Estimator, single: SingleScenes | None = None
) -> ObjectVectors:
    """Estimate the vectors of all objects in all slots.

    Parameters
    ----------
    z
        Embeddings (n, d) of scenes.
    scenes
        Of the same n. Those with equal objects count; take them out before if they must not.
    estimator
        One of `ESTIMATORS`.
    single
        For `single`.

    Raises
    ------
    InputError
        If there are no scenes with one object for `single`.
    """
    mean = np.asarray(z, np.float64).mean(axis=0)
    centred, n_objects = np.asarray(z, np.float64) - mean, scenes.n_objects
    shape = (scenes.n_slots, n_objects, z.shape[1])
    if estimator == "avg":
        found = means(scenes.slots, n_objects, centred, scenes.first_of_its_kind)
        return ObjectVectors(np.broadcast_to(found, shape), mean)
    if estimator == "single":
        return ObjectVectors(_single(single, shape), mean)
    columns, n_columns = object_columns(scenes), scenes.n_slots * n_objects
    by_slot = means(columns, n_columns, centred)
    if estimator == "ols":
        fitted = one_hot_fit(columns, n_columns, centred)
        by_slot = np.where(np.isnan(by_slot), np.nan, fitted)
    return ObjectVectors(by_slot.reshape(shape), mean)


def means(columns: Integers, n_columns: int, z: Floats, counted: Flags | None = None) -> Doubles:
    """Average embeddings by column of a design of ones, (K, d); NaN for columns without a row."""
    total, count = sums(columns, n_columns, z, counted)
    divisor = np.where(count > 0, count, np.nan)[:, None]
    averaged: Doubles = total / divisor
    return averaged


def _single(single: SingleScenes | None, shape: tuple[int, int, int]) -> Doubles:
    """Average the scenes of each object and place; where a place was not seen, those without."""
    if single is None or not len(single.z):
        raise InputError(
            "estimator `single`",
            "there are no embeddings of scenes with one object",
            "give scenes with one object, or leave this estimator out",
        )
    n_slots, n_objects, _ = shape
    z = np.asarray(single.z, np.float64)
    z = z - z.mean(axis=0)
    columns = ((single.positions + 1) * n_objects + single.objects)[:, None]
    found = means(columns, (n_slots + 1) * n_objects, z).reshape(n_slots + 1, n_objects, -1)
    anywhere, placed = found[0], found[1:]
    return np.where(np.isnan(placed), anywhere, placed)


def value_vectors(
    z: Floats, scenes: Scenes, *, by_slot: bool, fitted: bool = False
) -> tuple[Doubles, ...]:
    """Estimate what a value adds to the embedding of a scene: per concept type, (m, V, d), centred.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    by_slot
        Whether each slot has vectors of its own; else all have the same.
    fitted
        Whether by least squares over all types and slots at once; implies `by_slot`.
    """
    centred = np.asarray(z, np.float64) - np.asarray(z, np.float64).mean(axis=0)
    m, ends = scenes.n_slots, np.cumsum(scenes.sizes)[:-1]
    if by_slot or fitted:
        columns, n_columns = value_columns(scenes), m * sum(scenes.sizes)
        table = means(columns, n_columns, centred)
        if fitted:
            table = np.where(np.isnan(table), np.nan, one_hot_fit(columns, n_columns, centred))
        return tuple(np.split(table.reshape(m, sum(scenes.sizes), -1), ends, axis=1))
    found = []
    for k, size in enumerate(scenes.sizes):
        one_type = Scenes(scenes.values[:, :, k], (size,))
        table = means(one_type.slots, size, centred, one_type.first_of_its_kind)
        found.append(np.broadcast_to(table, (m, *table.shape)))
    return tuple(found)


def composed(values: tuple[Doubles, ...], scenes: Scenes, mean: Doubles) -> ObjectVectors:
    """Return the object vectors that the sum of their values' vectors gives (level II)."""
    of_objects = scenes.values_of_objects
    parts = [table[:, of_objects[:, k]] for k, table in enumerate(values)]
    return ObjectVectors(np.sum(parts, axis=0), mean)
