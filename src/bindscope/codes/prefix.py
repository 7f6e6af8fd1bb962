"""Number of completions of an object code whose first cells are known.

Sampling (`sampling.unrank`) and the exact priors (`priors.anchors`) both walk through the cells of
an object code and ask this question at each of them.

The answer is inclusion-exclusion. Let every group g have values that the code uses already, and
free ones, of which `missing_g` have yet to be used. Keep d_g of the free values and count the codes
over what is kept; summed with the right signs, exactly the codes that use every wanted value
remain:

    sum over d of  prod_g (-1)^(missing_g - |d_g|) C(free_g - |d_g|, missing_g - |d_g|)
                   * prod_parts C(free in part, d in part)  *  T[cells left in what is kept, ones]

where the parts are the values before, at and after the cursor, because the cells that are left
depend on how many values are kept in each part and on nothing else, and T[r, c] is the number of
ways to fill r cells freely so that, with c objects so far, the total is allowed. With
``missing_g = free_g`` this counts the covers of a known feature code; with
``missing_g = chosen_g - used_g`` it sums over every feature code that agrees with the prefix.

Counts are exact: int64 modulo 2^64 (intermediate terms may wrap around, the result cannot) as long
as the space has fewer than 2^63 codes, Python integers beyond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.codes.space import CodeSpace, group_slices, n_outcomes, outcome_weights

Counts = npt.NDArray[Any]  # int64 or Python integers
Kept = tuple[int, int, int]

# Columns of a state, per group; the last column of all is the number of objects so far.
USED_AT, USED_AFTER, USED, FREE_BEFORE, FREE_AT, FREE_AFTER, MISSING = range(7)
WIDTH = 7
_BLOCK = 8192  # states that are counted together, which bounds the memory


def integer_dtype(largest: int) -> np.dtype[Any]:
    """Return the type in which counts up to `largest` are exact."""
    return np.dtype(np.int64 if largest < 2**63 else object)


def finishing_table(n_cells: int, weights: Sequence[int]) -> list[list[int]]:
    """Tabulate T[r][c], the outcomes of all ways to fill r cells after c objects.

    `weights` are the outcomes of a code by its number of objects (`space.outcome_weights`); c runs
    one beyond the largest number, where nothing is left.
    """
    row = [*weights, 0]
    table = [row]
    for _ in range(n_cells):
        row = [here + more for here, more in zip(row, [*row[1:], 0], strict=True)]
        table.append(row)
    return table


def _wrapped(values: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> Counts:
    """Store integers exactly (object) or modulo 2^64 (int64)."""
    if dtype.hasobject:
        return np.array(values, dtype=object)
    return np.array([[v % 2**64 for v in row] for row in values], dtype=np.uint64).view(np.int64)


def distinct_rows(
    rows: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct rows of small non-negative integers, and each row's place among them.

    Like ``np.unique(axis=0, return_inverse=True)``, an order of magnitude faster.
    """
    key = np.zeros(len(rows), np.int64)
    bound = 1
    for column in rows.T:
        radix = int(column.max(initial=0)) + 1
        if bound * radix >= 2**62:
            key = np.unique(key, return_inverse=True)[1]
            bound = len(rows)
        key = key * radix + column
        bound *= radix
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], inverse


class Prefix:
    """The revealed part of a batch of object codes.

    `allowed` uint8 (N, n) are the values that a code may use; `required` int (N, G) or (G,) says
    how many values of each group a finished code uses.
    """

    def __init__(
        self, sizes: Sequence[int], allowed: npt.NDArray[np.uint8], required: npt.ArrayLike
    ) -> None:
        self.sizes = tuple(sizes)
        self._places = list(product(*(range(size) for size in self.sizes)))
        # Values stand along the first axis: sums over a few rows of a long array are fast.
        self._allowed = [allowed[:, part].T.astype(bool) for part in group_slices(self.sizes)]
        self._used = [np.zeros_like(part) for part in self._allowed]
        self._required = np.broadcast_to(
            np.asarray(required, np.int64), (len(allowed), len(self.sizes))
        )
        self._ones = np.zeros(len(allowed), np.int64)

    def reveal(self, cell: int, bits: npt.NDArray[Any]) -> None:
        """Record the bits (N,) of a cell."""
        for group, value in enumerate(self._places[cell]):
            self._used[group][value] |= bits.astype(bool)
        self._ones += bits

    def states(self, cell: int) -> npt.NDArray[np.int64]:
        """Describe where codes stand when all cells up to `cell` are decided, (N, 7 G + 1).

        Per group the columns named at the top of this module, then the number of objects so far.
        Codes with the same row have the same continuations.
        """
        n_groups = len(self.sizes)
        states = np.zeros((WIDTH * n_groups + 1, len(self._ones)), np.int64)
        for group, value in enumerate(self._places[cell]):
            used = self._used[group]
            free = self._allowed[group] & ~used
            rows = states[WIDTH * group : WIDTH * (group + 1)]
            rows[USED_AFTER] = used[value + 1 :].sum(axis=0, dtype=np.int16)
            rows[FREE_AFTER] = free[value + 1 :].sum(axis=0, dtype=np.int16)
            total = used.sum(axis=0, dtype=np.int16)
            rows[MISSING] = self._required[:, group] - total
            if group < n_groups - 1:
                rows[USED_AT], rows[FREE_AT] = used[value], free[value]
            # Values of the first group that the cursor has passed never come back.
            if group > 0:
                rows[USED] = total
                before = free[: value + (group == n_groups - 1)]
                rows[FREE_BEFORE] = before.sum(axis=0, dtype=np.int16)
        states[-1] = self._ones
        return states.T


