"""Least squares on designs of ones and zeros, through counts.

A design row has a one in each of q columns (which object stands in each slot, say). Its normal
equations hold counts of pairs of columns and sums of embeddings: no array (n, columns) is made.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes

RIDGE = 1e-6


def sums(
    columns: Integers, n_columns: int, z: Floats, counted: Flags | None = None
) -> tuple[Doubles, Integers]:
    """Add up embeddings by column.

    Parameters
    ----------
    columns
        Columns of each row's ones, (n, q).
    n_columns
        Columns K of the design.
    z
        Embeddings (n, d).
    counted
        Which ones count, (n, q); default: all.

    Returns
    -------
    float64 (K, d), and how many rows each sum has, int64 (K,).
    """
    n, q = columns.shape
    weights = np.ones(n * q) if counted is None else counted.astype(np.float64).ravel()
    pointer = np.arange(0, n * q + 1, q)
    design = csr_array((weights, columns.ravel(), pointer), shape=(n, n_columns))
    total = np.asarray(design.T @ np.asarray(z, np.float64))
    count = np.bincount(columns.ravel(), weights, minlength=n_columns)
    return total, count.astype(np.int64)


def pair_counts(columns: Integers, n_columns: int) -> Doubles:
    """Return X'X of the design, (K, K), by counting."""
    gram = np.diag(np.bincount(columns.ravel(), minlength=n_columns).astype(np.float64))
    for a, b in combinations(range(columns.shape[1]), 2):
        pairs = columns[:, a] * n_columns + columns[:, b]
        counts = np.bincount(pairs, minlength=n_columns**2).reshape(n_columns, n_columns)
        gram += counts + counts.T
    return gram


def one_hot_fit(columns: Integers, n_columns: int, z: Floats, ridge: float = RIDGE) -> Doubles:
    """Return the table T (K, d) that minimises sum |z - sum_q T[column_q]|^2 + ridge |T|^2.

    Columns without a row are 0. The ridge picks one of the tables that fit equally well (a constant
    may move between slots), nearly the smallest.
    """
    total, _ = sums(columns, n_columns, z)
    gram = pair_counts(columns, n_columns)
    gram[np.diag_indices_from(gram)] += ridge
    solved: Doubles = cho_solve(cho_factor(gram, overwrite_a=True), total, overwrite_b=True)
    return solved


def one_hot_sum(table: Floats, columns: Integers) -> Doubles:
    """Return the sum of a table's rows that each design row names, (n, d)."""
    found = np.zeros((len(columns), table.shape[1]))
    for column in columns.T:
        found += table[column]
    return found


def object_columns(scenes: Scenes) -> Integers:
    """Return the design of objects by slot, (n, m): column p U + o."""
    return np.asarray(scenes.slots + scenes.n_objects * np.arange(scenes.n_slots))


def value_columns(scenes: Scenes) -> Integers:
    """Return the design of values by slot, (n, m C), of m (V_1 + .. + V_C) columns."""
    starts = np.cumsum([0, *scenes.sizes[:-1]])
    slots = np.arange(scenes.n_slots)[:, None] * sum(scenes.sizes)
    return np.asarray(scenes.values + starts + slots).reshape(len(scenes), -1)
