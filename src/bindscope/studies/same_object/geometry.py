"""What a fitted probe's scores, and the tokens it reads, are like, layer by layer.

Scores by kind of pair, and on tokens of other layers (arXiv 2510.24709, section 4.2 and Fig. 5:
from some layer on, two identical objects, and then all of a class, are said to be one; the paper
has pictures, these are the means by layer). Whether tokens are at their places: how well row and
column are decoded from them (its appendix A.4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.array_types import Doubles
from bindscope.fitting.checkpoint import Checkpoints, SavedState, each
from bindscope.fitting.denormals import flushed
from bindscope.fitting.rows import ArrayRows, whole
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.estimates import Bootstrap, estimate
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.metrics import tally
from bindscope.studies.same_object.quantities import KINDS
from bindscope.studies.same_object.scorers.base import FitTask, Scorer
from bindscope.studies.same_object.scorers.released import train_form
from bindscope.tables.rows import Row


def cross_scores(probe: Scorer, test: PairData, copy_of: NDArray[Any], by: Bootstrap) -> list[Row]:
    """Return the mean decoded probability of the pairs of each kind.

    `copy_of` (n, M): the exact copy of a patch's object, 0 = none.
    """
    n = len(KINDS)
    sums = np.zeros((test.n_images, 2 * n))  # pairs of each kind, and their probabilities
    for block in PatchPairs(test).blocks():
        images = slice(block.first, block.first + len(block.valid))
        copies = torch.from_numpy(copy_of[images].astype(np.int64))
        (a, b), (of_a, of_b) = block.both(block.instances), block.both(copies)
        copy = ((of_a == b) & (of_a != 0)) | ((of_b == a) & (of_b != 0))
        of_class = block.equal(block.classes) & (block.both(block.classes)[0] != 0)
        kind = np.select([block.same.numpy(), copy.numpy(), of_class.numpy()], [0, 1, 2], 3)
        place, size = block.image.numpy() * n + kind, len(block.valid) * n
        p = probe.logits(block).double().sigmoid().numpy()
        sums[images, :n] = np.bincount(place, minlength=size).reshape(-1, n)
        sums[images, n:] = np.bincount(place, p, size).reshape(-1, n)
    return by.rows(
        {("cross_score", at): (sums[:, n + i], sums[:, i]) for i, at in enumerate(KINDS)}
    )


def transfers(probe: FittedScorer, tests: Mapping[str, PairData], by: Bootstrap) -> list[Row]:
    """Apply the probe of a layer to the tokens of all layers."""
    rows: list[Row] = []
    for layer, data in tests.items():
        won, couples = tally(probe, PatchPairs(data)).sums["auc_within"][:, 0].T
        there = couples > 0
        rows += by.rows({("transfer_auc", layer): (won[there], couples[there])})
    return rows


@dataclass(frozen=True)
class BilinearScorer(Scorer):
    """g = x' W y + b of the first half of a token and the second half of another one."""

    matrix: Tensor
    bias: Tensor

    def logits(self, block: PairBlock) -> Tensor:
        """Return logits (P,); the first half is that of the first patch."""
        first, second = block.x.chunk(2, -1)
        return block.packed(torch.bmm(first @ self.matrix, second.mT)) + self.bias


def in_two_layers(first: PairData, second: PairData) -> PairData:
    """Return patches whose tokens are those of two layers, one after the other."""
    tokens = [whole(data.tokens)[:, : data.valid.shape[1]] for data in (first, second)]
    return replace(first, tokens=ArrayRows(np.concatenate(tokens, -1)))


def across_layers(
    first: Sequence[PairData], second: Sequence[PairData], layer: str, by: Bootstrap
) -> list[Row]:
    """Fit and measure a bilinear probe of two layers, of which `layer` names the second."""
    train, val, test = map(in_two_layers, first, second)
    weights = train_form("bilinear", FitTask(train, val)).weights
    scorer = BilinearScorer(weights["matrix"].float(), weights["bias"].float())
    right, pairs = tally(scorer, PatchPairs(test)).sums["accuracy"][:, 0].T
    there = pairs > 0
    return by.rows({("cross_layer_accuracy", layer): (right[there], pairs[there])})


STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the ridge, in mean variances of a dimension


def positions_decoded(
    patches: Sequence[PairData], scaling: Standardiser, by: Bootstrap
) -> list[Row]:
    """Read row and column from tokens by ridge regression, its strength chosen on validation.

    `patches`: of train, val and test.
    """
    splits = [PatchPairs(split, scaling) for split in patches]
    read_outs = ridge(
        (block.x[block.valid], block.positions[block.valid]) for block in splits[0].blocks()
    )
    best = min(read_outs, key=lambda read_out: float(_errors(splits[1], read_out)[:, 1].sum()))
    sums = _errors(splits[2], best)
    sums = sums[sums[:, 0] > 0]
    means = by.drawn(sums)
    # Of rows and columns together: squares about the mean of the patches that were drawn.
    spread = means[:, 4] + means[:, 5] - (means[:, 2] ** 2 + means[:, 3] ** 2) / means[:, 0]
    return [estimate("position_r2", 1 - means[:, 1] / spread, n=len(sums))]


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
    solutions = []
    for strength in STRENGTHS:
        weights = torch.linalg.solve(gram + strength * unit, pulled).float()
        solutions.append((weights[:d], weights[d]))
    return solutions


def _errors(pairs: PatchPairs, read_out: tuple[torch.Tensor, torch.Tensor]) -> Doubles:
    """Return of each image patches, squared errors, sums of rows and columns, of their squares."""
    parts = []
    for block in pairs.blocks():
        decoded = block.x @ read_out[0] + read_out[1]
        here = block.positions
        valid = block.valid.double()
        squares = (decoded - here).square().sum(-1) * valid
        sums = torch.stack([valid.sum(1), squares.sum(1)], 1)
        moments = [(here.double() ** k * valid[..., None]).sum(1) for k in (1, 2)]
        parts.append(torch.cat([sums, *moments], 1).numpy())
    return np.concatenate(parts)


@flushed()
@torch.no_grad()
def measured_rows(
    layers: Mapping[str, Sequence[PairData]],
    probes: Mapping[str, FittedScorer],
    copy_of: NDArray[Any],
    by: Bootstrap,
    checkpoints: Checkpoints | None = None,
    cross_layers: Sequence[tuple[str, str]] = (),
) -> list[Row]:
    """Return the rows of all layers, without names and keys.

    `layers`: patches of train, val and test by layer; `probes`: those that were fitted to them.
    `copy_of` (n, M), or of more patches: the exact copy of the object of a patch of test, 0 = none.
    `cross_layers`: pairs of layers that a bilinear probe compares.
    """
    tests = {layer: splits[-1] for layer, splits in layers.items()}
    width = next(iter(tests.values())).valid.shape[1]

    def measure(part: tuple[str, str]) -> SavedState:
        layer, what = part
        probe, test = probes[layer], tests[layer]
        if what == "scores":
            rows = cross_scores(probe, test, copy_of[:, :width], by)
        elif what == "transfer":
            rows = transfers(probe, tests, by)
            for first, second in cross_layers:
                if first == layer:
                    rows += across_layers(layers[first], layers[second], second, by)
        else:
            rows = positions_decoded(layers[layer], probe.scaling, by)
        return {}, {"rows": rows}

    parts = [*product(tests, ("scores", "positions", "transfer"))]
    states = each(checkpoints, parts, measure)
    return [
        {"layer": layer, **line}
        for (layer, _), (_, state) in zip(parts, states, strict=True)
        for line in state["rows"]
    ]
