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
from bindscope.studies.same_object.quantities import (
    ALL,
    CLASSES,
    DISTANCES,
    SIZES,
)
from bindscope.studies.same_object.scorers.base import LN2, Scorer

FARTHEST = (1.5, 3.0, 6.0, 12.0)  # the largest distance of each bin
LARGEST = (0.05, 0.2)  # the largest share of each bin
AXES = (CLASSES, DISTANCES, SIZES)
SHAPE = tuple(map(len, AXES))
CELLS = int(np.prod(SHAPE))


class Stratum(NamedTuple):
    """Pairs of some kinds; `all` where a kind does not matter."""

    same_class: str
    distance: str
    size: str


def _cells_of_strata() -> tuple[tuple[Stratum, ...], npt.NDArray[np.bool_]]:
    """Return all strata, and which cells each holds, bool (strata, CELLS)."""
    strata, members = [], []
    for places in product(*(range(len(axis) + 1) for axis in AXES)):
        inside = np.ones(SHAPE, bool)
        for axis, place in enumerate(places):
            if place:
                chosen = np.arange(SHAPE[axis]) == place - 1
                others = tuple(a for a in range(len(SHAPE)) if a != axis)
                inside &= np.expand_dims(chosen, others)
        names = ((ALL, *axis)[place] for axis, place in zip(AXES, places, strict=True))
        strata.append(Stratum(*names))
        members.append(inside.ravel())
    return tuple(strata), np.stack(members)


_ALL_STRATA = _cells_of_strata()
STRATA: Final = _ALL_STRATA[0]  # the first one is that of all pairs
MEMBERS: Final = _ALL_STRATA[1]


def cells(block: Block) -> Tensor:
    """Return the cell of each pair, a kind of each of the three, int64 (P,)."""
    left, right = block.both(block.positions)
    distance = (left - right).norm(dim=-1)
    far = torch.bucketize(distance, distance.new_tensor(FARTHEST))
    first, second = block.both(object_shares(block))
    size = torch.minimum(first, second)
    large = torch.bucketize(size, size.new_tensor(LARGEST))
    return (same_class(block).long() * len(DISTANCES) + far) * len(SIZES) + large


def same_class(block: Block) -> Tensor:
    """Whether two patches have the same class, bool (P,); without one, as of the same object."""
    a, b = block.both(block.classes)
    return (a == b) & ((a != 0) | block.same)


def object_shares(block: Block) -> Tensor:
    """Return the share of an image's valid patches that are of a patch's object, (B, M)."""
    equal = block.instances[:, :, None] == block.instances[:, None, :]
    counted = (equal & block.valid[:, None, :]).sum(2).float()
    return counted / block.valid.sum(1, keepdim=True).clamp_min(1)


COARSE = 256  # bins of logits that are kept for every image, for intervals of the area
QUANTILES = 64  # of an image's own logits, for the areas of strata within it
# What is summed of the pairs of a cell.
PAIRS, SAME, RIGHT_SAME, RIGHT_DIFFERENT, LOSS = range(5)
SUMS = 5
INTERVALS = ("accuracy", "balanced_accuracy", "auc", "auc_within", "loss_bits")

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
    place, size = image * CELLS + cell, b * CELLS
    values = (None, truth, right & truth, right & ~truth, np.where(np.isfinite(loss), loss, 0.0))
    members = MEMBERS.T.astype(np.float64)
    for i, value in enumerate(values):
        weights = None if value is None else value.astype(np.float64)
        total = np.bincount(place, weights=weights, minlength=size)
        totals.sums[rows, :, i] = total.reshape(b, CELLS) @ members
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


def ratios(sums: Floats) -> dict[str, Floats]:
    """Return the metrics that follow from sums (..., SUMS), NaN where there is no such pair."""
    pairs, same = sums[..., PAIRS], sums[..., SAME]
    with np.errstate(invalid="ignore", divide="ignore"):
        recall_same = sums[..., RIGHT_SAME] / same
        recall_different = sums[..., RIGHT_DIFFERENT] / (pairs - same)
        return {
            "accuracy": (sums[..., RIGHT_SAME] + sums[..., RIGHT_DIFFERENT]) / pairs,
            "balanced_accuracy": (recall_same + recall_different) / 2,
            "loss_bits": sums[..., LOSS] / pairs / LN2,
        }


