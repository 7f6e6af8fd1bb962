"""What a scorer is worth on the pairs of a split, as a whole and by kind of pair (strata).

All numbers are sums over pairs divided by sums over pairs, kept image by image, so that intervals
resample images. Nothing is kept of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.histogram import (
    UNCHANGED,
    Calibration,
    Histogram,
    count_couples,
)
from bindscope.studies.same_object.quantities import ALL, CLASSES, DISTANCES
from bindscope.studies.same_object.scorers.base import LN2, Scorer

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


COARSE = 256  # bins of logits that are kept for every image, for intervals of the area
QUANTILES = 64  # of an image's own logits, for the areas of strata within it
# What is summed of the pairs of a cell.
PAIRS, SAME, RIGHT_SAME, RIGHT_DIFFERENT, LOSS = range(5)
SUMS = 5
INTERVALS = ("accuracy", "balanced_accuracy", "auc_within")  # of every stratum

Floats = npt.NDArray[np.float64]


@dataclass
class Tally:
    """Sums over the pairs of each image."""

    # float64 (n, strata, SUMS): per image and stratum; the first one is that of all pairs.
    sums: Floats
    oracle: Floats  # float64 (n,): pairs that "same object where same class" is right about
    # float32 (n, 2, COARSE): pairs of different and of the same objects by coarse logit.
    coarse: npt.NDArray[np.float32]
    # float64 (n, strata): of each image the couples of a pair of the same object and a pair of
    # different ones, and those in which the first has the greater logit, a tie counting one half.
    won: Floats
    couples: Floats
    fine: Histogram  # all pairs by fine logit

    def of_images(self) -> npt.NDArray[np.float32]:
        """Return right pairs, pairs, right pairs of the image's majority, couples won and couples.

        float32 (n, 5), of all pairs of each image.
        """
        sums = self.sums[:, 0]
        right = sums[:, RIGHT_SAME] + sums[:, RIGHT_DIFFERENT]
        columns = [right, sums[:, PAIRS], _majority(sums), self.won[:, 0], self.couples[:, 0]]
        return np.stack(columns, axis=1).astype(np.float32)


def tally(
    scorer: Scorer,
    pairs: Pairs,
    edges: npt.NDArray[np.float32],
    calibration: Calibration = UNCHANGED,
) -> Tally:
    """Go once over a split.

    `edges`: between the coarse bins, (COARSE - 1,). `calibration`: the map of logits whose sign is
    the decision.
    """
    n, strata = pairs.data.n_images, len(STRATA)
    totals = Tally(
        np.zeros((n, strata, SUMS)), np.zeros(n), np.zeros((n, 2, COARSE), np.float32),
        np.zeros((n, strata)), np.zeros((n, strata)), Histogram(),
    )  # fmt: skip
    for block in pairs.blocks():
        _add(totals, block, scorer.logits(block), edges, calibration)
    return totals


def _add(
    totals: Tally,
    block: Block,
    logits: torch.Tensor,
    edges: npt.NDArray[np.float32],
    calibration: Calibration,
) -> None:
    same = block.same
    g, truth, image, cell = (
        v.cpu().numpy() for v in (logits.float(), same, block.image, cells(block))
    )
    totals.fine.add(g, truth)
    loss = softplus(torch.where(same, -logits, logits)).double().cpu().numpy()
    right = (calibration.scale * g + calibration.offset > 0) == truth
    b, rows = len(block.valid), slice(block.first, block.first + len(block.valid))
    place, size = image * len(CELLS) + cell, b * len(CELLS)
    values = (None, truth, right & truth, right & ~truth, np.where(np.isfinite(loss), loss, 0.0))
    members = MEMBERS.T.astype(np.float64)
    for i, value in enumerate(values):
        weights = None if value is None else value.astype(np.float64)
        total = np.bincount(place, weights=weights, minlength=size)
        totals.sums[rows, :, i] = total.reshape(b, -1) @ members
    agree = (same_class(block) == same).cpu().numpy()
    totals.oracle[rows] = np.bincount(image, weights=agree, minlength=b)
    coarse = np.searchsorted(edges, g)
    both = truth * COARSE + coarse
    counted = np.bincount(image * 2 * COARSE + both, minlength=b * 2 * COARSE)
    totals.coarse[rows] = counted.reshape(b, 2, COARSE)
    totals.won[rows], totals.couples[rows] = _within(g, truth, image, cell, b)


def couples_won(
    logits: npt.NDArray[Any],
    same: npt.NDArray[np.bool_],
    image: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """Count couples of a pair of the same object and one of different objects, of each image.

    `logits`, `same`, `image` (P,): of the pairs of successive images. `counts` (n,): how many pairs
    each image has. Returns: couples (n,) in which the first has the greater logit (a tie counts one
    half), and all couples; their ratio is the area under the ROC curve within images. And the rank
    (P,) of each pair among those of its image, from 0, equal logits having their mean.
    """
    n, order = len(counts), np.lexsort((logits, image))
    sorted_image, sorted_logits = image[order], logits[order]
    new = np.ones(len(logits), bool)
    new[1:] = (np.diff(sorted_image) != 0) | (sorted_logits[1:] != sorted_logits[:-1])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(logits)))
    before = np.repeat(counts.cumsum() - counts, counts)
    rank = np.empty(len(logits))
    rank[order] = np.repeat(starts + (sizes - 1) / 2, sizes) - before
    ones = np.bincount(image, weights=same, minlength=n)
    won = np.bincount(image[same], weights=rank[same], minlength=n) - ones * (ones - 1) / 2
    couples = ones * (counts - ones)
    return np.where(couples > 0, won, 0.0), couples, rank


def _within(
    g: npt.NDArray[np.float32],
    same: npt.NDArray[np.bool_],
    image: npt.NDArray[np.int64],
    cell: npt.NDArray[np.int64],
    b: int,
) -> tuple[Floats, Floats]:
    """Return the couples won and the couples of each image and stratum, (b, strata) each.

    Of all pairs they are counted from exact ranks, of strata in quantiles of the image's logits.
    """
    n = np.bincount(image, minlength=b)
    won_all, couples_all, rank = couples_won(g, same, image, n)
    place = np.minimum((rank + 0.5) / n[image] * QUANTILES, QUANTILES - 1).astype(np.int64)
    present, here = np.unique(cell, return_inverse=True)
    index = ((image * len(present) + here) * 2 + same) * QUANTILES + place
    counted = np.bincount(index, minlength=b * len(present) * 2 * QUANTILES)
    by_cell = counted.reshape(b, len(present), 2 * QUANTILES).astype(np.float32)
    members = MEMBERS[:, present].astype(np.float32)
    counts = np.matmul(members, by_cell).reshape(b, len(STRATA), 2, QUANTILES).astype(np.float64)
    won, couples = count_couples(counts)
    won[:, 0], couples[:, 0] = won_all, couples_all
    return won, couples


def validated(scorer: Scorer, pairs: Pairs) -> tuple[Calibration, npt.NDArray[np.float32]]:
    """Return what validation is used for after a fit: Platt's map, and edges of coarse bins."""
    counted = Histogram()
    for block in pairs.blocks():
        counted.add(scorer.logits(block).float().cpu().numpy(), block.same.cpu().numpy())
    return counted.calibrated(), counted.quantile_edges(COARSE)


