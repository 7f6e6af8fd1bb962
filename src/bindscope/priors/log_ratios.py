"""Logarithms of ratios of exact counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bindscope.codes.prefix import Counts

LogOdds = npt.NDArray[np.float64]


def log_ratio(numerator: Counts, denominator: Counts) -> LogOdds:
    """Divide exact counts and take the logarithm; x/0 is +inf, 0/x is -inf, 0/0 (never) is 0."""
    if numerator.dtype == object:
        ratio = np.array(list(map(_divide, numerator.flat, denominator.flat)), np.float64)
        ratio = ratio.reshape(numerator.shape)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = numerator / denominator
        ratio[np.isnan(ratio)] = 1.0
    with np.errstate(divide="ignore"):
        return np.log(ratio)


def _divide(numerator: int, denominator: int) -> float:
    """Divide two counts, correctly rounded."""
    if denominator:
        return numerator / denominator
    return np.inf if numerator else 1.0
