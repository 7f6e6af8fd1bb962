"""Bootstrap intervals: percentiles of statistics of resampled scenes, or of whole clusters of them.

Scenes that share what makes them hard or easy (a feature code that a split holds out, an image that
several rows come from) are a cluster: whole clusters are drawn, each with all of its scenes, and a
mean is the sum over what was drawn divided by its number of scenes. Drawing scenes once more inside
each drawn cluster would count the variance within it twice (``docs/information.md``).

Source: Efron (1979), "Bootstrap methods: another look at the jackknife", and Efron and Tibshirani
(1993), "An introduction to the bootstrap", chapters 6 (resampling), 8 (clusters) and 13
(percentiles).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Drawn indices held at once: 16 MB, and as much again twice for the counts.
BLOCK = 2_000_000


class Interval(NamedTuple):
    """An estimate and the ends of its interval, in the unit of what was resampled."""

    value: float
    low: float
    high: float


def bootstrap(
    values: NDArray[np.floating],
    statistics: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]],
    n_samples: int = 1000,
    seed: int = 0,
    clusters: NDArray[np.integer] | None = None,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Estimate functions of means, with percentile intervals over the same resamples.

    Parameters
    ----------
    values
        Floats (N, q): q numbers of each scene.
    statistics
        Name -> function of means, float64 (B, q) -> (B,); ``lambda m: m[:, 0] / m[:, 1]`` is a
        ratio of means.
    n_samples, seed, clusters
        As in `resampled_means`.
    level
        Probability between the two ends.

    Returns
    -------
    dict
        Name -> the statistic of the scenes as they are, and its interval.
    """
    resampled = resampled_means(values, n_samples, seed, clusters)
    means = np.asarray(values, np.float64).mean(axis=0, keepdims=True)
    return {
        name: Interval(float(statistic(means)[0]), *interval(statistic(resampled), level))
        for name, statistic in statistics.items()
    }


def paired_difference(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    n_samples: int = 1000,
    seed: int = 0,
    clusters: NDArray[np.integer] | None = None,
    level: float = 0.95,
) -> Interval:
    """Mean of ``first - second`` over scenes that both were measured on, with its interval.

    Every resample holds the same scenes for both sides, so what makes a scene hard for both cancels
    and the interval is as narrow as their correlation allows.

    Parameters
    ----------
    first, second
        Floats (N,): scene i is the same in both.
    n_samples, seed, clusters
        As in `resampled_means`.
    level
        Probability between the two ends.

    Raises
    ------
    ValueError
        If the two are not vectors of the same length.
    """
    if np.ndim(first) != 1 or np.shape(first) != np.shape(second):
        raise ValueError(f"pairs are of equal length, not {np.shape(first)} and {np.shape(second)}")
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    means = resampled_means(difference[:, None], n_samples, seed, clusters)[:, 0]
    return Interval(float(difference.mean()), *interval(means, level))


def resampled_means(
    values: NDArray[np.floating],
    n_samples: int,
    seed: int,
    clusters: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Means over resampled scenes; all columns share each resample, so that differences are paired.

    Parameters
    ----------
    values
        Floats (N, q): q numbers of each scene.
    n_samples
        Number of resamples B.
    seed
        Seed of the resamples.
    clusters
        Integers (N,): scenes with the same number are drawn together. Default: each by itself.

    Returns
    -------
    float64 (B, q).
    """
    sums, sizes = cluster_sums(np.asarray(values, dtype=np.float64), clusters)
    g = len(sizes)
    table = np.column_stack([sums, sizes])
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    means = np.empty((n_samples, sums.shape[1]))
    step = max(1, BLOCK // g)
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


def cluster_numbers(rows: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number the distinct rows of integers (N, n), so that equal rows are one cluster: (N,)."""
    _, number = np.unique(rows, axis=0, return_inverse=True)
    numbers: NDArray[np.intp] = number.reshape(len(rows))
    return numbers


def cluster_sums(
    values: NDArray[np.float64], clusters: NDArray[np.integer] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums (G, q) and numbers of scenes (G,) of clusters."""
    if clusters is None:
        return values, np.ones(len(values))
    _, place = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    sums = np.column_stack([np.bincount(place, weights=column) for column in values.T])
    return sums.astype(np.float64), sizes
