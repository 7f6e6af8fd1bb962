"""Rows of the long tables: declared quantities, with intervals over test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.metrics import COARSE, areas
from bindscope.studies.same_object.quantities import QUANTITIES

Floats = NDArray[np.float64]
Row = dict[str, Any]
NO_IMAGE = "no test image has what is measured"


def row(
    quantity: str,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    at: str = "",
    n: int | None = None,
    reason: str = "",
) -> Row:
    """Return a row of a long table; what is not a number is left out, for a reason.

    An interval holds its number: that of resamples need not.
    """
    number = None if value is None or not np.isfinite(value) else float(value)
    if number is None and not reason:
        reason = NO_IMAGE
    ends: list[float | None] = [None, None]
    if number is not None and low is not None and high is not None and np.isfinite(low + high):
        ends = [min(float(low), number), max(float(high), number)]
    return {
        "quantity": quantity, "at": at, "value": number, "low": ends[0], "high": ends[1], "n": n,
        "unit": QUANTITIES[quantity].unit, "reason": reason,
    }  # fmt: skip


def estimate(
    quantity: str, drawn: Floats, *, at: str = "", n: int | None = None, reason: str = ""
) -> Row:
    """Return the row of a number and what resamples gave (1 + B,), NaN where there is nothing."""
    finite = drawn[1:][np.isfinite(drawn[1:])]
    ends = interval(finite) if len(finite) else (None, None)
    return row(quantity, drawn[0], *ends, at=at, n=n, reason=reason)


@dataclass(frozen=True)
class Bootstrap:
    """Resamples of the test images: their number, and a seed."""

    samples: int
    seed: int

    def drawn(self, sums: Floats) -> Floats:
        """Return means (1 + B, k) of numbers of images (n, k): of all, and of resamples."""
        return np.vstack([sums.mean(0), resampled_means(sums, self.samples, self.seed)])

    def rows(
        self, sums: Floats, statistics: Mapping[tuple[str, str], Callable[[Floats], Floats]]
    ) -> list[Row]:
        """Return a row per statistic of means, with its interval over images.

        `sums` float64 (n, k): numbers of each image. `statistics` (quantity, at) -> function of
        means (B, k) to (B,), NaN where there is nothing.
        """
        if not len(sums):
            return [row(quantity, None, at=at, n=0) for quantity, at in statistics]
        drawn = self.drawn(sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            return [
                estimate(quantity, statistic(drawn), at=at, n=len(sums))
                for (quantity, at), statistic in statistics.items()
            ]

    def areas(self, counts: Mapping[tuple[str, str], NDArray[np.float32]]) -> list[Row]:
        """Return areas under ROC curves; `counts` are `counted` pairs (n, 2, COARSE) of images."""
        lines = []
        for name, of_images in counts.items():
            used = of_images[of_images.sum((1, 2)) > 0]
            flat = used.reshape(len(used), -1).astype(np.float64)
            lines += self.rows(flat, {name: area_of})
        return lines


def column(i: int) -> Callable[[Floats], Floats]:
    """Return the function of means (B, k) that takes one column."""
    return lambda means: means[:, i]


def ratio(above: int, below: int) -> Callable[[Floats], Floats]:
    """Return the function of means (B, k) that divides one column by another one."""
    return lambda means: means[:, above] / means[:, below]


def area_of(means: Floats) -> Floats:
    """Return areas (B,) under the ROC curves of mean counts (B, 2 COARSE)."""
    return areas(means.reshape(len(means), 2, COARSE))


def coarse_edges(scores: NDArray[Any]) -> Floats:
    """Return edges (COARSE - 1,) between which about as many of the scores are."""
    if not scores.size:
        return np.zeros(COARSE - 1)
    edges: Floats = np.quantile(scores, np.arange(1, COARSE) / COARSE)
    return edges


def counted(
    scores: NDArray[Any], same: NDArray[np.bool_], pairs: NDArray[np.bool_], edges: Floats
) -> NDArray[np.float32]:
    """Count pairs of different and of the same object by bins of their scores.

    `scores`, `same`, `pairs` (n, M, M): scores, labels, and which of them are pairs. Returns:
    float32 (n, 2, COARSE).
    """
    n = len(scores)
    image = np.broadcast_to(np.arange(n)[:, None, None], scores.shape)[pairs]
    place = (image * 2 + same[pairs]) * COARSE + np.searchsorted(edges, scores[pairs])
    counts = np.bincount(place, minlength=n * 2 * COARSE).reshape(n, 2, COARSE)
    return counts.astype(np.float32)
