"""Whether scores are those of an identity: if i goes with j and j with k, i goes with k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.same_object.geometry.estimates import Bootstrap, Floats, Row
from bindscope.studies.same_object.geometry.scored import Bools, Labels

# Sums of an image: triples with exactly two and with three positive pairs; triples of one object,
# with one pair of an object, of three objects; pairs by label, and those of them that are positive.
TWO, THREE, ALL_SAME, ONE_SAME, NONE_SAME, SAME, SAME_POSITIVE, OTHER, OTHER_POSITIVE = range(9)


def triples(edges: Bools) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count triples of a graph with exactly two edges, and with three.

    Every triple with three edges has three paths of length two, one with two edges has one.

    Parameters
    ----------
    edges
        bool (n, M, M), symmetric, without loops.
    """
    a = edges.astype(np.float64)
    degrees = a.sum(2)
    paths = (degrees * (degrees - 1) / 2).sum(1)
    three = np.einsum("nij,nji->n", a @ a, a) / 6
    return np.rint(paths - 3 * three).astype(np.int64), np.rint(three).astype(np.int64)


def sums_of_images(scores: NDArray[np.float32], labels: Labels) -> Floats:
    """Return what the rates are computed of, float64 (n, 9)."""
    pairs = labels.pairs | labels.pairs.transpose(0, 2, 1)
    positive, same = (scores > 0) & pairs, labels.same & pairs
    two, three = triples(positive)
    m = labels.valid.sum(1).astype(np.int64)
    _, all_same = triples(same)
    n_same = same.sum((1, 2)) // 2
    # A pair of an object makes a triple with every other patch; those of one object have three.
    one_same = n_same * np.maximum(m - 2, 0) - 3 * all_same
    none_same = m * (m - 1) * (m - 2) // 6 - all_same - one_same
    n_pairs = m * (m - 1) // 2
    hits = (positive & same).sum((1, 2)) // 2
    alarms = positive.sum((1, 2)) // 2 - hits
    columns = [two, three, all_same, one_same, none_same, n_same, hits, n_pairs - n_same, alarms]
    return np.stack(columns, axis=1).astype(np.float64)


def violations(sums: Floats) -> Floats:
    """Return the share of triples with two or three positive pairs that have two, (B,)."""
    return sums[:, TWO] / (sums[:, TWO] + sums[:, THREE])


def expected(sums: Floats) -> Floats:
    """Return that share if each pair were positive for itself, by its label's rate."""
    p = np.nan_to_num(sums[:, SAME_POSITIVE] / sums[:, SAME])
    q = np.nan_to_num(sums[:, OTHER_POSITIVE] / sums[:, OTHER])
    two, three = np.zeros(len(sums)), np.zeros(len(sums))
    for column, rates in ((ALL_SAME, (p, p, p)), (ONE_SAME, (p, q, q)), (NONE_SAME, (q, q, q))):
        a, b, c = rates
        n = sums[:, column]
        two = two + n * (a * b * (1 - c) + a * (1 - b) * c + (1 - a) * b * c)
        three = three + n * a * b * c
    return np.asarray(two / (two + three))


def transitivity(scores: NDArray[np.float32], labels: Labels, by: Bootstrap) -> list[Row]:
    """Return the rate of violations, and the one that independent errors would have."""
    sums = sums_of_images(scores, labels)
    return by.rows(
        sums[sums[:, SAME] + sums[:, OTHER] > 0],
        {("transitivity_violations", ""): violations, ("transitivity_expected", ""): expected},
    )
