"""What a scorer is worth on the pairs of a split, as a whole and by kind of pair (strata).

All numbers are sums over pairs divided by sums over pairs, kept image by image, so that intervals
resample images. Nothing is kept of a pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.quantities import ALL, CLASSES, DISTANCES
from bindscope.studies.same_object.scorers.base import LN2, Scorer

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


FARTHEST = (1.5, 3.0, 6.0, 12.0)  # the largest distance of each bin


class Stratum(NamedTuple):
    """Pairs of some kinds; `all` where a kind does not matter."""

    same_class: str
    distance: str


CELLS: Final = tuple(product(CLASSES, DISTANCES))
# The first one is that of all pairs.
STRATA: Final = tuple(Stratum(*kinds) for kinds in product((ALL, *CLASSES), (ALL, *DISTANCES)))
# Which cells each holds, bool (strata, cells).
MEMBERS: Final = np.array(
    [
        [all(kind in (ALL, of_cell) for kind, of_cell in zip(stratum, cell, strict=True))
         for cell in CELLS]
        for stratum in STRATA
    ]
)  # fmt: skip


def cells(block: Block) -> Tensor:
    """Return the cell of each pair, a kind of both, int64 (P,)."""
    left, right = block.both(block.positions)
    distance = (left - right).norm(dim=-1)
    far = torch.bucketize(distance, distance.new_tensor(FARTHEST))
    return same_class(block).long() * len(DISTANCES) + far


def same_class(block: Block) -> Tensor:
    """Whether two patches have the same class, bool (P,); without one, as of the same object."""
    a, b = block.both(block.classes)
    return (a == b) & ((a != 0) | block.same)


# What is summed of the pairs of an image and stratum: pairs, those of the same object, right
# answers of either kind, losses in nats; couples of a pair of the same object and a pair of
# different ones in which the first has the greater logit (a tie is one half), and all couples.
PAIRS, SAME, RIGHT_SAME, RIGHT_DIFFERENT, LOSS, WON, COUPLES = range(7)
SUMS = 7
INTERVALS = ("accuracy", "balanced_accuracy", "auc_within")  # of every stratum

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass
class Tally:
    """Sums over the pairs of each image."""

    sums: Floats  # (n, strata, SUMS); the first stratum is that of all pairs
    oracle: Floats  # (n,): pairs that "same object where same class" is right about
    finite: bool = True  # whether all logits were

    def of_images(self) -> npt.NDArray[np.float32]:
        """Return right pairs, pairs, right pairs of the image's majority, couples won and couples.

        float32 (n, 5), of all pairs of each image.
        """
        sums = self.sums[:, 0]
        right = sums[:, RIGHT_SAME] + sums[:, RIGHT_DIFFERENT]
        columns = [right, sums[:, PAIRS], _majority(sums), sums[:, WON], sums[:, COUPLES]]
        return np.stack(columns, axis=1).astype(np.float32)


def tally(scorer: Scorer, pairs: Pairs, calibration: Calibration = UNCHANGED) -> Tally:
    """Go once over a split; `calibration`: the map of logits whose sign is the decision."""
    n = pairs.data.n_images
    totals = Tally(np.zeros((n, len(STRATA), SUMS)), np.zeros(n))
    for block in pairs.blocks():
        _add(totals, block, scorer.logits(block), calibration)
    return totals


def _add(totals: Tally, block: Block, logits: Tensor, calibration: Calibration) -> None:
    same = block.same
    g, truth, image, cell, agree = (
        v.cpu().numpy()
        for v in (logits.float(), same, block.image, cells(block), same_class(block) == same)
    )
    loss = softplus(torch.where(same, -logits, logits)).double().cpu().numpy()
    finite = np.isfinite(g)
    totals.finite &= bool(finite.all())
    right = (calibration.scale * g + calibration.offset > 0) == truth
    b, rows = len(block.valid), slice(block.first, block.first + len(block.valid))
    values = (np.ones(len(g)), truth, right & truth, right & ~truth, np.where(finite, loss, 0.0))
    for i, value in enumerate(values):
        total = np.bincount(image * len(CELLS) + cell, value, b * len(CELLS))
        totals.sums[rows, :, i] = total.reshape(b, -1) @ MEMBERS.T.astype(np.float64)
    totals.oracle[rows] = np.bincount(image, agree, b)
    order = np.lexsort((g, image))
    g, truth, image, cell = g[order], truth[order], image[order], cell[order]
    for i, members in enumerate(MEMBERS):
        chosen = members[cell]
        won = couples_won(g[chosen], truth[chosen], image[chosen], b)
        totals.sums[rows, i, WON], totals.sums[rows, i, COUPLES] = won


def couples_won(
    logits: npt.NDArray[Any], same: Bools, image: Integers, n: int
) -> tuple[Floats, Floats]:
    """Count couples of a pair of the same object and one of different objects, of each image.

    `logits`, `same`, `image` (P,): of pairs; `n`: number of images. Returns: couples (n,) in which
    the first has the greater logit (a tie counts one half), and all couples; their ratio is the
    area under the ROC curve within images.
    """
    order = np.lexsort((logits, image))
    logits, same, image = logits[order], same[order], image[order]
    new = np.append(True, (np.diff(image) != 0) | (logits[1:] != logits[:-1]))[: len(logits)]
    tie = np.cumsum(new) - 1  # number of the run of equal logits of an image
    different = np.bincount(tie, ~same)
    below = np.cumsum(different) - different / 2  # pairs of different objects below, or equal / 2
    counts, ones = np.bincount(image, minlength=n), np.bincount(image, same, n)
    before = np.cumsum(counts - ones) - (counts - ones)  # those of the images before
    won = np.bincount(image, same * (below[tie] - before[image]), n)
    return won.astype(np.float64), ones * (counts - ones)


def calibrated(scorer: Scorer, pairs: Pairs) -> Calibration:
    """Fit Platt's map to a split, that of validation."""
    counted = Histogram()
    for block in pairs.blocks():
        counted.add(scorer.logits(block).float().cpu().numpy(), block.same.cpu().numpy())
    return counted.calibrated()


