"""How many, and what goes with what: the exact prior of O given F in two parts, two groups.

Between a feature code F (which values occur) and an object code O (which of their combinations do)
stand the counts M: how many objects have each value, the margins of the grid of objects. By the
chain rule H(O|F) = H(M|F) + H(O|M). Counts are written as the *thermometer bits* [M_v >= j],
j = 2, 3, ...; the first one, [M_v >= 1], is F's.

All is counted with exact integers (`codes.margins`):

- the sums of rows given F, in order: inclusion-exclusion over the columns that stay empty, the rows
  to come being summed over by convolution;
- the sums of columns given those of rows and of the columns before: matrices with these sums. Both
  depend on the *multiset* of the sums so far;
- the cells given M and the cells before, row by row: the ones that the current row has left go to
  some of its columns, and the rows to come are a smaller matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import comb, fsum, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.codes.margins import (
    MarginSums,
    as_sums,
    codes_by_margins,
    descending,
    lowered,
    margins,
    matrices,
    n_partitions,
)
from bindscope.codes.prefix import distinct_rows, integer_dtype
from bindscope.codes.space import CodeSpace, n_outcomes, outcome_weights
from bindscope.core.array_types import Bits, Integers
from bindscope.priors.log_ratios import LogOdds, log_ratio

Ways = npt.NDArray[np.object_]

# Pairs of sorted row and column sums, over all numbers of used values: 8 x 8 values with up to 16
# objects have 25,173, which takes a second; ten times as many would take gigabytes.
MAX_MARGINS = 60_000


def not_counted(space: CodeSpace) -> str | None:
    """Say why counts have no exact prior in a space; None where they have one."""
    if len(space.sizes) != 2:
        return f"counts are told apart for two feature groups, and there are {len(space.sizes)}"
    if max(outcome_weights(space)) > 1:
        return "objects may repeat, so that an object code does not say how many there are"
    n_margins = 0
    for rows, columns in space.covers():
        for m in range(space.min_objects, space.max_objects + 1):
            n_margins += n_partitions(m, rows, columns) * n_partitions(m, columns, rows)
            if n_margins > MAX_MARGINS:
                return f"there are more than {MAX_MARGINS:,} margins, too many to count over"
    return None


def count_anchors(space: CodeSpace, objects: Bits) -> dict[str, npt.NDArray[Any]]:
    """Compute count bits and the prior log-odds of the two parts of O given F.

    `counts` uint8 (N, T), `counts_given_feature` (N, T) and `object_given_counts` (N, K), float64
    nats with infinities. Empty where counts are not told apart (`not_counted`) or follow from F, as
    they do if every value that occurs has one object.
    """
    if not_counted(space) or not any(count_levels(space)):
        return {}
    return {
        "counts": count_bits(space, objects),
        "counts_given_feature": count_log_odds(space, objects),
        "object_given_counts": cell_log_odds(space, objects),
    }


def count_levels(space: CodeSpace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the j of the count bits [M_v >= j] of each row, and of each column.

    Left out are those that follow from F in the whole space.
    """
    allowed = _allowed(space)
    levels: list[set[int]] = [set(), set()]
    for rows, columns in space.covers():
        if not rows:  # the empty scene
            continue
        for level_values, used, across in ((levels[0], rows, columns), (levels[1], columns, rows)):
            possible = [n for n, ways in enumerate(_row_ways(used, across, (), allowed)) if ways]
            level_values.update(range(min(possible) + 1, max(possible) + 1))
    return tuple(sorted(levels[0])), tuple(sorted(levels[1]))


def count_bits(space: CodeSpace, objects: Bits) -> Bits:
    """Return the count bits of object codes, uint8 (N, T): of each row, then of each column."""
    both = zip(margins(objects, _two(space)), count_levels(space), strict=True)
    parts = [
        (sums[:, :, None] >= np.array(levels, np.int64)).reshape(
            len(objects), sums.shape[1] * len(levels)
        )
        for sums, levels in both
    ]
    return np.concatenate(parts, axis=1).view(np.uint8)


