"""Ranks: the object code that has a number, and numbers that are exactly uniform.

`unrank` and `unrank_free` write out the code with a number, so that codes can be drawn and listed
without any rejection, however rare they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bindscope.codes.prefix import (
    Completions,
    Counts,
    Prefix,
    finishing_table,
    integer_dtype,
)
from bindscope.codes.space import CodeSpace, feature_counts, n_outcomes, outcome_weights

_PHILOX_WORDS = 4


def unrank_free(space: CodeSpace, ranks: Counts) -> npt.NDArray[np.uint8]:
    """Write out the object codes with these numbers, among all with an allowed number of objects.

    Ranks are int64 or Python integers (N,); uint8 (N, K) in their lexicographic order.
    """
    dtype = integer_dtype(n_outcomes(space))
    table = np.array(finishing_table(space.n_cells - 1, outcome_weights(space)), dtype)
    ranks = ranks.astype(dtype)
    ones = np.zeros(len(ranks), np.int64)
    objects = np.zeros((len(ranks), space.n_cells), np.uint8)
    for cell in range(space.n_cells):
        empty = table[space.n_cells - 1 - cell, ones]  # codes with nothing in this cell
        bits = (ranks >= empty).astype(bool)
        ranks = ranks - np.where(bits, empty, 0)
        ones += bits
        objects[:, cell] = bits
    return objects


def unrank(
    space: CodeSpace, features: npt.NDArray[np.uint8], ranks: Counts
) -> npt.NDArray[np.uint8]:
    """Write out the object codes with these numbers, each among the covers of its feature code.

    Features are uint8 (N, n), ranks int64 or Python integers (N,); uint8 (N, K), in lexicographic
    order of the ranks for each feature code.
    """
    completions = Completions(space)
    prefix = Prefix(space.sizes, features, feature_counts(features, space.sizes))
    ranks = ranks.astype(completions.dtype)
    objects = np.zeros((len(ranks), space.n_cells), np.uint8)
    for cell in range(space.n_cells):
        empty = completions.count(prefix.states(cell))  # codes with nothing in this cell
        bits = (ranks >= empty).astype(bool)
        ranks = ranks - np.where(bits, empty, 0)
        prefix.reveal(cell, bits)
        objects[:, cell] = bits
    return objects


def uniform_integers(seed: Sequence[int], total: int, start: int, stop: int) -> Counts:
    """Draw integers that are exactly uniform over 0 .. `total` - 1, a function of (seed, total, i).

    int64 (stop - start,) if `total` < 2^63, Python integers otherwise. Every index owns a block of
    Philox counters in each of the streams 0, 1, 2, ...: the first one whose words are below the
    largest multiple of `total` decides.
    """
    words = total.bit_length() // 64 + 1
    blocks = -(-words // _PHILOX_WORDS)
    limit = 2 ** (64 * words) // total * total
    numbers = np.zeros(stop - start, integer_dtype(total))
    pending = np.arange(stop - start)
    attempt = 0
    while pending.size:
        generator = np.random.Philox(np.random.SeedSequence(list(seed))).jumped(attempt)
        generator.advance(start * blocks)
        raw = generator.random_raw((stop - start) * blocks * _PHILOX_WORDS)
        values = _join(raw.reshape(stop - start, -1)[pending, :words])
        accepted = (values <= limit - 1).astype(bool)
        numbers[pending[accepted]] = values[accepted] % total
        pending = pending[~accepted]
        attempt += 1
    return numbers


def _join(words: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """Join 64-bit words, the lowest first, into one integer per row."""
    if words.shape[1] == 1:
        return words[:, 0]
    value = words[:, -1].astype(object)
    for column in range(words.shape[1] - 2, -1, -1):
        value = value * 2**64 + words[:, column].astype(object)
    return value
