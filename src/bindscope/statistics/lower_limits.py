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