def areas(coarse: Floats) -> Floats:
    """Return areas under the ROC curve of counts (..., 2, COARSE), NaN of one label."""
    return _ratio(*count_couples(coarse))


def _ratio(hits: Floats, n: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(hits / n)


def _majority(sums: Floats) -> Floats:
    """Return right answers of the more frequent answer, of sums (..., SUMS) of an image."""
    return np.maximum(sums[..., SAME], sums[..., PAIRS] - sums[..., SAME])


def measure(
    totals: Tally, n_samples: int, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured columns of a scorer's row, and the rows of its strata."""
    used = totals.sums[:, 0, PAIRS] > 0
    sums = totals.sums[used]
    parts: list[npt.NDArray[Any]] = [
        sums, totals.won[used], totals.couples[used], totals.coarse[used],
    ]  # fmt: skip
    flat = np.concatenate([part.reshape(len(sums), -1) for part in parts], axis=1)
    ends = np.cumsum([part[0].size for part in parts])[:-1]
    means = resampled_means(flat, n_samples, seed)
    drawn, won, couples, drawn_coarse = np.split(means, ends, axis=1)
    drawn, within = drawn.reshape(-1, len(STRATA), SUMS), _ratio(won, couples)
    row = _whole(totals, sums[:, 0])
    samples = ratios(drawn[:, 0]) | {"auc_within": within[:, 0]}
    shift = (row["auc"] or 0.0) - float(areas(totals.coarse.sum(0, dtype=np.float64)))
    samples["auc"] = (areas(drawn_coarse.reshape(-1, 2, COARSE)) + shift).clip(0, 1)
    row |= _ends(row, samples, INTERVALS)
    return row, _strata(totals, sums, drawn, within)


def _whole(totals: Tally, of_images: Floats) -> dict[str, Any]:
    total = of_images.sum(0)
    share = float(total[SAME] / total[PAIRS])
    row: dict[str, Any] = {name: _number(value) for name, value in ratios(total).items()}
    return row | {
        "auc": totals.fine.auc(),
        "auc_within": _number(_ratio(totals.won[:, 0].sum(), totals.couples[:, 0].sum())),
        "n_images": len(of_images),
        "n_pairs": int(total[PAIRS]),
        "positives": share,
        "majority_accuracy": max(share, 1 - share),
        "image_majority_accuracy": float(_majority(of_images).sum() / total[PAIRS]),
        "class_oracle_accuracy": float(totals.oracle.sum() / total[PAIRS]),
    }


def _strata(totals: Tally, sums: Floats, drawn: Floats, within: Floats) -> list[dict[str, Any]]:
    rows = []
    for i, stratum in enumerate(STRATA):
        total = sums[:, i].sum(0)
        if total[PAIRS] == 0:
            continue
        values = {name: _number(value) for name, value in ratios(total).items()}
        area = _ratio(totals.won[:, i].sum(), totals.couples[:, i].sum())
        values["auc_within"] = _number(area)
        samples = ratios(drawn[:, i]) | {"auc_within": within[:, i]}
        rows.append(
            stratum._asdict()
            | values
            | _ends(values, samples, ("accuracy", "balanced_accuracy", "auc_within"))
            | {
                "image_majority_accuracy": float(_majority(sums[:, i]).sum() / total[PAIRS]),
                "n_images": int((sums[:, i, PAIRS] > 0).sum()),
                "n_pairs": int(total[PAIRS]),
                "positives": float(total[SAME] / total[PAIRS]),
            }
        )
    return rows


def _ends(
    values: Mapping[str, Any], samples: Mapping[str, Floats], names: Sequence[str]
) -> dict[str, float | None]:
    """Return the ends of intervals; resamples without a pair of one label say nothing."""
    ends: dict[str, float | None] = {}
    for name in names:
        finite = samples[name][np.isfinite(samples[name])]
        if name != "loss_bits":
            finite = finite.clip(0.0, 1.0)  # rounding, and the shift of coarse areas
        low, high = (None, None) if values[name] is None or not len(finite) else interval(finite)
        ends |= {f"{name}_low": low, f"{name}_high": high}
    return ends


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
