"""Bootstrap over test scenes, or over feature codes where those are what a split holds out.

On a split with disjoint feature codes, scenes of one F share its difficulty, so whole feature
codes are drawn, each with all of its scenes. (Drawing scenes once more inside each drawn feature
code counts the variance within it twice: intervals sqrt(2) too wide where feature codes do not
differ. See ``docs/information.md``.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Drawn indices held at once: 16 MB, and as much again twice for the counts.
_BLOCK = 2_000_000


def resampled_means(
    values: NDArray[np.floating],
    n_samples: int,
    seed: int,
    clusters: NDArray[np.integer] | None = None,
    block: int = _BLOCK,
) -> NDArray[np.float64]:
    """Means over resampled scenes; all columns share each resample, so that differences are paired.

    Parameters
    ----------
    values
        Losses in bits, floats (N, q).
    n_samples
        Number of resamples B.
    seed
        Seed of the resamples.
    clusters
        Integers (N,): scenes with the same number are drawn together. Default: each by itself.
    block
        Number of drawn indices held in memory; changes nothing else.

    Returns
    -------
    float64 (B, q).
    """
    sums, sizes = _by_cluster(np.asarray(values, dtype=np.float64), clusters)
    g = len(sizes)
    table = np.column_stack([sums, sizes])
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    means = np.empty((n_samples, sums.shape[1]))
    step = max(1, block // g)
    for start in range(0, n_samples, step):
        rows = min(step, n_samples - start)
        drawn = rng.integers(0, g, size=(rows, g)) + g * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * g).reshape(rows, g)
        totals = counts.astype(np.float64) @ table
        means[start : start + rows] = totals[:, :-1] / totals[:, -1:]
    return means


def interval(samples: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of resampled values.

    Parameters
    ----------
    samples
        Floats (B,).
    level
        Probability between the two ends.
    """
    low, high = np.quantile(np.asarray(samples), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def feature_clusters(features: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number the distinct feature codes, (N, n) bits: integers (N,)."""
    _, number = np.unique(features, axis=0, return_inverse=True)
    numbers: NDArray[np.intp] = number.reshape(len(features))
    return numbers


def _by_cluster(
    values: NDArray[np.float64], clusters: NDArray[np.integer] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums (G, q) and numbers of scenes (G,) of clusters."""
    if clusters is None:
        return values, np.ones(len(values))
    _, place = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    sums = np.column_stack([np.bincount(place, weights=column) for column in values.T])
    return sums.astype(np.float64), sizes
