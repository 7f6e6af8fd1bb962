"""Approximate prior odds of codes, where the space is too large for exact counts.

Bits that are certain are exact (a cell outside F, the last cell that can show a value of F); the
odds of the others are a guess, which `bindscope.priors.counted` corrects by frequencies of the
train split. The result is a probability distribution, as one that starts from exact counts is, but
a somewhat worse fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, log

import numpy as np
import numpy.typing as npt

from bindscope.codes.space import cells_within, feature_code, group_slices, ones_before
from bindscope.core.array_types import Bits, Doubles


def approximate_odds(
    objects: Bits, sizes: Sequence[int], shares: Sequence[float]
) -> dict[str, Doubles]:
    """Log-odds of every bit given those before it, nats, infinite where a bit is certain.

    Codes are uint8 (N, K), none empty; `shares` say how often a scene has 1, 2, ... objects.
    `object` (N, K): numbers of objects as in `shares`, given the number all codes equally likely
    (exact). `feature` (N, n): even odds, but a group has a value. `object_given_feature` (N, K): a
    value of F that no object has so far is equally likely in each cell that is left for it.
    """
    features = feature_code(objects, sizes)
    return {
        "object": _object(objects, shares),
        "feature": _feature(features, sizes),
        "object_given_feature": _object_given_feature(objects, features, sizes),
    }


def _object(objects: Bits, shares: Sequence[float]) -> Doubles:
    """Log-odds of o_k given the number of ones so far, by the recursion of `finishing_table`."""
    n_cells = objects.shape[1]
    weights = [log(share) - log(comb(n_cells, m)) for m, share in enumerate(shares, start=1)]
    row = np.array([-np.inf, *weights, -np.inf])  # after c ones, with no cell left
    odds = np.empty((n_cells, len(row) - 1))
    for cell in reversed(range(n_cells)):
        with np.errstate(invalid="ignore"):
            odds[cell] = row[1:] - row[:-1]
        row = np.append(np.logaddexp(row[:-1], row[1:]), -np.inf)
    result: Doubles = odds[np.arange(n_cells), ones_before(objects)]
    return result


def _feature(features: Bits, sizes: Sequence[int]) -> Doubles:
    odds = np.zeros(features.shape)
    for columns in group_slices(sizes):
        empty = features[:, columns.start : columns.stop - 1].sum(1, dtype=np.int64) == 0
        odds[empty, columns.stop - 1] = np.inf
    return odds


def _object_given_feature(objects: Bits, features: Bits, sizes: Sequence[int]) -> Doubles:
    inside = cells_within(features, sizes)
    share = 0.5 / (_from_here(inside) + 1)
    values = np.unravel_index(np.arange(objects.shape[1]), tuple(sizes))
    for value, size in zip(values, sizes, strict=True):
        for cells in (np.flatnonzero(value == v) for v in range(size)):
            unused = ones_before(objects[:, cells]) == 0
            places = np.maximum(_from_here(inside[:, cells]), 1)
            share[:, cells] = np.maximum(share[:, cells], unused / places)
    with np.errstate(divide="ignore"):
        odds: Doubles = np.log(share) - np.log1p(-share)
    return np.where(inside, odds, -np.inf)


def _from_here(cells: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Number of true cells from each place on, itself included."""
    result: npt.NDArray[np.int64] = np.cumsum(cells[:, ::-1], axis=1, dtype=np.int64)[:, ::-1]
    return result
