"""What a scorer is worth on the pairs of a split, as a whole and in strata.

All numbers are sums over pairs divided by sums over pairs, kept image by image, so that intervals
resample images. Nothing is kept of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import softplus

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.histogram import Calibration, Histogram, area
from bindscope.studies.same_object.scorers.base import LN2, Scorer
from bindscope.studies.same_object.strata import CELLS, MEMBERS, STRATA, cells, same_class

COARSE = 256  # bins of logits that are kept for every image, for intervals of the area
# What is summed of the pairs of a cell.
PAIRS, SAME, RIGHT_SAME, RIGHT_DIFFERENT, LOSS = range(5)
SUMS = 5
INTERVALS = ("accuracy", "balanced_accuracy", "auc", "loss_bits")

Floats = npt.NDArray[np.float64]


@dataclass
class Tally:
    """Sums over the pairs of each image.

    Attributes
    ----------
    sums
        float64 (n, strata, SUMS): per image and stratum; the first one is that of all pairs.
    oracle
        float64 (n,): pairs that "same object where same class" is right about.
    coarse
        float32 (n, 2, COARSE): pairs of different and of the same objects by coarse logit.
    by_cell
        int64 (CELLS, 2, COARSE): the same over all images, per cell.
    fine
        All pairs by fine logit.
    """

    sums: Floats
    oracle: Floats
    coarse: npt.NDArray[np.float32]
    by_cell: npt.NDArray[np.int64]
    fine: Histogram

    def of_images(self) -> npt.NDArray[np.float32]:
        """Return pairs that are told right, and pairs, of each image; (n, 2)."""
        sums = self.sums[:, 0]
        right = sums[:, RIGHT_SAME] + sums[:, RIGHT_DIFFERENT]
        return np.stack([right, sums[:, PAIRS]], axis=1).astype(np.float32)


def tally(scorer: Scorer, pairs: Pairs, edges: npt.NDArray[np.float32]) -> Tally:
    """Go once over a split; `edges` (COARSE - 1,) are those between the coarse bins."""
    n = pairs.data.n_images
    found = Tally(
        np.zeros((n, len(STRATA), SUMS)), np.zeros(n), np.zeros((n, 2, COARSE), np.float32),
        np.zeros((CELLS, 2, COARSE), np.int64), Histogram(),
    )  # fmt: skip
    for block in pairs.blocks():
        _add(found, block, scorer.logits(block), edges)
    return found


def _add(found: Tally, block: Block, logits: torch.Tensor, edges: npt.NDArray[np.float32]) -> None:
    same = block.same
    g, truth, image, cell = (
        v.cpu().numpy() for v in (logits.float(), same, block.image, cells(block))
    )
    found.fine.add(g, truth)
    loss = softplus(torch.where(same, -logits, logits)).double().cpu().numpy()
    right = (g > 0) == truth
    b, rows = len(block.valid), slice(block.first, block.first + len(block.valid))
    place, size = image * CELLS + cell, b * CELLS
    values = (None, truth, right & truth, right & ~truth, np.where(np.isfinite(loss), loss, 0.0))
    members = MEMBERS.T.astype(np.float64)
    for i, value in enumerate(values):
        weights = None if value is None else value.astype(np.float64)
        total = np.bincount(place, weights=weights, minlength=size)
        found.sums[rows, :, i] = total.reshape(b, CELLS) @ members
    agree = (same_class(block) == same).cpu().numpy()
    found.oracle[rows] = np.bincount(image, weights=agree, minlength=b)
    coarse = np.searchsorted(edges, g)
    both = truth * COARSE + coarse
    counted = np.bincount(image * 2 * COARSE + both, minlength=b * 2 * COARSE)
    found.coarse[rows] = counted.reshape(b, 2, COARSE)
    counted = np.bincount(cell * 2 * COARSE + both, minlength=CELLS * 2 * COARSE)
    found.by_cell += counted.reshape(CELLS, 2, COARSE)


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
        found_same = sums[..., RIGHT_SAME] / same
        found_different = sums[..., RIGHT_DIFFERENT] / (pairs - same)
        return {
            "accuracy": (sums[..., RIGHT_SAME] + sums[..., RIGHT_DIFFERENT]) / pairs,
            "balanced_accuracy": (found_same + found_different) / 2,
            "loss_bits": sums[..., LOSS] / pairs / LN2,
        }


def areas(coarse: Floats) -> Floats:
    """Return areas under the ROC curve of counts (..., 2, COARSE), NaN of one label."""
    different, same = coarse[..., 0, :], coarse[..., 1, :]
    below = different.cumsum(-1) - different / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (below * same).sum(-1) / (different.sum(-1) * same.sum(-1))
    return found


def entropy_bits(share: float) -> float:
    """Return the entropy of a label with this share of ones, in bits."""
    return -sum(p * float(np.log2(p)) for p in (share, 1 - share) if p > 0)


def measure(
    found: Tally, calibration: Calibration, n_samples: int, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measured columns of a scorer's row, and the rows of its strata.

    Parameters
    ----------
    found
        Sums of the test split.
    calibration
        Platt's map of validation.
    n_samples, seed
        Resamples of the images.
    """
    used = found.sums[:, 0, PAIRS] > 0
    sums = found.sums[used]
    flat = np.concatenate(
        [sums.reshape(len(sums), -1), found.coarse[used].reshape(len(sums), -1)], axis=1
    )
    means = resampled_means(flat, n_samples, seed)
    width = len(STRATA) * SUMS
    drawn, drawn_coarse = means[:, :width].reshape(-1, len(STRATA), SUMS), means[:, width:]
    row = _whole(found, sums[:, 0], calibration)
    samples = ratios(drawn[:, 0])
    shift = (row["auc"] or 0.0) - float(areas(found.coarse.sum(0, dtype=np.float64)))
    samples["auc"] = (areas(drawn_coarse.reshape(-1, 2, COARSE)) + shift).clip(0, 1)
    row |= _ends(row, samples, INTERVALS)
    return row, _strata(found, sums, drawn)


