"""Correction for testing several hypotheses at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values by Holm's step-down procedure.

    Rejecting where the adjusted value is at most alpha keeps the probability of any false rejection
    at alpha, however the tests depend on each other.

    Parameters
    ----------
    p_values
        Floats (m,) in [0, 1], all tests of one family.

    Returns
    -------
    float64 (m,), in the given order: the i-th smallest is the largest, up to it, of
    (m - j + 1) p_(j), and at most 1.

    Raises
    ------
    ValueError
        If a number is not in [0, 1], or they are no vector.

    Notes
    -----
    Source: S. Holm (1979), "A simple sequentially rejective multiple test procedure", Scand. J.
    Stat. 6, 65-70.
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p-values are a vector of numbers between 0 and 1")
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted
