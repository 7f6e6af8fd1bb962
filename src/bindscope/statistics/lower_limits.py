"""Lower confidence limits of means of which only the smallest possible value is known.

A percentile bootstrap cannot see a rare large loss that the sample does not contain: its lower end
was above the mean in up to 78 % of samples, not in 2.5 %. Gaffke's limit takes one further value,
the smallest possible one, into a Bayesian bootstrap. It needs no assumption on the shape of the
distribution. For two possible values it is the limit of Clopper and Pearson; that it holds for
every bounded distribution and every sample size is a conjecture, of which no violation is known.

Sources: N. Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the
mean of a nonnegative variable", Mathematical Methods of Statistics 14(4), 451-467; E. Learned-
Miller and P. S. Thomas (2019), "A new confidence interval for the mean of a bounded random
variable", arXiv 1905.06208 (the conjecture, and simulations).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bindscope.statistics.bootstrap import BLOCK, cluster_sums

_HALVINGS = 80
_FARTHEST, _POINTS = 20.0, 801  # of the line: its widths are sinh of up to so much

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def lower_limit(
    values: ArrayLike,
    worst: float,
    n_samples: int = 1000,
    seed: int = 0,
    clusters: NDArray[np.integer] | None = None,
    level: float = 0.975,
) -> float:
    """Return a number that a mean exceeds with a probability of at least `level`.

    Parameters
    ----------
    values
        Floats (N,), independent draws.
    worst
        The smallest value that can be drawn.
    n_samples, seed, clusters
        As in `pessimistic_means`.
    level
        Probability that the mean is above the limit.

    Examples
    --------
    >>> import numpy as np
    >>> round(lower_limit(np.ones(20), worst=0.0, n_samples=20_000), 2)  # exactly 0.025 ** (1 / 20)
    0.83
    """
    column = np.asarray(values, np.float64)[:, None]
    samples = pessimistic_means(column, [worst], n_samples, seed, clusters)
    return float(np.quantile(samples, 1 - level))


def p_above(values: ArrayLike, worst: float, threshold: float) -> float:
    """Return the one-sided p-value that a mean is above a threshold, by Gaffke's limit.

    It is the level at which the lower limit meets the threshold: the probability that the mean
    under uniform weights, one further and worst value among them, is not above it. No draws are
    needed, so that values far below 0.001 are exact.

    Parameters
    ----------
    values
        Floats (N,), independent draws.
    worst
        The smallest value that can be drawn, below the threshold.
    threshold
        What the mean is claimed to exceed.

    Raises
    ------
    ValueError
        If no smaller mean than the threshold is possible.

    Notes
    -----
    Weights are standard exponential over their sum, so the mean is at most t where the sum of
    (x_i - t) E_i is not positive. Its moment generating function is a product of 1 / (1 - a z), and
    its distribution function an integral of it along a line through the saddle point (S. O. Rice
    (1980), "Distribution of quadratic forms in normal random variables - evaluation by numerical
    integration", SIAM J. Sci. Stat. Comput. 1(4), 438-448).

    Examples
    --------
    >>> round(p_above([1.0] * 20, worst=0.0, threshold=0.75), 6)  # exactly 0.75 ** 20
    0.003171
    """
    if worst >= threshold:
        raise ValueError(f"means are at least {worst}, which is not below {threshold}")
    steps, counts = np.unique(np.append(values, worst) - threshold, return_counts=True)
    if steps[-1] <= 0:
        return 1.0
    below, above = 1 / steps[0], 0.0
    for _ in range(_HALVINGS):  # the slope of log M(z) - log(-z) changes its sign once
        z = (below + above) / 2
        slope = (counts * steps / (1 - steps * z)).sum() - 1 / z
        below, above = (z, above) if slope < 0 else (below, z)
    scale = np.sqrt((counts * (steps / (1 - steps * z)) ** 2).sum() + z**-2.0)
    grid = np.linspace(0, _FARTHEST, _POINTS)
    line = z + 1j * np.sinh(grid) / scale
    logs = -(counts * np.log(1 - steps * line[:, None])).sum(axis=1) - np.log(-line)
    heights = np.exp(logs).real * np.cosh(grid) / scale
    area = (heights.sum() - heights[0] / 2) * grid[1]
    return float(np.clip(area / np.pi, 0.0, 1.0))


def pessimistic_means(
    values: NDArray[np.floating],
    worst: ArrayLike,
    n_samples: int,
    seed: int,
    clusters: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Return weighted means of scenes and one further, worst one; low percentiles are lower limits.

    Weights are uniform on the simplex, and the same for all columns, so that a sum of columns has
    the sum of their worst values.

    Parameters
    ----------
    values
        Floats (N, q): q numbers of each scene.
    worst
        Floats (q,): the smallest value that a scene can have in each column.
    n_samples
        Number of draws B.
    seed
        Seed of the draws.
    clusters
        Integers (N,): scenes with the same number have one weight, and the further scene is a
        cluster of the largest size, which must be the largest that can be drawn. Default: each
        scene by itself.

    Returns
    -------
    float64 (B, q).
    """
    sums, sizes = cluster_sums(np.asarray(values, np.float64), clusters)
    largest = sizes.max()
    table = np.column_stack([sums, sizes])
    table = np.vstack([table, largest * np.append(np.asarray(worst, np.float64), 1.0)])
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    means = np.empty((n_samples, sums.shape[1]))
    step = max(1, BLOCK // len(table))
    for start in range(0, n_samples, step):
        rows = min(step, n_samples - start)
        totals = rng.standard_exponential((rows, len(table))) @ table
        means[start : start + rows] = totals[:, :-1] / totals[:, -1:]
    return means
