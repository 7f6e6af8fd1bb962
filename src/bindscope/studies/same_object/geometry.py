"""What a fitted probe's scores, and the tokens it reads, are like, layer by layer.

Scores by kind of pair, and on tokens of other layers (arXiv 2510.24709, section 4.2 and Fig. 5:
from some layer on, two identical objects, and then all of a class, are said to be one; the paper
has pictures, these are the means by layer). Whether tokens are at their places: how well row and
column are decoded from them.

Differences of the tokens of an object and its exact copy (Fig. 6): the paper's image holds four
identical cars, and the differences of each to the first one make three clusters in the plane of the
first components. Scenes of `clutter` hold one copy each, so clusters are of three scenes. That
clusters are apart says that the difference is that of the two objects and not of their patches;
places alone do that too, hence layer 0 and the shuffle of patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.array_types import Doubles
from bindscope.fitting.checkpoint import Checkpoints, SavedState, each
from bindscope.fitting.denormals import flushed
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows, whole
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.estimates import Bootstrap, column_ratio, row
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
        sums, {("cross_score", at): column_ratio(n + i, i) for i, at in enumerate(KINDS)}
    )


def transfers(probe: FittedScorer, tests: Mapping[str, PairData], by: Bootstrap) -> list[Row]:
    """Apply the probe of a layer to the tokens of all layers."""
    rows: list[Row] = []
    for layer, data in tests.items():
        won = tally(probe, PatchPairs(data)).sums["auc_within"][:, 0]
        rows += by.rows(won[won[:, 1] > 0], {("transfer_auc", layer): column_ratio(0, 1)})
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
    right = tally(scorer, PatchPairs(test)).sums["accuracy"][:, 0]
    statistics = {("cross_layer_accuracy", layer): column_ratio(0, 1)}
    return by.rows(right[right[:, 1] > 0], statistics)


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

    def r2(means: Doubles) -> Doubles:
        # Of rows and columns together: squares about the mean of the patches that were drawn.
        spread = means[:, 4] + means[:, 5] - (means[:, 2] ** 2 + means[:, 3] ** 2) / means[:, 0]
        return 1 - means[:, 1] / spread

    return by.rows(sums, {("position_r2", ""): r2})


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


PATCHES = 3  # of an object, at least: one is left out, and two say how they scatter
SCENES = 3  # of a PCA
GROUPS = 200  # PCAs, at most
DEALS = 5  # of the scenes, at random, for the level of chance
COMPONENTS = 3
RIDGE = 1e-3  # of the scatter inside the scenes, in shares of its mean
NO_COPIES = (
    f"fewer than {SCENES} test scenes have an exact copy of which {PATCHES} patches are sampled at "
    "the same places"
)


def matched(
    positions: NDArray[Any], instances: NDArray[Any], copy_of: NDArray[Any], purity: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Match the patches of an object and its exact copy among the valid ones of an image.

    The copy lies whole patches away, so a displacement of the grid takes all patches of one to
    those of the other; it is the one under which most of them meet.

    Returns: numbers (k,) of patches of the object, and of those of its copy at the same places;
    empty where there is no copy, or more than one displacement.
    """
    nothing = np.zeros(0, np.intp)
    numbers = np.unique(instances[copy_of > instances])
    if not len(numbers):
        return nothing, nothing
    first = np.flatnonzero(instances == numbers[0])
    second = np.flatnonzero(instances == copy_of[first[0]])
    i, j = (part.ravel() for part in np.meshgrid(first, second, indexing="ij"))
    alike = np.abs(purity[i] - purity[j]) < 1e-6  # copies fall on the grid in the same way
    i, j = i[alike], j[alike]
    if not len(i):
        return nothing, nothing
    _, which, counts = np.unique(
        positions[j] - positions[i], axis=0, return_inverse=True, return_counts=True
    )
    most = counts == counts.max()
    if most.sum() > 1:
        return nothing, nothing
    chosen = which.ravel() == most.argmax()
    return i[chosen], j[chosen]


def separability(points: Doubles, groups: NDArray[np.integer]) -> float:
    """Return how often a discriminant names the group of a point (k, c) that was left out."""
    right = 0
    names = np.unique(groups)
    for i in range(len(points)):
        others = np.arange(len(points)) != i
        centres = np.array([points[others & (groups == name)].mean(0) for name in names])
        inside = points[others] - centres[np.searchsorted(names, groups[others])]
        scatter = inside.T @ inside / others.sum()
        scatter += np.eye(len(scatter)) * (RIDGE * np.trace(scatter) / len(scatter) + 1e-12)
        away = points[i] - centres
        distances = (away * np.linalg.solve(scatter, away.T).T).sum(1)
        right += int(names[distances.argmin()] == groups[i])
    return right / len(points)