def _scores(sums: Floats, won: Floats, couples: Floats) -> dict[str, Floats]:
    """Return the metrics that follow from sums (..., SUMS) and couples (...), NaN of no pair."""
    pairs, same = sums[..., PAIRS], sums[..., SAME]
    with np.errstate(invalid="ignore", divide="ignore"):
        recall_same = sums[..., RIGHT_SAME] / same
        recall_different = sums[..., RIGHT_DIFFERENT] / (pairs - same)
        return {
            "accuracy": (sums[..., RIGHT_SAME] + sums[..., RIGHT_DIFFERENT]) / pairs,
            "balanced_accuracy": (recall_same + recall_different) / 2,
            "loss_bits": sums[..., LOSS] / pairs / LN2,
            "auc_within": won / couples,
        }


def areas(coarse: Floats) -> Floats:
    """Return areas under the ROC curve of counts (..., 2, COARSE), NaN of one label."""
    won, couples = count_couples(coarse)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(won / couples)


def _majority(sums: Floats) -> Floats:
    """Return right answers of the more frequent answer, of sums (..., SUMS) of an image."""
    return np.maximum(sums[..., SAME], sums[..., PAIRS] - sums[..., SAME])


def measure(
    totals: Tally, n_samples: int, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured columns of a scorer's row, and the rows of its strata."""
    used = totals.sums[:, 0, PAIRS] > 0
    parts: list[npt.NDArray[Any]] = [
        part[used] for part in (totals.sums, totals.won, totals.couples, totals.coarse)
    ]
    flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    ends = np.cumsum([part[0].size for part in parts])[:-1]
    means = np.split(resampled_means(flat, n_samples, seed), ends, axis=1)
    *drawn, coarse = (
        mean.reshape(-1, *part.shape[1:]) for mean, part in zip(means, parts, strict=True)
    )
    samples = _scores(*drawn)
    strata = _strata(parts[0], _scores(*(part.sum(0) for part in parts[:3])), samples)
    total, auc = parts[0][:, 0].sum(0), totals.fine.auc()
    positives = float(total[SAME] / total[PAIRS])
    shift = (auc or 0.0) - float(areas(totals.coarse.sum(0, dtype=np.float64)))
    row = {name: value for name, value in strata[0].items() if name not in Stratum._fields}
    return row | {
        "auc": auc,
        "majority_accuracy": max(positives, 1 - positives),
        "class_oracle_accuracy": float(totals.oracle.sum() / total[PAIRS]),
        **_ends("auc", auc, areas(coarse) + shift),
        **_ends("loss_bits", row["loss_bits"], samples["loss_bits"][:, 0]),
    }, strata


def _strata(
    sums: Floats, values: Mapping[str, Floats], samples: Mapping[str, Floats]
) -> list[dict[str, Any]]:
    """Return the rows of strata with pairs; of sums (n, strata, SUMS) and metrics (..., strata)."""
    totals, majority = sums.sum(0), _majority(sums).sum(0)
    rows = []
    for i in np.flatnonzero(totals[:, PAIRS]):
        scores = {name: _number(value[i]) for name, value in values.items()}
        rows.append(STRATA[i]._asdict() | scores | {
            "image_majority_accuracy": float(majority[i] / totals[i, PAIRS]),
            "n_images": int((sums[:, i, PAIRS] > 0).sum()),
            "n_pairs": int(totals[i, PAIRS]),
            "positives": float(totals[i, SAME] / totals[i, PAIRS]),
        })  # fmt: skip
        for name in INTERVALS:
            rows[-1] |= _ends(name, scores[name], samples[name][:, i])
    return rows


def _ends(name: str, value: float | None, samples: Floats) -> dict[str, float | None]:
    """Return the ends of an interval; resamples without a pair of one label say nothing."""
    finite = samples[np.isfinite(samples)]
    if name != "loss_bits":
        finite = finite.clip(0.0, 1.0)  # rounding, and the shift of coarse areas
    low, high = (None, None) if value is None or not len(finite) else interval(finite)
    return {f"{name}_low": low, f"{name}_high": high}


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
