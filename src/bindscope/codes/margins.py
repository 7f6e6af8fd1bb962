"""Margins of object codes of two groups: how many objects have each value.

An object code of two groups is a 0/1 matrix, and its margins M are the sums of rows and columns;
the feature code says which of them are not 0. Rows, and columns, can be permuted, so counts depend
on sorted sums alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, islice
from math import comb, factorial, prod

import numpy as np
import numpy.typing as npt

MarginSums = tuple[int, ...]  # positive, descending


@cache
def matrices(rows: MarginSums, columns: MarginSums, further: int = 0) -> int:
    r"""Count the 0/1 matrices with given row sums, some columns of given sums and further ones.

    Sums are positive and descend. Columns of given sums are taken off one by one: each has its ones
    in some of the rows of each sum. What is left over are c = `further` columns, none of them
    empty, by inclusion-exclusion over those that are:

    .. math:: \sum_s (-1)^s \binom{c}{s} \prod_v \binom{c - s}{r_v}
    """
    if columns:
        return sum(
            ways * matrices(remaining, columns[1:], further)
            for remaining, ways in lowered(rows, columns[0])
        )
    return sum(
        (-1) ** empty * comb(further, empty) * prod(comb(further - empty, row) for row in rows)
        for empty in range(further + 1)
    )


@cache
def lowered(sums: MarginSums, n: int) -> tuple[tuple[MarginSums, int], ...]:
    """Take one off n of the sums: what may be left, and in how many ways."""
    states: list[tuple[MarginSums, int, int]] = [((), n, 1)]
    for value, number in Counter(sums).items():
        states = [
            (
                (
                    *remaining,
                    *(value,) * (number - n_lowered),
                    *(value - 1,) * (n_lowered if value > 1 else 0),
                ),
                to_take - n_lowered,
                ways * comb(number, n_lowered),
            )
            for remaining, to_take, ways in states
            for n_lowered in range(min(number, to_take) + 1)
        ]
    return tuple((remaining, ways) for remaining, to_take, ways in states if not to_take)


def partitions(n: int, parts: int, largest: int) -> Iterator[MarginSums]:
    """Give the partitions of n into exactly `parts` positive parts of at most `largest`."""
    if parts == 0:
        if n == 0:
            yield ()
        return
    for first in range(min(largest, n - parts + 1), 0, -1):
        for rest in partitions(n - first, parts - 1, first):
            yield (first, *rest)


@cache
def n_partitions(n: int, parts: int, largest: int) -> int:
    """Count what `partitions` gives."""
    if parts == 0 or n < parts or largest == 0:
        return int(parts == 0 and n == 0)
    # Either no part is as large as allowed, or one is and goes.
    return n_partitions(n, parts, largest - 1) + n_partitions(n - largest, parts - 1, largest)


def orders(parts: MarginSums) -> int:
    """Count the orders of a partition's parts."""
    return factorial(len(parts)) // prod(factorial(k) for k in Counter(parts).values())


@cache
def codes_by_margins(rows: int, columns: int, n_objects: int) -> Counter[int]:
    """Sort the object codes that use every row and column by their margins.

    Returns
    -------
    Number N of codes with the same margins -> how many margins have N codes.
    """
    codes: Counter[int] = Counter()
    for row_sums in partitions(n_objects, rows, columns):
        for column_sums in partitions(n_objects, columns, rows):
            codes[matrices(row_sums, column_sums)] += orders(row_sums) * orders(column_sums)
    codes.pop(0, None)
    return codes


def unrank_matrix(row_sums: list[int], column_sums: list[int], rank: int) -> npt.NDArray[np.uint8]:
    """Write out matrix number `rank` of those with these row and column sums."""
    matrix = np.zeros((len(row_sums), len(column_sums)), np.uint8)
    sums = list(column_sums)
    for row, n in enumerate(row_sums):
        before = _as_sums(sums)
        for after, ways in lowered(before, n):
            rest = matrices(_as_sums(row_sums[row + 1 :]), after)
            if rank < ways * rest:
                break
            rank -= ways * rest
        which, rank = divmod(rank, rest)
        n_lowered = _n_lowered(Counter(before), Counter(after))
        for value, number in n_lowered.items():
            alike = [column for column, column_sum in enumerate(column_sums) if column_sum == value]
            which, index = divmod(which, comb(len(alike), number))
            for column in next(islice(combinations(alike, number), index, None)):
                matrix[row, column] = 1
                sums[column] -= 1
        column_sums = list(sums)
    return matrix


def _n_lowered(before: Counter[int], after: Counter[int]) -> dict[int, int]:
    """Of how many sums of each value one was taken off."""
    lowered_sums: dict[int, int] = {}
    for value in sorted(before, reverse=True):
        lowered_sums[value] = before[value] + lowered_sums.get(value + 1, 0) - after[value]
    return lowered_sums


def margins(
    objects: npt.NDArray[np.uint8], sizes: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sum the rows and the columns of object codes (N, K): int64 (N, rows), (N, columns)."""
    grid = objects.reshape(len(objects), *sizes)
    return grid.sum(axis=2, dtype=np.int64), grid.sum(axis=1, dtype=np.int64)


def descending(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sort the sums of each scene, the largest first."""
    result: npt.NDArray[np.int64] = -np.sort(-sums, axis=1)
    return result


def as_sums(row: npt.NDArray[np.int64]) -> MarginSums:
    """Return a sorted row without its zeros."""
    return tuple(value for value in row.tolist() if value)


def _as_sums(sums: Iterable[int]) -> MarginSums:
    return tuple(sorted((value for value in sums if value), reverse=True))


def same_margins(row_sums: Iterable[int], column_sums: Iterable[int]) -> int:
    """Count the 0/1 matrices with these row and column sums, in any order and with zeros."""
    return matrices(_as_sums(row_sums), _as_sums(column_sums))
