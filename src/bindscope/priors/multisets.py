"""The ways to distribute a multiset over the rows of a table, in log space.

A multiset has so many units of each of several values: the sums of the table's columns. Its
sub-multisets, sorted into levels by their number of units, are the states of a dynamic program that
fills the rows one after the other: from level a, a row of m units leads to level a + m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import entr, gammaln

from bindscope.core.array_types import Doubles, Integers

# Pairs of states that one step compares at a time, and edges that a lattice remembers.
_BLOCK = 1 << 20
_REMEMBERED = 1 << 21


class Edges(NamedTuple):
    """Edges into consecutive states of a level, sorted by target; every target has at least one.

    `source` int64 (E,) is the state that an edge leaves, in its level; `row` int64 (E,) the row's
    content, among the states of the level of the row's size.
    """

    source: Integers
    row: Integers
    runs: Runs


class Runs(NamedTuple):
    """Consecutive elements that belong together: where runs start (T,), each element's run (E,)."""

    starts: Integers
    member: Integers


class LatticeRow(NamedTuple):
    """One row of a table: its units, and the log-weight (B, L) of every such sub-multiset."""

    size: int
    log_weight: Doubles


class Partial(NamedTuple):
    """What is known at the states of one level, arrays float64 (B, L), nats.

    Log of the summed weights of all ways to fill the rows so far, the entropy over those ways, and
    the expectation of sum over cells of log(cell!).
    """

    log_total: Doubles
    entropy: Doubles
    log_factorials: Doubles


class Lattice:
    """All sub-multisets of a multiset, level by level, from the units (>= 1) of each value."""

    def __init__(self, column_sizes: Sequence[int]) -> None:
        self.column_sizes = tuple(column_sizes)
        radices = [units + 1 for units in column_sizes]
        self.strides = np.array([*accumulate(radices[:0:-1], initial=1, func=int.__mul__)][::-1])
        flat = np.arange(prod(radices))
        digits = np.stack(np.unravel_index(flat, radices), axis=1)
        order = np.argsort(digits.sum(axis=1), kind="stable")
        bounds = np.cumsum(level_sizes(self.column_sizes))[:-1]
        self.flat = np.split(order, bounds)  # per level: codes in mixed radix
        self.digits = np.split(digits[order], bounds)  # per level: int64 (L, V)
        self.log_factorials = [gammaln(d + 1.0).sum(axis=1) for d in self.digits]
        self._position = np.empty(len(flat), np.int64)
        for codes in self.flat:
            self._position[codes] = np.arange(len(codes))
        self._known: dict[tuple[int, int], list[Edges]] = {}
        self._n_known = 0

    def index(self, units: npt.NDArray[np.integer]) -> Integers:
        """Return where sub-multisets, integer (N, V), stand in their levels."""
        return np.asarray(self._position[units @ self.strides])

    def edges(self, level: int, size: int) -> Iterator[Edges]:
        """Yield the edges of rows of `size` units that start at `level`, target by target.

        Small ones are remembered, large ones made anew, so that memory stays bounded.
        """
        known = self._known.get((level, size))
        if known is not None:
            yield from known
            return
        blocks: list[Edges] | None = []
        for block in self._blocks(level, size):
            yield block
            if blocks is not None:
                blocks.append(block)
                self._n_known += len(block.source)
                if self._n_known > _REMEMBERED:
                    self._n_known -= sum(len(edges.source) for edges in blocks)
                    blocks = None
        if blocks is not None:
            self._known[level, size] = blocks

    def _blocks(self, level: int, size: int) -> Iterator[Edges]:
        targets, rows = self.digits[level + size], self.digits[size]
        step = max(1, _BLOCK // len(rows))
        for first in range(0, len(targets), step):
            part = targets[first : first + step]
            fits = np.ones((len(part), len(rows)), bool)
            for value in range(len(self.column_sizes)):
                fits &= part[:, value, None] >= rows[None, :, value]
            target, row = np.nonzero(fits)
            codes = self.flat[level + size][first : first + step][target] - self.flat[size][row]
            starts = np.searchsorted(target, np.arange(len(part)))
            yield Edges(self._position[codes], row, Runs(starts, target))

    def fill(self, rows: Sequence[LatticeRow]) -> Partial:
        """Fill rows in the given order; return what is known at the level of their summed sizes."""
        known = Partial(*(np.zeros((len(rows[0].log_weight), 1)) for _ in Partial._fields))
        level = 0
        for row in rows:
            parts = [
                self._step(known, row, edges, self.log_factorials[row.size])
                for edges in self.edges(level, row.size)
            ]
            known = Partial(
                *(np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
            )
            level += row.size
        return known

    @staticmethod
    def _step(known: Partial, row: LatticeRow, edges: Edges, log_factorials: Doubles) -> Partial:
        total, share = merge(_terms(known.log_total, row, edges), edges.runs)
        surprise = entr(share) + share * known.entropy.take(edges.source, axis=1)
        cells = known.log_factorials.take(edges.source, axis=1) + log_factorials[edges.row]
        return Partial(
            total,
            np.add.reduceat(surprise, edges.runs.starts, axis=1),
            np.add.reduceat(share * cells, edges.runs.starts, axis=1),
        )

    def totals(self, rows: Sequence[LatticeRow], log_total: Doubles, level: int = 0) -> Doubles:
        """Fill further rows from a level whose totals (B, L) are given; return totals only."""
        for row in rows:
            parts = [
                merge(_terms(log_total, row, edges), edges.runs)[0]
                for edges in self.edges(level, row.size)
            ]
            log_total = np.concatenate(parts, axis=1)
            level += row.size
        return log_total


def _terms(log_total: Doubles, row: LatticeRow, edges: Edges) -> Doubles:
    return log_total.take(edges.source, axis=1) + row.log_weight.take(edges.row, axis=1)


def merge(log_weights: Doubles, runs: Runs) -> tuple[Doubles, Doubles]:
    """Add up log-weights (B, E) in runs of columns: log sums (B, T) and shares (B, E).

    -inf is a weight of zero; the share is 0 where the sum is 0.
    """
    largest = np.maximum.reduceat(log_weights, runs.starts, axis=1)
    largest[np.isneginf(largest)] = 0.0
    shares = np.exp(log_weights - largest.take(runs.member, axis=1))
    totals = np.add.reduceat(shares, runs.starts, axis=1)
    shares /= np.where(totals > 0, totals, 1.0).take(runs.member, axis=1)
    with np.errstate(divide="ignore"):
        return np.log(totals) + largest, shares


@lru_cache(maxsize=1 << 14)
def level_sizes(column_sizes: tuple[int, ...]) -> list[int]:
    """Count the sub-multisets of each size, 0 to all units; exact integers."""
    return reduce(_times_geometric, column_sizes, [1])


def _times_geometric(sizes: list[int], units: int) -> list[int]:
    """Multiply a polynomial by 1 + x + ... + x^units: differences of running sums."""
    sums = [0] * (units + 1) + [*accumulate([*sizes, *[0] * units])]
    return [after - before for after, before in zip(sums[units + 1 :], sums, strict=False)]
