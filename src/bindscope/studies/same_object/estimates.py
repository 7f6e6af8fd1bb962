"""Rows of the long tables: declared quantities, with intervals over test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import interval, resampled_means
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


def ratio(above: int, below: int) -> Callable[[Floats], Floats]:
    """Return the function of means (B, k) that divides one column by another one."""
    return lambda means: means[:, above] / means[:, below]
