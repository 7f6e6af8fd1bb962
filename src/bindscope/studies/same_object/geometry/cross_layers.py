"""One probe across two layers: moved from one to the other, and fitted to both at once.

The fit is x' W y + a.x + c.y + b, W not symmetric, x of a patch in one layer and y of another patch
in the other, over ordered pairs i != j; so its optimum for layers (b, a) is that for (a, b) with W
transposed and a, c exchanged. Convex, and fitted along the path of `scorers.convex`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.lbfgs import Evaluated
from bindscope.studies.same_object.data import PairData, Pairs
from bindscope.studies.same_object.geometry.estimates import Bootstrap, Row, coarse_edges, counted
from bindscope.studies.same_object.geometry.scored import Labels, QuadraticWeights
from bindscope.studies.same_object.scorers.base import LN2
from bindscope.studies.same_object.scorers.convex import Optimum, follow
from bindscope.studies.same_object.scorers.forms import BOUND, decomposed, solved

STRENGTHS = (0.1, 0.01)
NO_FIT = "cross_images is 0: nothing was fitted"


def transfers(
    weights: Mapping[str, QuadraticWeights],
    tests: Mapping[str, PairData],
    labels: Labels,
    by: Bootstrap,
) -> dict[str, list[Row]]:
    """Apply the probe of each layer to the tokens of all layers; rows by the probe's layer."""
    found: dict[str, list[Row]] = {}
    for layer, probe in weights.items():
        found[layer] = []
        for other, data in tests.items():
            for name, scaling in (
                ("transfer_auc", None),
                ("transfer_rescaled_auc", weights[other].scaling),
            ):
                scores = probe.of_tokens(data, scaling)
                found[layer] += by.areas({(name, other): _counted(scores, labels)})
    return found


def _counted(scores: NDArray[np.float32], labels: Labels) -> NDArray[np.float32]:
    return counted(scores, labels.same, labels.pairs, coarse_edges(scores[labels.pairs]))


@dataclass(frozen=True)
class TwoLayers:
    """Patches of images in two layers, and their ordered pairs.

    Attributes
    ----------
    x, y
        float32 (n, M, d): tokens, scaled, in the one and in the other layer.
    pairs
        bool (n, M, M): ordered pairs i != j of valid patches.
    same
        bool (n, M, M): whether they are of one object.
    """

    x: Tensor
    y: Tensor
    pairs: Tensor
    same: Tensor

    @cached_property
    def sign(self) -> Tensor:
        """-1 for pairs of one object and 1 for others, (P,)."""
        return 1.0 - 2.0 * self.same[self.pairs].float()

    @property
    def dim(self) -> int:
        """Numbers of a token."""
        return self.x.shape[2]

    def scores(self, theta: Tensor) -> Tensor:
        """Return logits (n, M, M) at weights [W; a; c; b] (d^2 + 2 d + 1,)."""
        d = self.dim
        matrix, a, c = theta[: d * d].view(d, d), theta[d * d : -d - 1], theta[-d - 1 : -1]
        products = torch.bmm(self.x @ matrix, self.y.transpose(1, 2))
        return products + (self.x @ a)[:, :, None] + (self.y @ c)[:, None, :] + theta[-1]

    def slope(self, residuals: Tensor) -> Tensor:
        """Return the gradient of the sum of residuals (n, M, M) times logits."""
        d = self.dim
        matrix = self.x.reshape(-1, d).t() @ torch.bmm(residuals, self.y).view(-1, d)
        a = self.x.reshape(-1, d).t() @ residuals.sum(2).view(-1)
        c = self.y.reshape(-1, d).t() @ residuals.sum(1).view(-1)
        return torch.cat([matrix.view(-1), a, c, residuals.sum()[None]])

    def loss(self, theta: Tensor) -> float:
        """Return the mean loss of the pairs in bits."""
        margins = self.scores(theta)[self.pairs] * self.sign
        return float(softplus(margins).mean(dtype=torch.float64)) / LN2