class Completions:
    """Counts the ways to finish object codes of a space."""

    def __init__(self, space: CodeSpace) -> None:
        self.dtype = integer_dtype(n_outcomes(space))
        self.n_groups = len(space.sizes)
        self._table = _wrapped(finishing_table(space.n_cells, outcome_weights(space)), self.dtype)
        top = max(space.sizes)
        binomials = [[comb(n, k) for k in range(top + 1)] for n in range(top + 1)]
        self._binomial = _wrapped(binomials, self.dtype)

    def count(self, states: npt.NDArray[np.int64]) -> Counts:
        """Count the continuations of each row of `Prefix.states`: (N,) exact integers."""
        rows, inverse = distinct_rows(states)
        counts = np.zeros(len(rows), self.dtype)
        for start in range(0, len(rows), _BLOCK):
            counts[start : start + _BLOCK] = self._count_block(rows[start : start + _BLOCK])
        return counts[inverse]

    def _count_block(self, states: npt.NDArray[np.int64]) -> Counts:
        groups = [states[:, WIDTH * g : WIDTH * (g + 1)].T for g in range(self.n_groups)]
        block = _Block(
            groups, [list(self._terms(group)) for group in groups], states[:, -1], self._table
        )
        n = len(states)
        ones, zeros = np.ones(n, np.int64), np.zeros(n, np.int64)
        return block.sum(self.n_groups - 1, np.arange(n), ones, zeros)

    def _terms(self, group: npt.NDArray[np.int64]) -> Iterator[tuple[Kept, Counts]]:
        """Yield how many free values are kept before, at and after the cursor, and the weights."""
        before, at, after, missing = group[[FREE_BEFORE, FREE_AT, FREE_AFTER, MISSING]]
        free = before + at + after
        for used in product(*(range(int(part.max()) + 1) for part in (before, at, after))):
            dropped = missing - sum(used)
            possible = (used[0] <= before) & (used[1] <= at) & (used[2] <= after)
            possible &= (dropped >= 0) & (missing <= free)
            some = np.flatnonzero(possible)
            if not some.size:
                continue
            weights = np.zeros(len(free), self.dtype)
            weights[some] = (
                self._binomial[before[some], used[0]]
                * self._binomial[after[some], used[2]]
                * self._binomial[free[some] - sum(used), dropped[some]]
                * np.where(dropped[some] % 2, -1, 1)
            )
            yield (used[0], used[1], used[2]), weights


@dataclass(frozen=True)
class _Block:
    """States whose continuations are summed together.

    `groups` has per group the state's columns, int64 (7, N), `terms` the choices of kept values
    with their weights (N,); `ones` int64 (N,) are the objects so far, `table` is `finishing_table`.
    """

    groups: Sequence[npt.NDArray[np.int64]]
    terms: Sequence[Sequence[tuple[Kept, Counts]]]
    ones: npt.NDArray[np.int64]
    table: Counts

    def sum(
        self,
        g: int,
        index: npt.NDArray[np.int64],
        full: npt.NDArray[np.int64],
        rest: npt.NDArray[np.int64],
    ) -> Counts:
        """Sum over what groups 0..g keep, for the states `index`.

        `full` is the number of cells that the later groups span, `rest` how many of them are left
        when the earlier groups' values are those at the cursor.
        """
        if g < 0:
            cells: Counts = self.table[rest, self.ones[index]]
            return cells
        total = np.zeros(len(index), self.table.dtype)
        for used, weights in self.terms[g]:
            weight = weights[index]
            some = np.flatnonzero(weight)
            if not some.size:
                continue
            group = self.groups[g][:, index[some]]
            span = (group[USED] + sum(used)) * full[some]
            open_cells = (group[USED_AFTER] + used[2]) * full[some]
            open_cells += (group[USED_AT] + used[1]) * rest[some]
            total[some] += weight[some] * self.sum(g - 1, index[some], span, open_cells)
        return total
