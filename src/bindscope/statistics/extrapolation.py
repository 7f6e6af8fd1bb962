"""Where a curve that grows ever more slowly would end.

A quantity that is estimated with n samples and falls short by what n samples cannot teach follows,
over a few doublings of n, y(n) = a - b n^-c with b >= 0 and c > 0. The asymptote a is what more
samples would reach. Source of the form: Cortes, Jackel, Solla, Vapnik and Denker (1993),
"Learning curves: asymptotic values and rate of convergence".

Three numbers are fitted to a handful of points, so the curve must earn its asymptote: where points
grow like a logarithm, or faster, the best exponent c is the smallest that was tried, and no end is
in sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Curves that close less than a sixth of what is left with every doubling show no end.
EXPONENTS = np.geomspace(0.25, 4.0, 241)
FEWEST_POINTS = 3


class PowerLaws(NamedTuple):
    """Fits of y(n) = a - b n^-c, one per curve: float64 (B,).

    Attributes
    ----------
    asymptote, factor, exponent
        a, b and c; n is in units of the largest number of samples.
    residual
        Root of the mean squared distance of the points from the curve.
    ends
        Whether an end is in sight: c is not the smallest that was tried, or what is left is
        negligible even so. Bool (B,).
    """

    asymptote: NDArray[np.float64]
    factor: NDArray[np.float64]
    exponent: NDArray[np.float64]
    residual: NDArray[np.float64]
    ends: NDArray[np.bool_]


def fit_power_laws(
    n_samples: ArrayLike,
    curves: NDArray[np.floating],
    most: float = np.inf,
    negligible: float = 0.0,
) -> PowerLaws:
    """Fit y(n) = a - b n^-c, a <= most and b >= 0, by least squares to each of some curves.

    Parameters
    ----------
    n_samples
        Numbers of samples (S,), three or more different ones.
    curves
        Values at these, floats (B, S).
    most
        What the quantity cannot exceed.
    negligible
        A distance between the last point and the end that is none.

    Notes
    -----
    For each exponent of a grid a and b are a straight line's, or, where that ends above `most`,
    b is that of the line which ends there; the exponent with the smallest sum of squares is taken.
    A curve that falls, or is flat, has b = 0 and its mean as the asymptote.
    """
    n = np.asarray(n_samples, np.float64)
    if len(np.unique(n)) < FEWEST_POINTS:
        raise ValueError(f"an asymptote takes {FEWEST_POINTS} points, not {len(np.unique(n))}")
    y = np.asarray(curves, np.float64)
    x = (n / n.max()) ** -EXPONENTS[:, None]  # (exponents, S), falling in n
    centred, x_centred = (v - v.mean(axis=1, keepdims=True) for v in (y, x))
    factor = np.maximum(-(centred @ x_centred.T) / (x_centred**2).sum(axis=1), 0.0)
    asymptote = y.mean(axis=1, keepdims=True) + factor * x.mean(axis=1)  # (B, exponents)
    over = asymptote > most
    if over.any():
        ending = np.maximum((most - y) @ x.T / (x**2).sum(axis=1), 0.0)
        asymptote, factor = np.where(over, most, asymptote), np.where(over, ending, factor)
    distance = y[:, None] - asymptote[..., None] + factor[..., None] * x
    squares = (distance**2).mean(axis=2)
    best = squares.argmin(axis=1)
    asymptote, factor, squares = (v[np.arange(len(y)), best] for v in (asymptote, factor, squares))
    ends = (best > 0) | (factor <= negligible)
    return PowerLaws(asymptote, factor, EXPONENTS[best], np.sqrt(squares), ends)
