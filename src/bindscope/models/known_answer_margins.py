"""Object codes with given margins: how many say how often each colour and each shape occurs.

The margins of a code of two groups are its row and column sums. What is known of O where its
margins are takes the number of 0/1 matrices for every pair of them. Rows, and columns, can be
permuted, so sorted sums suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, islice
from math import comb, factorial, prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Partitions inside the largest grid that are still counted in seconds: 7 x 7 has 3,432.
MAX_PARTITIONS = 3500


def margins(objects: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Count how often each feature value occurs: uint8 (N, K) -> int64 (N, n)."""
    grid = objects.reshape(len(objects), *sizes)
    axes = range(1, len(sizes) + 1)
    parts = [grid.sum(axis=tuple(a for a in axes if a != g), dtype=np.int64) for g in axes]
    return np.concatenate(parts, axis=1)


def countable(counts: tuple[int, ...]) -> bool:
    """Whether `class_sizes` of a grid of two groups takes seconds, not minutes."""
    return len(counts) == 2 and comb(sum(counts), counts[0]) <= MAX_PARTITIONS


@cache
def class_sizes(rows: int, columns: int, n_objects: int) -> Counter[int]:
    """Sort the codes that use every row and column by their margins.

    Parameters
    ----------
    rows, columns
        Values in use, of two groups.
    n_objects
        Number of ones.

    Returns
    -------
    Number N of codes that share their margins -> how many margins have N codes.
    """
    found: Counter[int] = Counter()
    for row_sums in partitions(n_objects, rows, columns):
        for column_sums in partitions(n_objects, columns, rows):
            n = matrices(row_sums, column_sums)
            if n:
                found[n] += orders(row_sums) * orders(column_sums)
    return found


def same_margins(row_sums: Iterable[int], column_sums: Iterable[int]) -> int:
    """Count the 0/1 matrices with these row and column sums, in any order and with zeros."""
    return matrices(_positive(row_sums), _positive(column_sums))


def unrank_matrix(row_sums: list[int], column_sums: list[int], rank: int) -> NDArray[np.uint8]:
    """Write out the 0/1 matrix with this number among those with these row and column sums.

    Parameters
    ----------
    row_sums, column_sums
        Sums, which some matrix has.
    rank
        From 0 to ``same_margins(row_sums, column_sums) - 1``.

    Returns
    -------
    uint8 (rows, columns).
    """
    matrix = np.zeros((len(row_sums), len(column_sums)), np.uint8)
    left = list(column_sums)
    for row, n in enumerate(row_sums):
        values = Counter(v for v in left if v)
        for taken in _choices(tuple(sorted(values.items())), n):
            ways = prod(comb(values[v], t) for v, t in taken.items())
            rest = matrices(_positive(row_sums[row + 1 :]), _lowered(values, taken))
            if rank < ways * rest:
                break
            rank -= ways * rest
        which, rank = divmod(rank, rest)
        ones = []
        for value, t in taken.items():
            which, index = divmod(which, comb(values[value], t))
            columns = (c for c, v in enumerate(left) if v == value)
            ones += next(islice(combinations(columns, t), index, None))
        for column in ones:
            matrix[row, column] = 1
            left[column] -= 1
    return matrix


def _positive(sums: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted((v for v in sums if v), reverse=True))


@cache
def matrices(row_sums: tuple[int, ...], column_sums: tuple[int, ...]) -> int:
    """Count the 0/1 matrices with these row and column sums.

    The last row's ones go to some of the columns of each value; the rest is a smaller matrix.

    Parameters
    ----------
    row_sums, column_sums
        Positive, descending.
    """
    if not row_sums:
        return int(not column_sums)
    values = Counter(column_sums)
    return sum(
        prod(comb(values[v], t) for v, t in taken.items())
        * matrices(row_sums[:-1], _lowered(values, taken))
        for taken in _choices(tuple(sorted(values.items())), row_sums[-1])
    )


def _choices(values: tuple[tuple[int, int], ...], n: int) -> Iterator[dict[int, int]]:
    """Give all ways to take n columns: value -> how many columns of that value."""
    if not values:
        if n == 0:
            yield {}
        return
    (value, available), rest = values[0], values[1:]
    for t in range(min(available, n) + 1):
        for others in _choices(rest, n - t):
            yield {value: t, **others}


def _lowered(values: Counter[int], taken: dict[int, int]) -> tuple[int, ...]:
    """Column sums, positive and descending, after one has been taken off the columns taken."""
    lowered: Counter[int] = Counter()
    for value, number in values.items():
        lowered[value] += number - taken[value]
        lowered[value - 1] += taken[value]
    return tuple(v for v in sorted(lowered, reverse=True) if v for _ in range(lowered[v]))


def partitions(n: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Give the partitions of n into exactly `parts` positive parts of at most `largest`."""
    if parts == 0:
        if n == 0:
            yield ()
        return
    for first in range(min(largest, n - parts + 1), 0, -1):
        for rest in partitions(n - first, parts - 1, first):
            yield (first, *rest)


def orders(parts: tuple[int, ...]) -> int:
    """Count the orders of a partition's parts."""
    return factorial(len(parts)) // prod(factorial(k) for k in Counter(parts).values())
