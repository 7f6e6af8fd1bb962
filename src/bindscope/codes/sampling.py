"""Sampling of object codes: row i depends on the seed, the split and i alone.

The object codes of a split are numbered, every scene draws a number that is exactly uniform, and
`unrank` writes out the code with that number. So sampling is uniform by construction, needs no
rejection of codes however rare they are, and any shard can be drawn without the ones before it.
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
from bindscope.codes.space import (
    CodeSpace,
    build_space,
    feature_counts,
    n_outcomes,
    outcome_weights,
)
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import SceneDistribution
from bindscope.core.splits import SPLITS

# Keeps the codes' random stream apart from those of other rooms with the same seed.
_STREAM = int.from_bytes(b"codes", "big")
_PHILOX_WORDS = 4


def sample_codes(
    dataset: SceneDistribution, split: str, start: int, stop: int
) -> npt.NDArray[np.uint8]:
    """Draw the object codes of scenes `start` to `stop` - 1 of a split.

    Parameters
    ----------
    dataset
        The dataset.
    split
        `train`, `val` or `test`; each has a random stream of its own.
    start, stop
        Range of scenes.

    Returns
    -------
    ndarray
        uint8 (stop - start, K). Uniform space: uniform over the object codes whose feature code is
        in the split. Balanced space: a uniform feature code of the split, then a uniform object
        code among its covers (which is the same thing, as each has equally many).

    Raises
    ------
    ConfigError
        If the split has no feature code.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    space = build_space(dataset.space)
    seed = (dataset.seed, _STREAM, SPLITS.index(split))
    if space.chosen is None and dataset.split.rule == "random":
        return unrank_free(space, uniform_integers(seed, n_outcomes(space), start, stop))
    features = feature_codes(dataset, split)
    table = space.covers()
    ways = [table[tuple(row)] for row in feature_counts(features, space.sizes).tolist()]
    ends = np.cumsum(np.array(ways, dtype=object))
    numbers = uniform_integers(seed, int(ends[-1]), start, stop)
    ends = ends.astype(numbers.dtype)
    which = np.searchsorted(ends, numbers, side="right")
    ranks = numbers - np.where(which > 0, ends[which - 1], 0)
    return unrank(space, features[which], ranks)


def unrank_free(space: CodeSpace, ranks: Counts) -> npt.NDArray[np.uint8]:
    """Write out the object codes with these numbers, among all with an allowed number of objects.

    Parameters
    ----------
    space
        A space in which every such code is allowed.
    ranks
        int64 or Python integers (N,), from 0 to the number of codes - 1.

    Returns
    -------
    ndarray
        uint8 (N, K), in lexicographic order of the ranks.
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

    Parameters
    ----------
    space
        The space.
    features
        uint8 (N, n): a feature code per row.
    ranks
        int64 or Python integers (N,), from 0 to the number of covers - 1.

    Returns
    -------
    ndarray
        uint8 (N, K), in lexicographic order of the ranks for each feature code.
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
    """Draw integers that are exactly uniform over 0 .. `total` - 1.

    Parameters
    ----------
    seed
        Integers that name the stream.
    total
        Number of outcomes, of any size.
    start, stop
        Range of indices; number i is a function of (seed, total, i).

    Returns
    -------
    ndarray
        (stop - start,), int64 if `total` < 2^63, Python integers otherwise.

    Notes
    -----
    Every index owns a block of Philox counters in each of the streams 0, 1, 2, ...: the first one
    whose words are below the largest multiple of `total` decides.
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
