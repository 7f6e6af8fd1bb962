"""What a scorer is worth on the pairs of a split, as a whole and by kind of pair (strata).

All numbers are sums over pairs divided by sums over pairs, kept image by image, so that intervals
resample images. Nothing is kept of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor

from bindscope.core.array_types import Doubles
from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.data import PairBlock, PatchPairs
from bindscope.studies.same_object.quantities import ALL, CLASSES, DISTANCES
from bindscope.studies.same_object.scorers.base import Scorer
from bindscope.studies.same_object.scores import (
    ACCURACY,
    AUC_WITHIN,
    IMAGE_MAJORITY,
    PAIRS,
    RESAMPLES,
    Score,
    ScoredPairs,
)
from bindscope.tables.rows import finite_or_none

BITS = 12  # last ones of a logit (of 23), which decide nothing where many are counted together
ENOUGH = 1e-10  # slope of the mean loss with which a fit ends


class Calibration(NamedTuple):
    """Platt's map: the probability of the same object is sigmoid(scale g + offset)."""

    scale: float
    offset: float


UNCHANGED = Calibration(1.0, 0.0)


def calibrated(scorer: Scorer, pairs: PatchPairs) -> Calibration:
    """Fit Platt's map to a split, that of validation."""
    parts = [(scorer.logits(block).float().cpu(), block.same.cpu()) for block in pairs.blocks()]
    logits, same = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    return platt(logits, same)


def platt(logits: npt.NDArray[np.float32], same: npt.NDArray[np.bool_]) -> Calibration:
    """Fit Platt's map with his targets, which no split is too easy for.

    Logits (P,) that are not finite do not count. Those surer than the targets count as these: else
    the few pairs that a form is unboundedly sure of (logits of 1,500 where a class has one object)
    would pull all others towards 0.
    """
    same, logits = same[np.isfinite(logits)], logits[np.isfinite(logits)]
    if not len(logits):
        return UNCHANGED
    _, place = np.unique(logits.view(np.int32) >> BITS, return_inverse=True)  # nearly equal ones
    weights, ones = np.bincount(place).astype(np.float64), np.bincount(place, same)
    n, n_same = len(same), int(same.sum())
    high, low = (n_same + 1) / (n_same + 2), 1 / (n - n_same + 2)
    hits = ones * high + (weights - ones) * low
    means = np.bincount(place, logits) / weights
    means = means.clip(-np.log(n - n_same + 1), np.log(n_same + 1))
    centre = float(weights @ means / n)
    spread = float(np.sqrt(weights @ (means - centre) ** 2 / n)) or 1.0
    x = np.stack([(means - centre) / spread, np.ones(len(means))])

    def loss(theta: Doubles) -> float:
        z = theta @ x
        return float(weights @ np.logaddexp(0, z) - hits @ z) / n

    def slope(theta: Doubles) -> Doubles:
        return np.asarray(x @ (weights * expit(theta @ x) - hits) / n)

    def curvature(theta: Doubles) -> Doubles:
        p = expit(theta @ x)
        return np.asarray((x * (weights * p * (1 - p))) @ x.T / n)

    begin = np.array([0.0, np.log((n_same + 0.5) / (n - n_same + 0.5))])
    solution = minimize(loss, begin, method="trust-exact", jac=slope, hess=curvature, tol=ENOUGH)
    scale = float(solution.x[0]) / spread
    return Calibration(scale, float(solution.x[1]) - scale * centre)


FARTHEST = (1.5, 3.0, 6.0, 12.0)  # the largest distance of each bin


class Stratum(NamedTuple):
    """Pairs of some kinds; `all` where a kind does not matter."""

    same_class: str
    distance: str


# The first one is that of all pairs.
STRATA: Final = tuple(Stratum(*kinds) for kinds in product((ALL, *CLASSES), (ALL, *DISTANCES)))


@dataclass(frozen=True)
class Tally:
    """Sums over the pairs of each image."""

    sums: Mapping[str, Doubles]  # of each quantity of `PAIRS` its sums, (n, strata, k)
    finite: bool  # whether all logits were

    def of_images(self) -> npt.NDArray[np.float32]:
        """Return right pairs, pairs, right pairs of the image's majority, couples won and couples.

        float32 (n, 5), of all pairs of each image.
        """
        of_images = (ACCURACY, IMAGE_MAJORITY, AUC_WITHIN)
        accuracy, majority, couples = (self.sums[score.name][:, 0] for score in of_images)
        return np.column_stack([accuracy, majority[:, :1], couples]).astype(np.float32)


