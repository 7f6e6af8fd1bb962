"""Entropy of a table of counts given its object code.

A table says how many objects of each category (row) have each attribute (column); an object code
says only which cells are not empty. Tables with equal margins and the same code differ by moving
units around a cycle of cells that all stay occupied. Such a cell holds 2 or more in one of the
tables, beside another occupied cell in its row and in its column: only rows and columns with at
least 3 units take part. Everything else of a table can be read off its code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import entr, gammaln

from bindscope.core.array_types import Doubles, Integers
from bindscope.priors.multisets import Lattice, LatticeRow, Runs, merge

SMALLEST = 3
_COMPARED = 32  # pairs that may be compared for each table that may be listed
_BLOCK = 1 << 18  # pairs compared at a time


class TooManyTablesError(Exception):
    """More tables than allowed would have to be listed; the message is their number."""


class _Groups(NamedTuple):
    """Tables of some rows and of the active columns, put together by code, sizes and units used.

    `used` int64 (G, A) are the units of each active column, `sizes` int64 (G, R) those of each row
    so far; the same `key` int64 (G,) means the same code and sizes, row by row. `log_total` and
    `entropy` float64 (B, G): summed weight, and entropy within the group, nats.
    """

    used: Integers
    key: Integers
    sizes: Integers
    log_total: Doubles
    entropy: Doubles


def entropy_given_code(
    lattice: Lattice, rows: Sequence[int], log_weights: Doubles, log_total: Doubles, max_tables: int
) -> Doubles:
    """Compute the entropy of the table given its object code, float64 (B,), nats.

    `rows` are the units of each row, `log_weights` (B, R, V) the log-weight of one unit in each
    cell, `log_total` (B,) that of all tables. TooManyTablesError if more than `max_tables`
    (partial) tables would have to be listed at a time.
    """
    result = np.zeros(len(log_weights))
    column_sizes = np.array(lattice.column_sizes)
    columns = np.flatnonzero(column_sizes >= SMALLEST)
    active = [i for i, size in enumerate(rows) if size >= SMALLEST]
    if len(columns) < 2 or len(active) < 2:
        return result
    weights = log_weights[:, :, columns]
    for chosen, groups in _groups(rows, active, column_sizes[columns], weights, max_tables):
        shared = (groups.entropy > 0).any(axis=0)
        if not shared.any():
            continue
        others = [i for i in range(len(rows)) if i not in chosen]
        known = lattice.totals(
            [_row(lattice, rows[i], log_weights[:, i], columns, False) for i in others],
            np.zeros((len(log_weights), 1)),
        )
        rows_of_others = sum(rows[i] for i in others)
        for sizes in np.unique(groups.sizes[shared], axis=0):
            here = shared & (groups.sizes == sizes).all(axis=1)
            rest = [
                _row(lattice, rows[i] - used, log_weights[:, i], columns, True)
                for i, used in zip(chosen, sizes.tolist(), strict=True)
            ]
            remaining = np.tile(column_sizes, (int(here.sum()), 1))
            remaining[:, columns] -= groups.used[here]
            totals = lattice.totals(rest, known, rows_of_others)[:, lattice.index(remaining)]
            share = np.exp(groups.log_total[:, here] + totals - log_total[:, None])
            result += (share * groups.entropy[:, here]).sum(axis=1)
    return result


def _groups(
    rows: Sequence[int], active: Sequence[int], capacity: Integers, log_weights: Doubles, limit: int
) -> Iterator[tuple[list[int], _Groups]]:
    """Yield two or more of the active rows, and their tables over the active columns, in groups.

    Listed are the tables in which each of these rows leaves a choice: at least two of its active
    cells are occupied, and one of them more than once. Rows are added one by one and tables of the
    same group merged at once, so that a group is listed once however many tables it has.
    """
    contents = np.stack(np.unravel_index(np.arange(np.prod(capacity + 1)), capacity + 1), axis=1)
    n_used, units = (contents > 0).sum(axis=1), contents.sum(axis=1)
    contents = contents[(n_used >= 2) & (units > n_used)]
    n_scenes = len(log_weights)
    nothing = _Groups(
        np.zeros((1, len(capacity)), np.int64),
        np.zeros(1, np.int64),
        np.zeros((1, 0), np.int64),
        np.zeros((n_scenes, 1)),
        np.zeros((n_scenes, 1)),
    )
    todo: list[tuple[list[int], _Groups, list[int]]] = [([], nothing, list(active))]
    while todo:
        chosen, groups, further = todo.pop()
        if len(chosen) >= 2:
            yield chosen, groups
        for n, i in enumerate(further):
            mine = contents[contents.sum(axis=1) <= rows[i]]
            log_weight = _log_weight(mine, log_weights[:, i])
            extended = _with_row(groups, mine, log_weight, capacity, limit)
            if len(extended.key):
                todo.append(([*chosen, i], extended, further[n + 1 :]))


def _fitting(
    used: Integers, contents: Integers, capacity: Integers, limit: int
) -> tuple[Integers, Integers]:
    """Return the pairs of a group and a content of the next row that the columns have room for."""
    if len(used) * len(contents) > _COMPARED * limit:
        raise TooManyTablesError(len(used) * len(contents) // _COMPARED)
    fits, n = [], 0
    step = max(1, _BLOCK // max(1, len(contents)))
    for first in range(0, len(used), step):
        room = capacity - used[first : first + step]
        before, row = np.nonzero((contents[None] <= room[:, None]).all(axis=2))
        fits.append((before + first, row))
        n += len(row)
        if n > limit:
            raise TooManyTablesError(n)
    return np.concatenate([f[0] for f in fits]), np.concatenate([f[1] for f in fits])


def _with_row(
    groups: _Groups, contents: Integers, log_weight: Doubles, capacity: Integers, limit: int
) -> _Groups:
    """Extend every group by every content of the next row, and merge equal ones."""
    before, row = _fitting(groups.used, contents, capacity, limit)
    used = groups.used[before] + contents[row]
    units = contents.sum(axis=1)
    marks = (contents > 0) @ (1 << np.arange(len(capacity))) + (units << len(capacity))
    _, mark = np.unique(marks, return_inverse=True)
    # Fits 63 bits: `key` and `mark` are dense, and the lattice's size is limited.
    code = groups.key[before] * len(contents) + mark[row]
    order, runs = _runs(np.ravel_multi_index(used.T, capacity + 1) + code * np.prod(capacity + 1))
    before, row, first = before[order], row[order], order[runs.starts]
    if not len(order):
        return _Groups(used, code, groups.sizes[:0], *(groups.log_total[:, :0],) * 2)
    terms = groups.log_total.take(before, axis=1) + log_weight.take(row, axis=1)
    total, share = merge(terms, runs)
    surprise = entr(share) + share * groups.entropy.take(before, axis=1)
    _, key = np.unique(code[first], return_inverse=True)
    before, row = before[runs.starts], row[runs.starts]
    sizes = np.concatenate([groups.sizes[before], units[row, None]], axis=1)
    entropy = np.add.reduceat(surprise, runs.starts, axis=1)
    return _Groups(used[first], key, sizes, total, entropy)


def _runs(codes: Integers) -> tuple[Integers, Runs]:
    """Return an order that brings equal codes together, and the runs of equal ones in it."""
    order = np.argsort(codes, kind="stable")
    new = np.diff(codes[order], prepend=-1) > 0
    return order, Runs(np.flatnonzero(new), np.cumsum(new) - 1)


def _row(
    lattice: Lattice, units: int, log_weights: Doubles, columns: Integers, chosen: bool
) -> LatticeRow:
    """Return a row that completes the chosen rows' active cells to whole tables.

    The rest of a chosen row goes to columns that are not active; a row that was not chosen leaves
    no choice among its active cells.
    """
    contents = lattice.digits[units]
    active = contents[:, columns]
    if chosen:
        allowed = ~active.any(axis=1)
    else:
        n_used = (active > 0).sum(axis=1)
        allowed = (n_used <= 1) | (active.sum(axis=1) == n_used)
    return LatticeRow(units, np.where(allowed, _log_weight(contents, log_weights), -np.inf))


def _log_weight(contents: npt.NDArray[np.integer], log_weights: Doubles) -> Doubles:
    """Log-weight of each content of a row: sum over cells of n log w - log n!; float64 (B, L)."""
    powers = log_weights @ contents.T.astype(np.float64)
    return np.asarray(powers - gammaln(contents + 1.0).sum(axis=1))
