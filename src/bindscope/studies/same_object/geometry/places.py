"""Whether tokens are at their places: what of the place is read from them, and shifted labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData, Pairs, TokenNorm
from bindscope.studies.same_object.geometry.estimates import (
    Bootstrap,
    Floats,
    Row,
    area_of,
    coarse_edges,
    counted,
    ratio,
)
from bindscope.studies.same_object.geometry.scored import Labels

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the ridge, in mean variances of a dimension
MOMENTS = 7  # sums of an image before its patches by place
# Labels move by one patch: (rows, columns) from where a patch takes its new label.
SHIFTS = {"down": (-1, 0), "up": (1, 0), "right": (0, -1), "left": (0, 1)}


def positions_decoded(
    train: PairData,
    val: PairData,
    test: PairData,
    scaling: Standardiser,
    norm: TokenNorm,
    by: Bootstrap,
) -> list[Row]:
    """Read row and column from tokens by ridge regression, its strength chosen on validation."""
    splits = [Pairs(split, scaling, norm) for split in (train, val, test)]
    read_outs = ridge(
        (block.x[block.valid], block.positions[block.valid]) for block in splits[0].blocks()
    )
    best = min(read_outs, key=lambda read_out: float(_errors(splits[1], read_out)[:, 1].sum()))
    sums = _errors(splits[2], best)
    sums = sums[sums[:, 0] > 0]
    commonest = MOMENTS + int(sums[:, MOMENTS:].sum(0).argmax())

    def r2(means: Floats) -> Floats:
        # Of rows and columns together: squares about the mean of the patches that were drawn.
        spread = means[:, 5] + means[:, 6] - (means[:, 3] ** 2 + means[:, 4] ** 2) / means[:, 0]
        return 1 - means[:, 1] / spread

    return by.rows(
        sums,
        {
            ("position_r2", ""): r2,
            ("position_accuracy", ""): ratio(2, 0),
            ("position_chance", ""): ratio(commonest, 0),
        },
    )


def ridge(
    parts: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Fit read-outs (d, t) and offsets (t,) to inputs (k, d) and targets (k, t), by strength."""
    gram, pulled = torch.zeros(()), torch.zeros(())
    for inputs, targets in parts:
        x = torch.cat([inputs.double(), torch.ones(len(inputs), 1, dtype=torch.float64)], 1)
        gram, pulled = gram + x.t() @ x, pulled + x.t() @ targets.double()
    d = len(gram) - 1
    unit = torch.eye(d + 1, dtype=torch.float64) * gram.diagonal()[:d].mean()
    unit[-1, -1] = 0.0
    found = []
    for strength in STRENGTHS:
        weights = torch.linalg.solve(gram + strength * unit, pulled).float()
        found.append((weights[:d], weights[d]))
    return found


def _errors(pairs: Pairs, read_out: tuple[torch.Tensor, torch.Tensor]) -> Floats:
    """Sum what is decoded of each image.

    Returns
    -------
    float64 (n, 7 + cells): patches, squared errors, places that are right; sums of rows and
    columns, and of their squares; patches by place.
    """
    rows, columns = pairs.data.grid
    found = []
    for block in pairs.blocks():
        decoded = block.x @ read_out[0] + read_out[1]
        here = block.positions
        valid = block.valid.double()
        squares = (decoded - here).square().sum(-1) * valid
        right = (decoded.round() == here).all(-1) * valid
        sums = torch.stack([valid.sum(1), squares.sum(1), right.sum(1)], 1)
        moments = [(here.double() ** k * valid[..., None]).sum(1) for k in (1, 2)]
        place = (here[..., 0] * columns + here[..., 1]).long()
        cells = torch.zeros(len(here), rows * columns, dtype=torch.float64)
        cells.scatter_add_(1, place, valid)
        found.append(torch.cat([sums, *moments, cells], 1).numpy())
    return np.concatenate(found)


def shifted(labels: Labels, shift: tuple[int, int]) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Give each patch the label of the one that lies (rows, columns) from it.

    Returns
    -------
    int16 (n, M), and bool (n, M): where that one was sampled and is valid.
    """
    rows, columns = labels.grid
    n = len(labels.instances)
    # A border of two around the grid, so that no shift leaves it.
    whole = np.zeros((n, rows + 2, columns + 2), labels.instances.dtype)
    there = np.zeros(whole.shape, bool)
    image, slot = labels.valid.nonzero()
    r, c = (labels.positions[image, slot].astype(np.int64) + 1).T
    whole[image, r, c] = labels.instances[image, slot]
    there[image, r, c] = True
    moved = np.zeros_like(labels.instances)
    valid = np.zeros_like(labels.valid)
    moved[image, slot] = whole[image, r + shift[0], c + shift[1]]
    valid[image, slot] = there[image, r + shift[0], c + shift[1]]
    return moved, valid


def shifted_labels(scores: NDArray[Any], labels: Labels, by: Bootstrap) -> list[Row]:
    """Return what scores say of labels moved by a patch, beside the labels on the same pairs."""
    edges = coarse_edges(scores[labels.pairs])
    found: list[Row] = []
    for name, shift in SHIFTS.items():
        moved, valid = shifted(labels, shift)
        pairs = labels.pairs_of(valid)
        there = counted(scores, labels.same_of(moved), pairs, edges)
        here = counted(scores, labels.same, pairs, edges)
        both = np.concatenate([counts.reshape(len(scores), -1) for counts in (there, here)], 1)
        both = both[both.any(1)].astype(np.float64)
        found += by.rows(
            both,
            {
                ("shifted_auc", name): _shifted_area,
                ("shift_loss", name): lambda means: _area(means) - _shifted_area(means),
            },
        )
    return found


def _shifted_area(means: Floats) -> Floats:
    return area_of(means[:, : means.shape[1] // 2])


def _area(means: Floats) -> Floats:
    return area_of(means[:, means.shape[1] // 2 :])