def tally(scorer: Scorer, pairs: PatchPairs, calibration: Calibration = UNCHANGED) -> Tally:
    """Go once over a split; `calibration`: the map of logits whose sign is the decision."""
    parts, finite = [], True
    for block in pairs.blocks():
        logits = scorer.logits(block).float().cpu().numpy()
        finite &= bool(np.isfinite(logits).all())
        parts.append(_sums(block, logits, calibration))
    sums = {score.name: np.concatenate([part[score.name] for part in parts]) for score in PAIRS}
    return Tally(sums, finite)


def _sums(
    block: PairBlock, logits: npt.NDArray[np.float32], calibration: Calibration
) -> dict[str, Doubles]:
    """Return the sums of a block's images by quantity, (B, strata, k)."""
    same_class, distance = (part.cpu().numpy() for part in kinds(block))
    # Sorted once, so that what ranks logits finds each stratum in order.
    order = np.lexsort((logits, block.image.cpu().numpy()))
    pairs = ScoredPairs(
        logits,
        calibration.scale * logits + calibration.offset,
        block.same.cpu().numpy(),
        same_class,
        block.image.cpu().numpy(),
        len(block.valid),
    ).take(order)
    distance = distance[order]
    sums: dict[str, list[Doubles]] = {score.name: [] for score in PAIRS}
    for stratum in STRATA:
        chosen = np.ones(len(order), bool)
        if stratum.same_class != ALL:
            chosen &= pairs.same_class == CLASSES.index(stratum.same_class)
        if stratum.distance != ALL:
            chosen &= distance == DISTANCES.index(stratum.distance)
        part = pairs.take(chosen)
        for score in PAIRS:
            sums[score.name].append(np.stack(score.sums(part), axis=-1))
    return {name: np.stack(each, axis=1) for name, each in sums.items()}


def distance_bins(block: PairBlock, farthest: Sequence[float]) -> Tensor:
    """Return the bin of the distance of two patches, int64 (P,)."""
    distance = block.steps.norm(dim=-1)
    return torch.bucketize(distance, distance.new_tensor(farthest))


def kinds(block: PairBlock) -> tuple[Tensor, Tensor]:
    """Return whether two patches have the same class, and the bin of their distance, (P,) each.

    Patches without a class are of the same one if they are of the same object.
    """
    a, b = block.both(block.classes)
    return (a == b) & ((a != 0) | block.same), distance_bins(block, FARTHEST)


def measure(
    tallied: Tally, n_samples: int = RESAMPLES
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured columns of a scorer's row, and the rows of its strata."""
    each = tallied.sums[ACCURACY.name][..., 1]  # pairs of each image and stratum
    there = each[:, 0] > 0
    counts, images = each.sum(0), (each > 0).sum(0)
    rows = [
        stratum._asdict() | {"n_images": int(n), "n_pairs": int(count)}
        for stratum, n, count in zip(STRATA, images, counts, strict=True)
    ]
    for score in PAIRS:
        sums = tallied.sums[score.name][there]
        for row, value in zip(rows, _scores(score, sums.sum(0)), strict=True):
            row[score.value] = finite_or_none(value)
        if score.low:
            means = resampled_means(sums.reshape(len(sums), -1), n_samples, seed=0)
            drawn = _scores(score, means.reshape(-1, *sums.shape[1:]))
            for row, samples in zip(rows, drawn.T, strict=True):
                row |= _ends(score, row[score.value], samples)
    whole = {name: value for name, value in rows[0].items() if name not in Stratum._fields}
    return whole, [row for row in rows if row["n_pairs"]]


def _scores(score: Score, sums: Doubles) -> Doubles:
    """Return the scores of sums (..., k); resamples may go beyond their ends by rounding."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return score.score(*np.moveaxis(sums, -1, 0)).clip(0.0, score.most)


def _ends(score: Score, value: float | None, samples: Doubles) -> dict[str, float | None]:
    """Return the ends of an interval; resamples without a pair of one label say nothing."""
    finite = samples[np.isfinite(samples)]
    low, high = (None, None) if value is None or not len(finite) else interval(finite)
    return {score.low: low, score.high: high}
