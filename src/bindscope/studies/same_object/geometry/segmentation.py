"""Objects from scores alone: patches are put together without labels, and compared with them.

Sources: Hubert and Arabie (1985), "Comparing partitions" (the adjusted Rand index); Pont-Tuset et
al. (2017), "Multiscale combinatorial grouping" (best overlap).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform
from scipy.special import expit

from bindscope.studies.same_object.geometry.estimates import Bootstrap, Floats, Row, column
from bindscope.studies.same_object.geometry.scored import Labels

Ints = NDArray[np.integer]
METHODS = ("components", "linkage", "linkage, true number")
CUT = 0.5  # probability of the same object below which clusters stay apart


def clusters(scores: NDArray[np.floating], n_objects: int) -> list[Ints]:
    """Put patches together by each of `METHODS`.

    Parameters
    ----------
    scores
        Logits (m, m), symmetric; m >= 2.
    n_objects
        How many there are, for the last method.

    Returns
    -------
    A cluster number (m,) of each patch, by method.
    """
    positive = scores > 0
    _, connected = connected_components(positive | positive.T, directed=False)
    distances = 1 - expit(scores.astype(np.float64))
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), "average")
    return [
        connected,
        fcluster(tree, CUT, "distance"),
        fcluster(tree, n_objects, "maxclust"),
    ]


def adjusted_rand(first: Ints, second: Ints) -> float:
    """Return the adjusted Rand index of two partitions (m,); 1 where both are trivial."""
    a, b = (np.unique(labels, return_inverse=True)[1] for labels in (first, second))
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def couples(counts: Floats) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, one, other = couples(table), couples(table.sum(1)), couples(table.sum(0))
    m = len(a)
    chance = one * other / (m * (m - 1) / 2)
    most = (one + other) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def best_overlaps(objects: Ints, found: Ints, chosen: NDArray[np.bool_]) -> Floats:
    """Return of each object with chosen patches its largest intersection over union, (k,)."""
    best = []
    for number in np.unique(objects[chosen]):
        own = objects == number
        inside = np.array([own & (found == cluster) for cluster in np.unique(found)]).sum(1)
        sizes = np.array([(found == cluster).sum() for cluster in np.unique(found)])
        best.append(float((inside / (own.sum() + sizes - inside)).max()))
    return np.array(best)


def segmentation(
    scores: NDArray[np.float32], labels: Labels, by: Bootstrap, suffix: str = ""
) -> list[Row]:
    """Return agreement of clusters with objects, means over images with two things or more."""
    found = []
    for g, instances, valid, things in zip(
        scores, labels.instances, labels.valid, labels.things, strict=True
    ):
        if len(np.unique(instances[things])) < 2:
            continue
        own, chosen = instances[valid], things[valid]
        numbers = []
        for partition in clusters(g[np.ix_(valid, valid)], len(np.unique(own))):
            ari = adjusted_rand(own[chosen], partition[chosen])
            numbers += [ari, float(best_overlaps(own, partition, chosen).mean())]
        found.append(numbers)
    sums = np.array(found, np.float64).reshape(-1, 2 * len(METHODS))
    statistics = {
        (f"{name}{suffix}", method): column(2 * i + j)
        for i, method in enumerate(METHODS)
        for j, name in enumerate(("ari", "mbo"))
    }
    return by.rows(sums, statistics)
