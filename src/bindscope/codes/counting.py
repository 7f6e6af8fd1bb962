"""Exact counts of object codes, with Python integers and any number of feature groups.

Everything else in the rooms `codes` and `priors` (sampling, entropies, anchors) rests on `covers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import comb, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bindscope.config.codes import Space


@cache
def subsets(cells: int, smallest: int, largest: int) -> int:
    """Count the subsets of `cells` cells that have `smallest` to `largest` members."""
    return sum(comb(cells, size) for size in range(smallest, min(largest, cells) + 1))


@cache
def covers(counts: tuple[int, ...], smallest: int, largest: int) -> int:
    """Count the object codes that use every one of `counts` values of the groups."""
    return ways_that_use_all(counts, lambda cells: subsets(cells, smallest, largest))


def ways_that_use_all(counts: Sequence[int], ways: Callable[[int], int]) -> int:
    r"""Count the ways (by number of cells) to fill a grid that use every value of every group.

    Inclusion-exclusion over the values that are left out, for w_k(n) = C(n, k):

    .. math:: N_k(a_1..a_G) = \sum_{i_1..i_G} (-1)^{\sum i} \prod_g \binom{a_g}{i_g}
              w_k(\prod_g (a_g - i_g))
    """
    total = 0
    for left_out in product(*(range(count + 1) for count in counts)):
        choices = prod(comb(count, i) for count, i in zip(counts, left_out, strict=True))
        cells = prod(count - i for count, i in zip(counts, left_out, strict=True))
        total += (-1) ** sum(left_out) * choices * ways(cells)
    return total


def by_counts(
    sizes: Sequence[int], ways: Callable[[tuple[int, ...]], int]
) -> dict[tuple[int, ...], int]:
    """Tabulate positive `ways` per vector of counts of used values, in lexicographic order."""
    vectors = product(*(range(size + 1) for size in sizes))
    return {counts: n_ways for counts in vectors if (n_ways := ways(counts))}


def n_feature_codes(sizes: Sequence[int], counts: Sequence[int]) -> int:
    """Count the feature codes that use `counts` values of groups of `sizes` values."""
    return prod(comb(size, count) for size, count in zip(sizes, counts, strict=True))


def largest_scene(space: Space) -> int:
    """Return the largest number of objects in a scene of a space, repeats of a type included.

    An object code has at most one bit per type, so `CodeSpace.max_objects` can be smaller.
    """
    if space.kind == "balanced" or space.kind == "draws":
        return space.n_objects
    if space.kind == "counted":
        return space.max_objects
    return min(space.max_objects, prod(group.size for group in space.groups))