class _Objective(Evaluated):
    """The mean loss of train in nats at weights centre + delta."""

    def __init__(self, problem: CrossProblem, centre: Tensor, l2: float) -> None:
        ridge = torch.full((len(centre), 1), l2)
        ridge[-1] = 0.0
        super().__init__(ridge)
        self.problem, self.centre, self.l2 = problem, centre, l2

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        train = self.problem.train
        scores = self.problem.train.scores(self.centre + w[:, 0])
        margins = scores[train.pairs] * train.sign
        residuals = torch.zeros_like(scores)
        residuals[train.pairs] = margins.sigmoid() * train.sign / len(margins)
        loss = softplus(margins).mean(dtype=torch.float64)
        return loss[None], train.slope(residuals)[:, None]

    def precondition(self, g: Tensor) -> Tensor:
        (s, p), (t, q) = self.problem.spectra
        d = len(s)
        inner = p.t() @ g[: d * d, 0].view(d, d) @ q
        inner /= BOUND * s[:, None] * t + self.l2
        a = solved((s, p), BOUND, self.l2, g[d * d : -d - 1, 0])
        c = solved((t, q), BOUND, self.l2, g[-d - 1 : -1, 0])
        return torch.cat([(p @ inner @ q.t()).view(-1), a, c, g[-1:, 0] / BOUND])[:, None]


@dataclass(frozen=True)
class CrossProblem:
    """The loss of train, and that of validation, which chooses the ridge."""

    train: TwoLayers
    val: TwoLayers

    @cached_property
    def spectra(self) -> list[tuple[Tensor, Tensor]]:
        """Eigenvalues and vectors of the covariances of train's tokens in both layers."""
        n = max(int(self.train.pairs.any(2).sum()), 1)
        flat = [x.reshape(-1, self.train.dim).double() for x in (self.train.x, self.train.y)]
        return [decomposed(x.t() @ x / n) for x in flat]

    def objective(self, centre: Tensor, l2: float) -> _Objective:
        """Return the loss of train at weights centre + delta, with a ridge on delta."""
        return _Objective(self, centre, l2)

    def losses(self, theta: Tensor) -> tuple[float, float]:
        """Return the mean losses of train and validation in bits."""
        return self.train.loss(theta), self.val.loss(theta)

    def fitted(self, iterations: int) -> Optimum:
        """Fit from the constant of train."""
        share = (self.train.sign < 0).double().mean().clamp(1e-6, 1 - 1e-6)
        centre = torch.zeros(self.train.dim**2 + 2 * self.train.dim + 1)
        centre[-1] = torch.logit(share)
        constant = Optimum(centre, *self.losses(centre))
        return follow(self, constant, centre, STRENGTHS, iterations)


Splits = Mapping[str, PairData]


def fitted_across(
    splits: Mapping[str, Splits],
    weights: Mapping[str, QuadraticWeights],
    labels: Labels,
    images: int,
    iterations: int,
    by: Bootstrap,
) -> dict[str, list[Row]]:
    """Fit every pair of layers, and measure it on test; rows by the first layer.

    Parameters
    ----------
    splits
        Split -> layer -> patches.
    weights
        The probe of each layer, whose scaling is used.
    labels
        Of test.
    images, iterations
        Images of train and of validation, and iterations of a ridge strength, at most.
    """
    layers = list(weights)
    read = {
        split: {layer: _tokens(data, weights[layer], images if split != "test" else None)
                for layer, data in by_layer.items()}
        for split, by_layer in splits.items()
    }  # fmt: skip
    found: dict[str, list[Row]] = {layer: [] for layer in layers}
    for a, b in combinations_with_replacement(layers, 2):
        here = [
            TwoLayers(read[split][a], read[split][b], *_ordered(data[a], len(read[split][a])))
            for split, data in splits.items()
        ]
        train, val, test = here
        optimum = CrossProblem(train, val).fitted(iterations)
        scores = test.scores(optimum.theta)
        # Test asks about both orders of a pair; scores of both are put together.
        both = ((scores + scores.transpose(1, 2)) / 2).numpy()
        flag = "" if optimum.ended else "the fit had not ended"
        rows = [by.areas({("cross_auc", at): _counted(both, labels)})[0] for at in (b, a)]
        for layer, one in zip((a, b), rows[: 1 + (a != b)], strict=False):
            found[layer].append({**one, "reason": one["reason"] or flag})
    return found


def _tokens(data: PairData, probe: QuadraticWeights, images: int | None) -> Tensor:
    stop = min(images or data.n_images, data.n_images)
    return Pairs(data, probe.scaling, probe.norm).read(0, stop).x


def _ordered(data: PairData, images: int) -> Sequence[Tensor]:
    valid = torch.from_numpy(data.valid[:images])
    instances = torch.from_numpy(data.instances[:images].astype(np.int64))
    pairs = valid[:, :, None] & valid[:, None, :]
    pairs &= ~torch.eye(valid.shape[1], dtype=torch.bool)
    same = instances[:, :, None] == instances[:, None, :]
    if data.background != "object":
        same &= (instances != 0)[:, :, None]
    return pairs, same & pairs
