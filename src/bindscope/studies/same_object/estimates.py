"""Intervals over test images: rows of the long tables, and gains of one probe over another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.array_types import Doubles
from bindscope.core.errors import StoreError
from bindscope.core.interfaces import ProductFiles
from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.quantities import QUANTITIES, weights_name
from bindscope.studies.same_object.scores import (
    IMAGE_MAJORITY_LEAD,
    LAST_LAYER_LEAD,
    POSITION_LEAD,
    QUADRATIC_LEAD,
    QUADRATIC_POSITION_LEAD,
    RESAMPLES,
)
from bindscope.tables.quantities import Quantity
from bindscope.tables.rows import Row, finite_or_none, read_rows, rerun

NO_IMAGE = "no test image has what is measured"
# Two numbers of each image, (n,) each; what is measured is the ratio of their means.
ImageSums = tuple[Doubles, Doubles]
ScoreColumns = dict[tuple[str, str], ImageSums]  # by (quantity, at)


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
    number = finite_or_none(value)
    if number is None and not reason:
        reason = NO_IMAGE
    ends: list[float | None] = [None, None]
    if number is not None and low is not None and high is not None and np.isfinite(low + high):
        ends = [min(float(low), number), max(float(high), number)]
    return {
        "quantity": quantity,
        "at": at,
        "value": number,
        "low": ends[0],
        "high": ends[1],
        "n": n,
        "unit": QUANTITIES[quantity].unit,
        "reason": reason,
    }


def estimate(
    quantity: str, drawn: Doubles, *, at: str = "", n: int | None = None, reason: str = ""
) -> Row:
    """Return the row of a number and what resamples gave (1 + B,), NaN where there is nothing."""
    finite = drawn[1:][np.isfinite(drawn[1:])]
    ends = interval(finite) if len(finite) else (None, None)
    return row(quantity, drawn[0], *ends, at=at, n=n, reason=reason)


@dataclass(frozen=True)
class Bootstrap:
    """Resamples of the test images: their number, and a seed."""

    samples: int = RESAMPLES
    seed: int = 0

    def drawn(self, sums: Doubles) -> Doubles:
        """Return means (1 + B, k) of numbers of images (n, k): of all, and of resamples."""
        return np.vstack([sums.mean(0), resampled_means(sums, self.samples, self.seed)])

    def ratios(self, columns: Mapping[Any, ImageSums]) -> dict[Any, Doubles]:
        """Return ratios of means (1 + B,): of all images, and of resamples that all share."""
        drawn = self.drawn(np.column_stack([part for both in columns.values() for part in both]))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = (drawn[:, 0::2] / drawn[:, 1::2]).T
        return dict(zip(columns, ratios, strict=True))

    def rows(self, columns: ScoreColumns) -> list[Row]:
        """Return a row per ratio, with its interval over images."""
        n = len(next(iter(columns.values()))[0])
        if not n:
            return [row(quantity, None, at=at, n=0) for quantity, at in columns]
        return [
            estimate(quantity, drawn, at=at, n=n)
            for (quantity, at), drawn in self.ratios(columns).items()
        ]


RIGHT, N, MAJORITY = range(3)  # columns of what is counted of each image


def rows_with_leads(fits: Sequence[ProductFiles], depths: Mapping[str, int | None]) -> list[Row]:
    """Read the rows of fits and what is right of each test image; add the leads (`tables`).

    Each has a 95 % interval over test images that are drawn for both probes at once; none where
    there is no other probe.
    """
    measured = [(row, _of_images(fit, row)) for fit in fits for row in read_rows(fit)]
    for row, _ in measured:
        row["n_layers"] = depths.get(row["model"])
    for _, group in groupby(sorted(measured, key=_pairs_key), key=_pairs_key):
        add_leads(list(group))
    return [row for row, _ in measured]


def _pairs_key(measured: tuple[Row, Any]) -> tuple[str, str]:
    return measured[0]["dataset"], measured[0]["grid"]


def _of_images(fit: ProductFiles, row: Row) -> NDArray[np.float64]:
    arrays = load_file(fit.files["images"])
    return arrays[weights_name(row["layer"], row["seed"], row["rank"])].astype(np.float64)


def add_leads(
    measured: Sequence[tuple[Row, NDArray[np.float64]]], n_samples: int = RESAMPLES, seed: int = 0
) -> None:
    """Add the leads of all rows about the same pairs, from the same resamples.

    `measured`: rows, with `n_layers`, and what was counted of each test image (`Tally.of_images`).
    """
    pairs, majority = measured[0][1][:, N], measured[0][1][:, MAJORITY]
    for row, counts in measured:
        if not np.array_equal(counts[:, [N, MAJORITY]], measured[0][1][:, [N, MAJORITY]]):
            where = " ".join(str(row[name]) for name in ("dataset", "model", "layer", "probe"))
            raise StoreError(where, "was measured on other pairs than its rivals", rerun(where))
    right = np.column_stack([*(counts[:, RIGHT] for _, counts in measured), majority])
    drawn = resampled_means(np.column_stack([right, pairs]), n_samples, seed)
    shares = np.vstack([right.sum(0) / pairs.sum(), drawn[:, :-1] / drawn[:, -1:]])
    rows = [row for row, _ in measured]
    first, last = _rivals(rows)
    for i, row in enumerate(rows):
        compared = [
            (IMAGE_MAJORITY_LEAD, i, len(rows)),
            (LAST_LAYER_LEAD, i, last.get(_probe_key(row), i)),
            (POSITION_LEAD, i, first.get(("position",), i)),
        ]
        for family, lead in LEADS_OF.items():
            compared.append((lead, first.get((family, row["model"], row["layer"]), i), i))
        for lead, ahead, behind in compared:
            gains = shares[:, ahead] - shares[:, behind]
            row |= dict.fromkeys(lead.interval) if ahead == behind else _interval_of(lead, gains)


def _interval_of(lead: Quantity, gains: Doubles) -> Row:
    """Return the columns of a gain (1 + B,): the number, and what resamples gave."""
    value, (low, high) = float(gains[0]), interval(gains[1:])
    return {lead.value: value, lead.low: min(low, value), lead.high: max(high, value)}


def _rivals(rows: Sequence[Row]) -> tuple[dict[tuple[Any, ...], int], dict[tuple[Any, ...], int]]:
    """Return by name the first row of each family that reads the same tokens, as claims have it.

    Returns also the row of each probe after the model's last block.
    """
    first: dict[tuple[Any, ...], int] = {}
    last: dict[tuple[Any, ...], int] = {}
    for j in sorted(range(len(rows)), key=lambda j: (rows[j]["probe"], rows[j]["seed"])):
        row = rows[j]
        tokens = () if row["family"] == "position" else (row["model"], row["layer"])
        if not row["rank"]:  # a truncated form is no rival
            first.setdefault((row["family"], *tokens), j)
        if row["n_layers"] and row["layer"] == str(row["n_layers"]):
            last[_probe_key(row)] = j
    return first, last


def _probe_key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("model", "probe", "rank", "seed"))


# Family whose gains over others are judged -> the quantity.
LEADS_OF = {"quadratic": QUADRATIC_LEAD, "quadratic_position": QUADRATIC_POSITION_LEAD}