def count_log_odds(space: CodeSpace, objects: Bits) -> LogOdds:
    """Log-odds of every count bit given F and the count bits before it, nats, (N, T).

    Infinite where a bit is certain.
    """
    rows, columns = margins(objects, _two(space))
    levels, allowed = count_levels(space), _allowed(space)
    n_used = [(sums > 0).sum(axis=1, keepdims=True) for sums in (rows, columns)]

    def of_row(state: Integers) -> list[int]:
        used, across = state[:2].tolist()
        return _row_ways(used, across, as_sums(state[2:]), allowed)

    def of_column(state: Integers) -> list[int]:
        across_sums, before = (
            as_sums(state[1 : 1 + rows.shape[1]]),
            as_sums(state[1 + rows.shape[1] :]),
        )
        further = int(state[0]) - len(before) - 1
        ways = [
            matrices(across_sums, _with(before, n), further) for n in range(1, rows.shape[1] + 1)
        ]
        return [0, *ways]

    sorted_rows = descending(rows)
    parts = [
        np.empty((len(objects), 0)),
        *_thermometer(rows, levels[0], np.hstack(n_used), of_row),
        *_thermometer(columns, levels[1], np.hstack([n_used[1], sorted_rows]), of_column),
    ]
    return np.concatenate(parts, axis=1)


def cell_log_odds(space: CodeSpace, objects: Bits) -> LogOdds:
    """Log-odds of o_k given M and o_<k, nats, (N, K), infinite where a bit is certain."""
    rows, columns = margins(objects, _two(space))
    dtype = integer_dtype(n_outcomes(space))
    odds = np.full(objects.shape, -np.inf)
    rest = [descending(rows[:, i + 1 :]) for i in range(rows.shape[1])]
    before = _distinct(np.hstack([descending(rows), descending(columns)]), _count(rows.shape[1]))
    before = before.astype(dtype)
    row_rest, column_rest = rows.copy(), columns.copy()
    for cell, (i, j) in enumerate(np.ndindex(*_two(space))):
        bit = objects[:, cell]
        open_ = np.flatnonzero((row_rest[:, i] > 0) & (column_rest[:, j] > 0))
        row_rest[:, i] -= bit
        column_rest[:, j] -= bit
        state = np.hstack(
            [
                row_rest[open_, i, None],
                rest[i][open_],
                descending(column_rest[open_, : j + 1]),
                descending(column_rest[open_, j + 1 :]),
            ]
        )
        after = _distinct(state, _completions(rows.shape[1] - i - 1, j + 1)).astype(dtype)
        ratio = log_ratio(after, before[open_] - after)
        odds[open_, cell] = ratio * np.where(bit[open_], 1.0, -1.0)
        before[open_] = after
    return odds


def object_given_counts_bits(counts: tuple[int, ...], space: CodeSpace) -> float:
    """H(O|M) in bits given a feature code that uses so many rows and columns."""
    classes = margin_classes(counts, space)
    codes = sum(ways * margins for ways, margins in classes.items())
    return fsum(ways * margins * log2(ways) for ways, margins in classes.items()) / codes


def margin_classes(counts: tuple[int, ...], space: CodeSpace) -> Counter[int]:
    """Return how many margins M have N(M) object codes, by N, given how many values F uses."""
    rows, columns = sorted(counts)  # transposing changes nothing
    return _margin_classes(rows, columns, space.min_objects, space.max_objects)


@lru_cache(maxsize=1 << 12)
def _margin_classes(rows: int, columns: int, smallest: int, largest: int) -> Counter[int]:
    classes: Counter[int] = Counter()
    for m in range(smallest, largest + 1):
        classes += codes_by_margins(rows, columns, m)
    return classes


def _two(space: CodeSpace) -> tuple[int, int]:
    n_rows, n_columns = space.sizes
    return n_rows, n_columns


def _allowed(space: CodeSpace) -> tuple[int, ...]:
    """Return 1 for the numbers of objects that are allowed, 0 for others, as `_row_ways` asks."""
    return tuple(outcome_weights(space))


def _with(sums: MarginSums, value: int) -> MarginSums:
    return tuple(sorted((*sums, value), reverse=True))


