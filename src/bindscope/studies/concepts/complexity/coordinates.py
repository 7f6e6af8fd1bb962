"""Sums and products of numbers of values, fitted to each dimension of an embedding by itself.

Without a linear map behind them, the dimensions of `additive`, `per_object` and `global` have
nothing in common: each is a small fit, and all advance at once in the columns of one L-BFGS.  A
product has local minima, so that each dimension is fitted from several starts, of which the one
with the least penalised loss on training scenes is kept.  Where a product does not hold, what it
says of objects it has not seen is far off unless a ridge holds it back: where there are validation
scenes, each dimension has its best ridge and start by these as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bindscope.fitting.lbfgs import descend
from bindscope.studies.concepts.complexity.fitted import Fitted
from bindscope.studies.concepts.complexity.models import combined
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.least_squares import value_columns
from bindscope.studies.concepts.scenes import Floats, Scenes

TOLERANCE = 1e-6  # of the loss, in variances of the embedding


@dataclass(frozen=True)
class Starts:
    """From where fits start, and how long they go on.

    Attributes
    ----------
    number
        Starts of each dimension. In every other one, factors of products are about 1, not about 0.
    size
        Standard deviation of the first numbers.
    ridges
        Half of each times the sum of their squares is added to the mean square of the error, in
        variances of the embedding. Without validation scenes the first counts alone.
    iterations
        Most iterations.
    """

    number: int = 8
    size: float = 0.1
    ridges: tuple[float, ...] = (1e-4, 1e-2, 1e-1)
    iterations: int = 200


class _Errors:
    """Mean square of the error per column, with its gradient: an `Objective` of L-BFGS."""

    def __init__(
        self, columns: Tensor, targets: Tensor, terms: Sequence[str], n_slots: int, rows: int
    ) -> None:
        self.columns, self.targets = columns, targets
        self.terms, self.n_slots, self.rows = tuple(terms), n_slots, rows
        self.ridge = torch.zeros(1, 1)

    def predict(self, w: Tensor, columns: Tensor) -> Tensor:
        """Return predictions (n, columns of w)."""
        out = w[-1:]
        for i, term in enumerate(self.terms):
            table = w[i * self.rows : (i + 1) * self.rows]
            out = out + combined(term, table[columns], self.n_slots)
        return out

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = w.detach().requires_grad_()
            loss = (self.predict(leaf, self.columns) - self.targets).square().mean(0)
            (slope,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), slope

    def aim(self, w: Tensor, direction: Tensor) -> None:
        self.w, self.direction = w, direction

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        loss, self.slope = self.begin(self.w + t * self.direction)
        return loss, (self.slope * self.direction).sum(0)

    def arrive(self, t: Tensor) -> Tensor:
        del t  # the gradient is that of the last trial
        return self.slope

    def keep(self, index: Tensor) -> None:
        self.targets = self.targets[:, index]

    def precondition(self, g: Tensor) -> Tensor:
        return g * (self.rows / self.columns.shape[1])  # how seldom a value is there


def fit_coordinates(
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    terms: Sequence[str],
    starts: Starts,
    seed: int = 0,
    device: str = "cpu",
) -> Fitted:
    """Fit sums and products, of `models.TERMS`, to the training scenes of a split.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    split
        Training and validation scenes.
    terms
        Which are added.
    starts
        From where, and how long.
    seed
        Of the starts.
    device
        Where they are fitted.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    values = torch.from_numpy(np.asarray(z, np.float32)).to(device)
    mean = values[split.train].mean(0)
    scale = (values[split.train] - mean).square().mean().sqrt().clamp_min(1e-12)
    targets, dim = (values - mean) / scale, values.shape[1]
    rows = scenes.n_slots * sum(scenes.sizes)
    first = _first(terms, rows, dim, starts, seed).to(device)
    predicted, penalised, decrements = [], [], []
    for ridge in starts.ridges if len(split.validation) else starts.ridges[:1]:
        repeated = targets[split.train].repeat(1, starts.number)
        errors = _Errors(columns[split.train], repeated, terms, scenes.n_slots, rows)
        errors.ridge = torch.full((1, 1), ridge, device=values.device)
        found = descend(errors, first, iterations=starts.iterations, tolerance=TOLERANCE)
        with torch.no_grad():
            predicted.append(errors.predict(found.w, columns).view(len(values), -1, dim))
        penalised.append(ridge / 2 * found.w.square().sum(0).view(-1, dim))
        decrements.append(found.decrement.view(-1, dim))
    return _chosen(
        torch.cat(predicted, dim=1),
        torch.cat(penalised),
        torch.cat(decrements),
        (values, mean, scale),
        split,
        starts.number,
        len(first),
    )


def _chosen(
    predicted: Tensor,
    penalty: Tensor,
    decrements: Tensor,
    scaling: tuple[Tensor, Tensor, Tensor],
    split: ObjectSplit,
    starts: int,
    parameters: int,
) -> Fitted:
    """Choose a fit of each dimension, of `predicted` (n, fits, d); the first ridge's come first."""
    values, mean, scale = scaling
    dim = len(mean)
    error = (predicted - ((values - mean) / scale)[:, None]).square()
    loss = error[split.train].mean(0)
    final = (loss + penalty)[:starts].argmin(0)
    chosen = error[split.validation].mean(0).argmin(0) if len(split.validation) else final
    every = torch.arange(dim, device=values.device)
    ended = decrements[final, every] <= 10 * TOLERANCE
    return Fitted(
        (predicted[:, chosen, every] * scale + mean)[None].cpu().numpy(),
        "validation" if len(split.validation) else "final",
        losses=loss[chosen, every].mean()[None, None].double().cpu().numpy(),
        parameters=parameters * dim,
        ended=[bool(ended.float().mean() >= 0.95)],
    )


def _first(terms: Sequence[str], rows: int, dim: int, starts: Starts, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(terms) * rows + 1, starts.number, dim)
    first = starts.size * torch.randn(shape, generator=generator)
    for i, term in enumerate(terms):
        if term != "additive":
            first[i * rows : (i + 1) * rows, 1::2] += 1
    return first.flatten(1)
