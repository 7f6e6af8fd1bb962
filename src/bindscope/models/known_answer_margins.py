"""Object codes with given margins: how many say how often each colour and each shape occurs.

The mean token of `token_grid` is the pair of margins of O, so I(O;Z) = H(margins), which takes
the number of 0/1 matrices for every pair of row and column sums. Rows, and columns, can be
permuted, so sorted sums suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import comb, factorial, fsum, log2, prod

# Partitions inside the largest grid that are still counted in seconds: 7 x 7 has 3,432.
MAX_PARTITIONS = 3500


def margin_sum(counts: tuple[int, ...], n_objects: int) -> float | None:
    """Sum of N log2 N over all margins in which every row and column is used.

    N is the number of 0/1 matrices with these margins.

    Parameters
    ----------
    counts
        Rows and columns.
    n_objects
        Number of ones.

    Returns
    -------
    The sum; None for other than two groups, or grids that would take minutes.
    """
    if len(counts) != 2 or comb(sum(counts), counts[0]) > MAX_PARTITIONS:
        return None
    return _margin_sum(*sorted(counts), n_objects)  # transposing changes nothing


@cache
def _margin_sum(rows: int, columns: int, n_objects: int) -> float:
    terms = []
    for row_sums in partitions(n_objects, rows, columns):
        for column_sums in partitions(n_objects, columns, rows):
            n = matrices(row_sums, column_sums)
            if n:
                terms.append(orders(row_sums) * orders(column_sums) * n * log2(n))
    return fsum(terms)


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
