"""Vectors of objects and of values, estimated from the embeddings of scenes.

Four estimators, mu being the mean of all scenes:

- `avg`: the mean over scenes that hold the object in any slot (equal objects count once);
- `avg_pos`: over those that hold it in one slot; on all pairs, the main effects of least squares;
- `single`: the embedding of scenes with that object alone;
- `ols`: least squares on which object is in which slot. Where the other objects of a scene
  depend on this one, it is the only one without bias.

A vector of an object or value that no scene has is NaN, and so is every sum with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from bindscope.core.array_types import Bools, Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.studies.concepts.scenes import Scenes

RIDGE = 1e-6


def design(columns: Integers, n_columns: int, counted: Bools | None = None) -> csr_array:
    """Return the design (n, K) whose rows have ones in columns (n, q), or in the `counted` ones."""
    n, q = columns.shape
    ones = np.ones(n * q) if counted is None else counted.astype(np.float64).ravel()
    return csr_array((ones, columns.ravel(), np.arange(0, n * q + 1, q)), shape=(n, n_columns))


def one_hot_fit(columns: Integers, n_columns: int, z: Floats, ridge: float = RIDGE) -> Doubles:
    """Return the table T (K, d) that minimizes sum |z - sum_q T[column_q]|^2 + ridge |T|^2.

    Columns without a row are 0. The ridge picks one of the tables that fit equally well (a constant
    may move between slots), nearly the smallest.
    """
    x = design(columns, n_columns)
    gram = (x.T @ x).toarray()
    gram[np.diag_indices_from(gram)] += ridge
    total = x.T @ np.asarray(z, np.float64)
    solved: Doubles = cho_solve(cho_factor(gram, overwrite_a=True), total, overwrite_b=True)
    return solved


def one_hot_sum(table: Floats, columns: Integers) -> Doubles:
    """Return the sum of a table's rows that each design row names, (n, d)."""
    return np.asarray(design(columns, len(table)) @ table)


def means(columns: Integers, n_columns: int, z: Floats, counted: Bools | None = None) -> Doubles:
    """Average embeddings by column of a design of ones, (K, d); NaN for columns without a row."""
    x = design(columns, n_columns, counted)
    count = x.sum(axis=0)[:, None]
    return np.asarray(x.T @ np.asarray(z, np.float64) / np.where(count > 0, count, np.nan))


def object_columns(scenes: Scenes) -> Integers:
    """Return the design of objects by slot, (n, m): column p U + o."""
    return np.asarray(scenes.slots + scenes.n_objects * np.arange(scenes.n_slots))


def value_columns(scenes: Scenes) -> Integers:
    """Return the design of values by slot, (n, m C), of m (V_1 + .. + V_C) columns."""
    starts = np.cumsum([0, *scenes.sizes[:-1]])
    slots = np.arange(scenes.n_slots)[:, None] * sum(scenes.sizes)
    return np.asarray(scenes.values + starts + slots).reshape(len(scenes), -1)


Estimator = Literal["avg", "avg_pos", "single", "ols"]
ESTIMATORS: tuple[Estimator, ...] = ("avg", "avg_pos", "single", "ols")


@dataclass(frozen=True, eq=False)
class ObjectVectors:
    """What an object adds to the embedding of a scene."""

    table: Doubles  # (m, U, d), of each object in each slot, centered; NaN where nothing was seen
    mean: Doubles  # of the scenes, (d,)

    def reconstruct(self, scenes: Scenes) -> Doubles:
        """Return mu plus the vectors of the scene's objects, (n, d)."""
        embeddings = np.repeat(self.mean[None], len(scenes), axis=0)
        for slot in range(scenes.n_slots):
            embeddings += self.table[slot, scenes.slots[:, slot]]
        return embeddings

    @property
    def without_slots(self) -> Doubles:
        """Mean over slots, (U, d)."""
        return np.asarray(self.table.mean(axis=0))


@dataclass(frozen=True, eq=False)
class SingleScenes:
    """Embeddings of scenes with one object."""

    z: Floats  # (n, d)
    objects: Integers  # (n,)
    positions: Integers  # the slot whose place the object has, (n,); -1 where it has another


def object_vectors(
    z: Floats, scenes: Scenes, estimator: Estimator, single: SingleScenes | None = None
) -> ObjectVectors:
    """Estimate the vectors of all objects in all slots from embeddings (n, d) of scenes.

    Scenes with equal objects count. Raises `InputError` if there are no scenes with one object for
    `single`.
    """
    mean = np.asarray(z, np.float64).mean(axis=0)
    centered, n_objects = np.asarray(z, np.float64) - mean, scenes.n_objects
    shape = (scenes.n_slots, n_objects, z.shape[1])
    if estimator == "avg":
        vectors = means(scenes.slots, n_objects, centered, scenes.first_of_its_kind)
        return ObjectVectors(np.broadcast_to(vectors, shape), mean)
    if estimator == "single":
        return ObjectVectors(_single(single, shape), mean)
    columns, n_columns = object_columns(scenes), scenes.n_slots * n_objects
    by_slot = means(columns, n_columns, centered)
    if estimator == "ols":
        fitted = one_hot_fit(columns, n_columns, centered)
        by_slot = np.where(np.isnan(by_slot), np.nan, fitted)
    return ObjectVectors(by_slot.reshape(shape), mean)


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
    vectors = means(columns, (n_slots + 1) * n_objects, z).reshape(n_slots + 1, n_objects, -1)
    anywhere, placed = vectors[0], vectors[1:]
    return np.where(np.isnan(placed), anywhere, placed)


def value_vectors(
    z: Floats, scenes: Scenes, *, by_slot: bool, fitted: bool = False
) -> tuple[Doubles, ...]:
    """Estimate what a value adds to a scene's embedding: per feature group, (m, V, d), centered.

    If not `by_slot`, all slots have the same vectors. `fitted` is by least squares over all types
    and slots at once, and implies `by_slot`.
    """
    centered = np.asarray(z, np.float64) - np.asarray(z, np.float64).mean(axis=0)
    m, ends = scenes.n_slots, np.cumsum(scenes.sizes)[:-1]
    if by_slot or fitted:
        columns, n_columns = value_columns(scenes), m * sum(scenes.sizes)
        table = means(columns, n_columns, centered)
        if fitted:
            table = np.where(np.isnan(table), np.nan, one_hot_fit(columns, n_columns, centered))
        return tuple(np.split(table.reshape(m, sum(scenes.sizes), -1), ends, axis=1))
    vectors = []
    for k, size in enumerate(scenes.sizes):
        one_type = Scenes(scenes.values[:, :, k], (size,))
        table = means(one_type.slots, size, centered, one_type.first_of_its_kind)
        vectors.append(np.broadcast_to(table, (m, *table.shape)))
    return tuple(vectors)


def composed(values: tuple[Doubles, ...], scenes: Scenes, mean: Doubles) -> ObjectVectors:
    """Return the object vectors that the sum of their values' vectors gives (level II)."""
    of_objects = scenes.values_of_objects
    parts = [table[:, of_objects[:, k]] for k, table in enumerate(values)]
    return ObjectVectors(np.sum(parts, axis=0), mean)
