"""Intervals of proportions."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def wilson_interval(
    successes: ArrayLike, trials: ArrayLike, level: float = 0.95
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Wilson's score interval of a proportion, without correction for continuity.

    It holds every p that a score test of ``successes`` out of ``trials`` does not reject, never
    leaves [0, 1], and has a width also where no trial, or each, succeeded.

    Parameters
    ----------
    successes, trials
        Numbers of independent trials, of any shapes that broadcast; 0 <= successes <= trials and at
        least one trial.
    level
        Probability that the interval covers the proportion.

    Returns
    -------
    low, high
        float64, of the broadcast shape.

    Raises
    ------
    ValueError
        If there is no trial, or the successes are not among the trials.

    Notes
    -----
    Source: E. B. Wilson (1927), "Probable inference, the law of succession, and statistical
    inference", J. Am. Stat. Assoc. 22, 209-212.
    """
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if not ((n >= 1) & (k >= 0) & (k <= n)).all():
        raise ValueError("successes must lie between 0 and trials, and there must be a trial")
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (k + z**2 / 2) / (n + z**2)
    half = z * np.sqrt(k * (n - k) / n + z**2 / 4) / (n + z**2)
    # Exactly 0 and 1 where every trial failed or succeeded: rounding would miss them.
    low = np.where(k == 0, 0.0, centre - half)
    high = np.where(k == n, 1.0, centre + half)
    return low, high
