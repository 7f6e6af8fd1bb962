"""Logits of pairs, counted in fine bins: areas under curves, calibration, in memory that is fixed.

A bin holds the float32 numbers with the same sign, exponent and first 11 bits of the mantissa, so
bins are 0.05 % wide and equal logits are in one bin. The area under the ROC curve counts a tie, and
so two different logits of one bin, as one half: it is off by at most half the share of such pairs.

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
    finite: bool = True  # whether every logit was

    def add(self, logits: npt.NDArray[np.float32], same: npt.NDArray[np.bool_]) -> None:
        """Count logits (P,) and labels (P,)."""
        good = np.isfinite(logits)
        if not good.all():
            self.finite, logits, same = False, logits[good], same[good]
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

    def auc(self) -> float | None:
        """Return the area under the ROC curve; None of one label."""
        won, couples = count_couples(self.occupied()[1].astype(np.float64))
        return float(won / couples) if couples else None

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

    def quantile_edges(self, bins: int) -> npt.NDArray[np.float32]:
        """Return edges (bins - 1,) between which about as many logits are."""
        logits, counts = self.occupied()
        if not len(logits):
            return np.zeros(bins - 1, np.float32)
        reached = counts.sum(0).cumsum() / counts.sum()
        levels = np.arange(1, bins) / bins
        return logits[np.searchsorted(reached, levels)].astype(np.float32)


def ordered_keys(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the bins (P,) of logits: the first bits of numbers, in the order of the numbers."""
    words = (np.asarray(logits, np.float32) + np.float32(0)).view(np.uint32)  # -0 is 0
    negative = words >> 31 == 1
    ordered = np.where(negative, ~words, words | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - BITS)).astype(np.int64)


def count_couples(
    counts: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Count couples of pairs of different and of the same objects, of counts (..., 2, bins).

    Returns: couples (...) in which the second is in a higher bin (a tie counts one half), and all;
    their ratio is the area under the ROC curve.
    """
    different, same = counts[..., 0, :], counts[..., 1, :]
    below = different.cumsum(-1) - different / 2
    return (below * same).sum(-1), different.sum(-1) * same.sum(-1)


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