@lru_cache(maxsize=1 << 16)
def _row_ways(used: int, across: int, before: MarginSums, allowed: tuple[int, ...]) -> list[int]:
    """Count the covers of `used` rows and `across` columns by the sum of the next row.

    `allowed` is 1 for each allowed number of objects from 0, else 0. Item n: covers whose first
    used rows have the sums `before` and then n; item 0 is 0.
    """
    ways = [0] * (across + 1)
    for empty in range(across + 1):
        cells = across - empty
        so_far = (-1) ** empty * comb(across, empty)
        for row in before:
            so_far *= comb(cells, row)
        further = _further_rows(cells, used - len(before) - 1, allowed)
        for n in range(1, across + 1):
            total = sum(before) + n
            if total < len(allowed):
                ways[n] += so_far * comb(cells, n) * further[total]
    return ways


@lru_cache(maxsize=1 << 12)
def _further_rows(cells: int, rows: int, allowed: tuple[int, ...]) -> list[int]:
    """Count the ways to fill further rows, none empty, by the number of objects before them."""
    ways = list(allowed)
    for _ in range(rows):
        ways = [
            sum(comb(cells, n) * ways[total + n] for n in range(1, len(ways) - total))
            for total in range(len(ways))
        ]
    return ways


def _thermometer(
    sums: Integers,
    levels: tuple[int, ...],
    across_sums: Integers,
    ways: Callable[[Integers], list[int]],
) -> Iterator[LogOdds]:
    """Yield the log-odds (N, levels) of the bits [sum >= j] of each value in turn, j of `levels`.

    Sums are int (N, values), `across_sums` int (N, ...) is known before; `ways` makes, from a row
    of it and the sums of the used values before, sorted, the outcomes by the next sum, from 0.
    """
    for value in range(sums.shape[1] if levels else 0):
        odds = np.full((len(sums), len(levels)), -np.inf)
        used = np.flatnonzero(sums[:, value])
        states = np.hstack([across_sums[used], descending(sums[used, :value])])
        rows, place = distinct_rows(states)
        table = np.array([_level_odds(ways(row), levels) for row in rows], np.float64)
        # The bit after the first that is 0 is certain: it is 0 too.
        reached = sums[used, value, None] >= np.array([0, *levels[:-1]])
        odds[used] = np.where(reached, table.reshape(len(rows), len(levels))[place], -np.inf)
        yield odds


def _level_odds(ways: list[int], levels: tuple[int, ...]) -> list[float]:
    """Log-odds of [n >= j] given that n is at least the level before, for each level j."""
    odds = []
    for previous, level in zip((0, *levels), levels, strict=False):
        pair = np.array([[sum(ways[level:])], [sum(ways[previous:level])]], dtype=object)
        odds.append(float(log_ratio(*pair)[0]))
    return odds


def _distinct(states: Integers, count: Callable[[Integers], int]) -> Ways:
    """Count for every state, each distinct one once."""
    rows, place = distinct_rows(states)
    ways = np.empty(len(rows), dtype=object)
    ways[:] = [count(row) for row in rows]
    result: Ways = ways[place]
    return result


def _count(n_rows: int) -> Callable[[Integers], int]:
    return lambda state: matrices(as_sums(state[:n_rows]), as_sums(state[n_rows:]))


def _completions(n_rest: int, n_passed: int) -> Callable[[Integers], int]:
    """Count the ways to finish a code in the middle of a row.

    A state is: ones left in the row, sums of the rows to come, ones left in the columns that the
    row has passed, and in those it has not; each sorted.
    """

    def count(state: Integers) -> int:
        rest = as_sums(state[1 : 1 + n_rest])
        passed = as_sums(state[1 + n_rest : 1 + n_rest + n_passed])
        return _finish(int(state[0]), rest, passed, as_sums(state[1 + n_rest + n_passed :]))

    return count


def _finish(ones: int, rest: MarginSums, passed: MarginSums, open_: MarginSums) -> int:
    return sum(
        ways * matrices(rest, tuple(sorted((*remaining, *passed), reverse=True)))
        for remaining, ways in lowered(open_, ones)
    )
