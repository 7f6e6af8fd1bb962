"""What is lost when different tables give the same object code.

A table says how many objects of each category (row) have each attribute (column); an object code
says only which cells are not empty. Tables with equal margins and the same code differ by moving
units around a cycle of cells that all stay occupied. Such a cell holds 2 or more in one of the
tables, beside another occupied cell in its row and in its column: only rows and columns with at
least 3 units take part. Everything else of a table can be read off its code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bindscope.priors.supply import Floats, Ints, Lattice, Row, entr, gammaln, merge

SMALLEST = 3


class TooManyTables(Exception):
    """More tables than allowed would have to be listed; the message is their number."""


class _Groups(NamedTuple):
    """Tables of some rows and of the active columns, put together by code, sizes and supply used.

    Attributes
    ----------
    used
        int64 (G, A): units of each active column.
    key
        int64 (G,): the same number means the same code and the same sizes, row by row.
    sizes
        int64 (G, R): units of each row so far.
    log_total, entropy
        float64 (B, G): summed weight, and entropy within the group, nats.
    """

    used: Ints
    key: Ints
    sizes: Ints
    log_total: Floats
    entropy: Floats


def entropy_given_code(
    lattice: Lattice,
    rows: Sequence[int],
    log_weights: Floats,
    log_total: Floats,
    max_tables: int,
) -> Floats:
    """Compute the entropy of the table given its object code.

    Parameters
    ----------
    lattice
        Sub-multisets of the columns' units.
    rows
        Units of each row.
    log_weights
        float64 (B, R, V): log-weight of one unit in each cell, per scene.
    log_total
        float64 (B,): log of the summed weights of all tables.
    max_tables
        Largest number of (partial) tables to list at a time.

    Returns
    -------
    ndarray
        float64 (B,), nats.

    Raises
    ------
    TooManyTables
        If more than `max_tables` would have to be listed.
    """
    result = np.zeros(len(log_weights))
    supply = np.array(lattice.supply)
    columns = np.flatnonzero(supply >= SMALLEST)
    active = [i for i, size in enumerate(rows) if size >= SMALLEST]
    if len(columns) < 2:
        return result
    weights = log_weights[:, :, columns]
    for chosen in _subsets(active):
        groups = _group([rows[i] for i in chosen], supply[columns], weights[:, chosen], max_tables)
        shared = (groups.entropy > 0).any(axis=0)
        for sizes in np.unique(groups.sizes[shared], axis=0):
            here = shared & (groups.sizes == sizes).all(axis=1)
            taken = dict(zip(chosen, sizes.tolist(), strict=True))
            rest = lattice.fill(_rest(lattice, rows, log_weights, columns, taken)).log_total
            left = np.tile(supply, (int(here.sum()), 1))
            left[:, columns] -= groups.used[here]
            log_share = groups.log_total[:, here] + rest[:, lattice.index(left)]
            share = np.exp(log_share - log_total[:, None])
            result += (share * groups.entropy[:, here]).sum(axis=1)
    return result


def _subsets(rows: Sequence[int]) -> Iterator[list[int]]:
    for n in range(2, len(rows) + 1):
        yield from map(list, combinations(rows, n))


def _group(rows: Sequence[int], supply: Ints, log_weights: Floats, limit: int) -> _Groups:
    """List the tables of `rows` over the active columns in which every row leaves a choice.

    A row leaves one if at least two of its active cells are occupied, and one of them more than
    once. Rows are added one by one and tables of the same group merged at once, so that a group is
    listed once however many tables it has.
    """
    contents = np.stack(np.unravel_index(np.arange(np.prod(supply + 1)), supply + 1), axis=1)
    n_used, units = (contents > 0).sum(axis=1), contents.sum(axis=1)
    free = (n_used >= 2) & (units > n_used)
    n_scenes = len(log_weights)
    groups = _Groups(
        np.zeros((1, len(supply)), np.int64), np.zeros(1, np.int64), np.zeros((1, 0), np.int64),
        np.zeros((n_scenes, 1)), np.zeros((n_scenes, 1)),
    )  # fmt: skip
    for i, size in enumerate(rows):
        mine = contents[free & (units <= size)]
        if len(groups.key) * len(mine) > limit:
            raise TooManyTables(len(groups.key) * len(mine))
        groups = _with_row(groups, mine, _log_weight(mine, log_weights[:, i]), supply)
    return groups


def _with_row(groups: _Groups, contents: Ints, log_weight: Floats, supply: Ints) -> _Groups:
    """Extend every group by every content of the next row, and merge equal ones."""
    before, row = np.nonzero(
        (groups.used[:, None] + contents[None] <= supply).all(axis=2)
        if len(contents)
        else np.zeros((len(groups.key), 0), bool)
    )
    used = groups.used[before] + contents[row]
    units = contents.sum(axis=1)
    mark = (contents > 0) @ (1 << np.arange(len(supply))) + (units << len(supply))
    columns = [used, groups.key[before, None], mark[row, None]]
    order, starts = _runs(np.concatenate(columns, axis=1))
    before, row, first = before[order], row[order], order[starts]
    if not len(order):
        empty = np.zeros((len(log_weight), 0))
        return _Groups(
            used, groups.key[:0], np.zeros((0, groups.sizes.shape[1] + 1), np.int64), empty, empty
        )
    total, share = merge(groups.log_total[:, before] + log_weight[:, row], starts)
    entropy = np.add.reduceat(entr(share) + share * groups.entropy[:, before], starts, axis=1)
    before, row = before[starts], row[starts]
    _, key = np.unique(
        np.stack([groups.key[before], mark[row]], axis=1), axis=0, return_inverse=True
    )
    sizes = np.concatenate([groups.sizes[before], units[row, None]], axis=1)
    return _Groups(used[first], key.reshape(-1), sizes, total, entropy)


def _runs(table: Ints) -> tuple[Ints, Ints]:
    """Return an order that brings equal rows together, and where each run begins in it."""
    order = np.lexsort(table.T)
    table = table[order]
    new = np.ones(len(table), bool)
    new[1:] = (table[1:] != table[:-1]).any(axis=1)
    return order, np.flatnonzero(new)


def _rest(
    lattice: Lattice,
    rows: Sequence[int],
    log_weights: Floats,
    columns: Ints,
    taken: dict[int, int],
) -> list[Row]:
    """Return the rows that complete the chosen ones' active cells to whole tables.

    A chosen row's other units go to columns that are not active; a row that was not chosen leaves
    no choice among its active cells.
    """
    rest = []
    for i, size in enumerate(rows):
        units = size - taken.get(i, 0)
        contents = lattice.digits[units]
        active = contents[:, columns]
        if i in taken:
            allowed = ~active.any(axis=1)
        else:
            n_used = (active > 0).sum(axis=1)
            allowed = (n_used <= 1) | (active.sum(axis=1) == n_used)
        log_weight = _log_weight(contents, log_weights[:, i])
        rest.append(Row(units, np.where(allowed, log_weight, -np.inf)))
    return rest


def _log_weight(contents: npt.NDArray[np.integer], log_weights: Floats) -> Floats:
    """Log-weight of each content of a row: sum over cells of n log w - log n!; float64 (B, L)."""
    powers = log_weights @ contents.T.astype(np.float64)
    return np.asarray(powers - gammaln(contents + 1.0).sum(axis=1))