def _scores(sums: Floats) -> dict[str, Floats]:
    """Return the metrics that follow from sums (..., SUMS), NaN of no pair."""
    pairs, same, right_same, right_different, loss, won, couples = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "accuracy": (right_same + right_different) / pairs,
            "balanced_accuracy": (right_same / same + right_different / (pairs - same)) / 2,
            "loss_bits": loss / pairs / LN2,
            "auc_within": won / couples,
        }


def _majority(sums: Floats) -> Floats:
    """Return right answers of the more frequent answer, of sums (..., SUMS) of an image."""
    return np.maximum(sums[..., SAME], sums[..., PAIRS] - sums[..., SAME])


def measure(
    totals: Tally, n_samples: int, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured columns of a scorer's row, and the rows of its strata."""
    sums = totals.sums[totals.sums[:, 0, PAIRS] > 0]
    drawn = resampled_means(sums.reshape(len(sums), -1), n_samples, seed)
    values, samples = _scores(sums.sum(0)), _scores(drawn.reshape(-1, *sums.shape[1:]))
    total, majority, strata = sums.sum(0), _majority(sums).sum(0), []
    for i in np.flatnonzero(total[:, PAIRS]):
        row = {name: float(v[i]) if np.isfinite(v[i]) else None for name, v in values.items()}
        for name in INTERVALS:
            row |= _ends(name, row[name], samples[name][:, i])
        strata.append(STRATA[i]._asdict() | row | {
            "image_majority_accuracy": float(majority[i] / total[i, PAIRS]),
            "n_images": int((sums[:, i, PAIRS] > 0).sum()),
            "n_pairs": int(total[i, PAIRS]),
            "positives": float(total[i, SAME] / total[i, PAIRS]),
        })  # fmt: skip
    whole: dict[str, Any] = {n: v for n, v in strata[0].items() if n not in Stratum._fields}
    return whole | {
        "majority_accuracy": max(whole["positives"], 1 - whole["positives"]),
        "class_oracle_accuracy": float(totals.oracle.sum() / whole["n_pairs"]),
        **_ends("loss_bits", whole["loss_bits"], samples["loss_bits"][:, 0]),
    }, strata


def _ends(name: str, value: float | None, samples: Floats) -> dict[str, float | None]:
    """Return the ends of an interval; resamples without a pair of one label say nothing."""
    finite = samples[np.isfinite(samples)]
    if name != "loss_bits":
        finite = finite.clip(0.0, 1.0)  # rounding
    low, high = (None, None) if value is None or not len(finite) else interval(finite)
    return {f"{name}_low": low, f"{name}_high": high}
