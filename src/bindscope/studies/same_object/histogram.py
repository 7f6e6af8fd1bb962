"""Logits of pairs, counted in fine bins, and their calibration, in memory that is fixed.

A bin holds the float32 numbers with the same sign, exponent and first 11 bits of the mantissa, so
bins are 0.05 % wide and equal logits are in one bin.

Source: Platt (1999), "Probabilistic outputs for support vector machines".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

BITS = 20
BINS = 2**BITS
NEWTON, ENOUGH = 100, 1e-10  # steps, and the change of weights with which they end


class Calibration(NamedTuple):
    """Platt's map: the probability of the same object is sigmoid(scale g + offset)."""

    scale: float
    offset: float


UNCHANGED = Calibration(1.0, 0.0)


@dataclass
class Histogram:
    """Counts of pairs by logit."""

    # int64 (2, bins): pairs of different objects, pairs of the same.
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, BINS), np.int64))
    # Sum of the logits in each bin, float64 (bins,).
    sums: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(BINS))

    def add(self, logits: npt.NDArray[np.float32], same: npt.NDArray[np.bool_]) -> None:
        """Count logits (P,) that are finite, and labels (P,)."""
        finite = np.isfinite(logits)
        logits, same = logits[finite], same[finite]
        keys = ordered_keys(logits)
        bins, keys = np.unique(keys, return_inverse=True)
        for label in (0, 1):
            self.counts[label, bins] += np.bincount(keys[same == label], minlength=len(bins))
        self.sums[bins] += np.bincount(keys, weights=logits, minlength=len(bins))

    def occupied(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the mean logit (k,) of each bin that holds any, and its counts (2, k)."""
        where = np.flatnonzero(self.counts[0] + self.counts[1])
        counts = self.counts[:, where]
        return self.sums[where] / counts.sum(0), counts

    def calibrated(self) -> Calibration:
        """Fit Platt's map by Newton's method, with his targets, which no split is too easy for.

        Logits surer than the targets count as these. Else the few pairs that a form is unboundedly
        sure of (logits of 1,500 where a class has one object) would pull all others towards 0.
        """
        logits, (different, same) = self.occupied()
        if not len(logits):
            return UNCHANGED
        n, ones = int(different.sum() + same.sum()), int(same.sum())
        logits = logits.clip(-np.log(n - ones + 1), np.log(ones + 1))
        high, low = (ones + 1) / (ones + 2), 1 / (n - ones + 2)
        weights = (different + same).astype(np.float64)
        hits = same * high + different * low
        centre = float(weights @ logits / n)
        spread = float(np.sqrt(weights @ (logits - centre) ** 2 / n)) or 1.0
        x = np.stack([(logits - centre) / spread, np.ones(len(logits))])
        theta = np.array([0.0, np.log((ones + 0.5) / (n - ones + 0.5))])
        for _ in range(NEWTON):
            theta, step = _newton(theta, x, weights, hits)
            if np.abs(step).max() < ENOUGH:
                break
        scale = float(theta[0]) / spread
        return Calibration(scale, float(theta[1]) - scale * centre)


def ordered_keys(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the bins (P,) of logits: the first bits of numbers, in the order of the numbers."""
    words = (np.asarray(logits, np.float32) + np.float32(0)).view(np.uint32)  # -0 is 0
    negative = words >> 31 == 1
    ordered = np.where(negative, ~words, words | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - BITS)).astype(np.int64)


def _newton(
    theta: npt.NDArray[np.float64],
    x: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    hits: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Take a Newton step of a logistic regression on rows x (p, k), halved until the loss falls."""

    def loss(at: npt.NDArray[np.float64]) -> float:
        z = at @ x
        return float(weights @ np.logaddexp(0, z) - hits @ z)

    p = expit(theta @ x)
    slope = x @ (weights * p - hits)
    hessian = (x * (weights * p * (1 - p))) @ x.T + 1e-12 * weights.sum() * np.eye(len(x))
    step, before = np.linalg.solve(hessian, slope), loss(theta)
    while loss(theta - step) > before and np.abs(step).max() >= ENOUGH:
        step = step / 2
    return theta - step, step
