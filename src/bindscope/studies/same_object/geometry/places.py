"""Whether tokens are at their places: how well row and column are decoded from them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData, Pairs, TokenNorm
from bindscope.studies.same_object.estimates import (
    Bootstrap,
    Floats,
    Row,
    ratio,
)

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the ridge, in mean variances of a dimension
MOMENTS = 7  # sums of an image before its patches by place


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