def of_group(differences: list[Doubles]) -> tuple[float, float]:
    """Return separability in the first components of three scenes' differences (k, d), and chance.

    Chance is separability where scenes are dealt out at random. It can be less than a third: a
    point that is left out takes its scene's centre away from itself.
    """
    stacked = np.concatenate(differences)
    centred = stacked - stacked.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    groups = np.repeat(np.arange(len(differences)), [len(part) for part in differences])
    points = (u * s)[:, :COMPONENTS]
    orders = (rng(i, 19).permutation(len(groups)) for i in range(DEALS))
    chance = float(np.mean([separability(points, groups[order]) for order in orders]))
    return separability(points, groups), chance


def _differences(
    tokens: NDArray[Any], labels: PairData, copy_of: NDArray[Any], purity: NDArray[Any]
) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield differences (k, d) of each scene with a copy, as they are and shuffled."""
    for i, valid in enumerate(labels.valid):
        of_image = [
            part[i][valid] for part in (labels.positions, labels.instances, copy_of, purity)
        ]
        first, second = matched(*of_image)
        if len(first) < PATCHES:
            continue
        x = tokens[i][valid].astype(np.float64)
        order = rng(i, 17).permutation(len(second))
        yield x[second] - x[first], x[second[order]] - x[first]


def residuals(
    tokens: NDArray[Any],
    labels: PairData,
    copy_of: NDArray[Any],
    purity: NDArray[Any],
    by: Bootstrap,
) -> list[Row]:
    """Return whether copies minus originals, of raw tokens (n, M, d), cluster.

    Intervals are over groups of scenes.
    """
    scenes = list(_differences(tokens, labels, copy_of, purity))
    names = ("residual_separability", "residual_separability_shuffled", "residual_chance")
    groups = [scenes[i : i + SCENES] for i in range(0, len(scenes) - SCENES + 1, SCENES)]
    if not groups:
        return [row(name, None, reason=NO_COPIES) for name in names]
    sums = []
    for group in groups[:GROUPS]:
        apart, chance = of_group([plain for plain, _ in group])
        shuffled, _ = of_group([moved for _, moved in group])
        sums.append([apart, shuffled, chance])
    return by.rows(
        np.array(sums), {(name, ""): itemgetter((..., i)) for i, name in enumerate(names)}
    )


@flushed()
@torch.no_grad()
def measured_rows(
    layers: Mapping[str, Sequence[PairData]],
    probes: Mapping[str, FittedScorer],
    beside: Mapping[str, NDArray[Any]],
    by: Bootstrap,
    checkpoints: Checkpoints | None = None,
    cross_layers: Sequence[tuple[str, str]] = (),
) -> list[Row]:
    """Return the rows of all layers, without names and keys.

    `layers`: patches of train, val and test by layer; `probes`: those that were fitted to them.
    `beside`: `copy_of` and `purity` of the patches of test, (n, M) each, or more patches.
    `cross_layers`: pairs of layers that a bilinear probe compares.
    """
    tests = {layer: splits[-1] for layer, splits in layers.items()}
    width = next(iter(tests.values())).valid.shape[1]
    copy_of, purity = (beside[name][:, :width] for name in ("copy_of", "purity"))

    def measure(part: tuple[str, str]) -> SavedState:
        layer, what = part
        probe, test = probes[layer], tests[layer]
        if what == "scores":
            rows = cross_scores(probe, test, copy_of, by)
        elif what == "transfer":
            rows = transfers(probe, tests, by)
            for first, second in cross_layers:
                if first == layer:
                    rows += across_layers(layers[first], layers[second], second, by)
        else:
            rows = positions_decoded(layers[layer], probe.scaling, by)
            raw = np.concatenate([block.x.numpy() for block in PatchPairs(test).blocks()])
            rows += residuals(raw, test, copy_of, purity, by)
        return {}, {"rows": rows}

    parts = [*product(tests, ("scores", "tokens", "transfer"))]
    states = each(checkpoints, parts, measure)
    return [
        {"layer": layer, **line}
        for (layer, _), (_, state) in zip(parts, states, strict=True)
        for line in state["rows"]
    ]
