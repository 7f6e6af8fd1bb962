"""Intervals of a mean, and of the difference of two, of a few independent values (Student, Welch).

For values of which there are too few to resample: networks that were trained with different seeds.

Source: Student (1908), "The probable error of a mean", Biometrika 6, 1-25; B. L. Welch (1947), "The
generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34, 28-35.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from bindscope.statistics.bootstrap import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def half_width(deviation: ArrayLike, n: ArrayLike, level: float = 0.95) -> NDArray[np.float64]:
    """Half the width of the t interval of a mean.

    Parameters
    ----------
    deviation
        Standard deviations of the values (with n - 1), of any shape.
    n
        Numbers of values, of a shape that broadcasts.
    level
        Probability between the two ends.

    Returns
    -------
    float64 of the broadcast shape; NaN where there are fewer than two values.
    """
    s, count = np.broadcast_arrays(np.asarray(deviation, np.float64), np.asarray(n, np.float64))
    several = np.maximum(count, 2.0)
    width = stdtrit(several - 1, (1 + level) / 2) * s / np.sqrt(several)
    return np.where(count >= 2, width, np.nan)


def mean_interval(
    values: ArrayLike,
    level: float = 0.95,
    possible: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Mean of values (n,) and its t interval; the ends are NaN for fewer than two values.

    Parameters
    ----------
    values
        Independent values.
    level
        Probability between the two ends.
    possible
        The least and the greatest mean that there can be (0 and 1 of a share): the interval ends
        there, and holds the mean no less often for it.

    Raises
    ------
    ValueError
        If there is no value, or they are no vector.
    """
    x = _vector(values)
    half = float(half_width(x.std(ddof=1) if len(x) > 1 else np.nan, len(x), level))
    mean = float(x.mean())
    low, high = np.clip([mean - half, mean + half], *possible).tolist()
    return Interval(mean, low, high)


def welch_interval(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Interval:
    """Difference of the means of two unpaired samples, ``first - second``, with Welch's interval.

    Parameters
    ----------
    first, second
        Values (n,) and (m,), independent of each other; their variances may differ.
    level
        Probability between the two ends.

    Returns
    -------
    Interval
        Its ends are NaN where a sample has fewer than two values; where no value differs from the
        others of its sample, the interval has no width.

    Raises
    ------
    ValueError
        If a sample has no value, or is no vector.
    """
    x, y = _vector(first), _vector(second)
    difference = float(x.mean() - y.mean())
    if min(len(x), len(y)) < 2:
        return Interval(difference, np.nan, np.nan)
    squared_error = x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y)
    if squared_error == 0:
        return Interval(difference, difference, difference)
    half = float(stdtrit(welch_freedom(x, y), (1 + level) / 2) * np.sqrt(squared_error))
    return Interval(difference, difference - half, difference + half)


def welch_freedom(first: ArrayLike, second: ArrayLike) -> float:
    """Degrees of freedom of Welch's interval of two samples that are not both constant."""
    x, y = _vector(first), _vector(second)
    a, b = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    return float((a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1)))


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not len(x):
        raise ValueError("a sample is a vector of at least one value")
    return x