def _whole(found: Tally, of_images: Floats, calibration: Calibration) -> dict[str, Any]:
    total = of_images.sum(0)
    share = float(total[SAME] / total[PAIRS])
    majority = np.maximum(of_images[:, SAME], of_images[:, PAIRS] - of_images[:, SAME])
    row: dict[str, Any] = {name: _number(value) for name, value in ratios(total).items()}
    auc = found.fine.auc()
    return row | {
        "auc": None if auc is None else auc[0],
        "auc_error": None if auc is None else auc[1],
        "loss_calibrated_bits": found.fine.loss_bits(calibration),
        "ece": found.fine.calibration_error(),
        "ece_calibrated": found.fine.calibration_error(calibration),
        "n_images": len(of_images),
        "n_pairs": int(total[PAIRS]),
        "positives": share,
        "base_entropy_bits": entropy_bits(share),
        "majority_accuracy": max(share, 1 - share),
        "image_majority_accuracy": float(majority.sum() / total[PAIRS]),
        "class_oracle_accuracy": float(found.oracle.sum() / total[PAIRS]),
    }


def _strata(found: Tally, sums: Floats, drawn: Floats) -> list[dict[str, Any]]:
    rows = []
    for i, (stratum, inside) in enumerate(zip(STRATA, MEMBERS, strict=True)):
        total = sums[:, i].sum(0)
        if total[PAIRS] == 0:
            continue
        values = {name: _number(value) for name, value in ratios(total).items()}
        auc = area(found.by_cell[inside].sum(0))
        samples = ratios(drawn[:, i])
        rows.append(
            stratum._asdict()
            | values
            | _ends(values, samples, ("accuracy", "balanced_accuracy"))
            | {
                "auc": None if auc is None else auc[0],
                "auc_error": None if auc is None else auc[1],
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
        told = samples[name][np.isfinite(samples[name])]
        if name != "loss_bits":
            told = told.clip(0.0, 1.0)  # rounding, and the shift of coarse areas
        low, high = (None, None) if values[name] is None or not len(told) else interval(told)
        ends |= {f"{name}_low": low, f"{name}_high": high}
    return ends


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
