"""Scorer that knows where two patches are and nothing else.

All pairs at the same two places have the same logit, so they are counted once for all: a fit reads
no pair, however many images there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.lbfgs import Evaluated, Objective
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import LN2, Fitted, Task
from bindscope.studies.same_object.scorers.convex import (
    FormScorer,
    Optimum,
    follow,
    optimum_columns,
    start,
)
from bindscope.studies.same_object.scorers.forms import BOUND

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import PositionScorer

LEAST = 1e-8  # curvature that a weight is taken to have


@dataclass(frozen=True)
class Places:
    """g = t(|rows apart|, |columns apart|) + u(place) + u(other place) + b; weights [t; u; b].

    Attributes
    ----------
    grid
        Rows and columns of the patch grid.
    """

    grid: tuple[int, int]

    @property
    def cells(self) -> int:
        """Number of places."""
        return self.grid[0] * self.grid[1]

    @property
    def size(self) -> int:
        """Number of weights."""
        return 2 * self.cells + 1

    def places(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the places of the first and the second patches, int64 (P,) each."""
        by = block.positions.new_tensor([self.grid[1], 1])
        first, second = block.both((block.positions * by).sum(-1).long())
        return first, second

    def used(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return which weights two places use beside b: int64 (P,) each."""
        columns = self.grid[1]
        rows = (torch.div(first, columns, rounding_mode="floor")
                - torch.div(second, columns, rounding_mode="floor")).abs()  # fmt: skip
        offset = rows * columns + (first % columns - second % columns).abs()
        return offset, self.cells + first, self.cells + second

    def values(self, theta: Tensor, used: tuple[Tensor, ...]) -> Tensor:
        """Return logits (P,) at weights (p,)."""
        return self.tabled(theta, used) + theta[-1]

    def tabled(self, theta: Tensor, used: tuple[Tensor, ...]) -> Tensor:
        """Return the sums (P,) of what weights [t; u; ...] say of two places."""
        offset, first, second = used
        return theta[offset] + theta[first] + theta[second]

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return the logits of a block's pairs, (P,)."""
        return self.values(theta, self.used(*self.places(block)))


@dataclass(frozen=True)
class Counts:
    """The pairs of a split by their two places, where there are any.

    Attributes
    ----------
    used
        Which weights each couple of places uses.
    pairs, same
        Number of pairs there, and of those of the same object, float64 (K,).
    """

    used: tuple[Tensor, Tensor, Tensor]
    pairs: Tensor
    same: Tensor

    @classmethod
    def of(cls, form: Places, pairs: Pairs) -> Counts:
        """Count the pairs of a split."""
        both = torch.zeros(2, form.cells**2, dtype=torch.int64, device=pairs.device)
        for block in pairs.blocks():
            first, second = form.places(block)
            place = first * form.cells + second
            both[0] += torch.bincount(place, minlength=form.cells**2)
            both[1] += torch.bincount(place[block.same], minlength=form.cells**2)
        there = both[0].nonzero().squeeze(1)
        first = torch.div(there, form.cells, rounding_mode="floor")
        counts = both[:, there].double()
        return cls(form.used(first, there % form.cells), counts[0], counts[1])

    def loss(self, logits: Tensor) -> Tensor:
        """Return the mean loss in nats at logits (K,)."""
        return (self.pairs * softplus(logits) - self.same * logits).sum() / self.pairs.sum()

    def curvature(self, size: int) -> Tensor:
        """Return how much the loss may curve along each weight (p,), float64."""
        return BOUND * pulled(self.pairs / self.pairs.sum(), self.used, size)


def pulled(values: Tensor, used: tuple[Tensor, ...], size: int) -> Tensor:
    """Return the sums (p,) of values (P,) over what uses a weight; of the last one, b, over all."""
    out = values.new_zeros(size)
    for index in used:
        out.index_add_(0, index, values)
    out[-1] = values.sum()
    return out


class _Loss(Evaluated):
    """Mean loss in nats of counted pairs at weights centre + delta."""

    def __init__(self, form: Places, counts: Counts, centre: Tensor, l2: float) -> None:
        ridge = torch.full((form.size, 1), l2, device=centre.device)
        ridge[-1] = 0.0
        super().__init__(ridge)
        self.form, self.counts, self.centre = form, counts, centre
        curvature = counts.curvature(form.size).float()[:, None] + ridge
        self.curvature = curvature.clamp_min(LEAST)

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss (1,) and its gradient (p, 1)."""
        counts, theta = self.counts, (self.centre + w[:, 0]).double()
        logits = self.form.values(theta, counts.used)
        residuals = (counts.pairs * logits.sigmoid() - counts.same) / counts.pairs.sum()
        slope = pulled(residuals, counts.used, self.form.size)
        return counts.loss(logits)[None], slope.to(w.dtype)[:, None]

    def precondition(self, g: Tensor) -> Tensor:
        """Divide by the diagonal."""
        return g / self.curvature


@dataclass(frozen=True)
class PlacesProblem:
    """A `convex.Problem`: the form of places on counts of train and validation."""

    form: Places
    train: Counts
    val: Counts

    def objective(self, centre: Tensor, l2: float) -> Objective:
        """Return the mean loss of train's pairs."""
        return _Loss(self.form, self.train, centre, l2)

    def losses(self, theta: Tensor) -> tuple[float, float]:
        """Return the mean losses of pairs in bits."""
        train, val = (
            float(counts.loss(self.form.values(theta.double(), counts.used))) / LN2
            for counts in (self.train, self.val)
        )
        return train, val


def optimum(problem: PlacesProblem, train: Pairs, l2: Sequence[float], steps: int) -> Optimum:
    """Fit the form of places, from the constant of train's share of pairs of the same object."""
    constant = start(problem.form.size, train)
    contained = Optimum(constant, *problem.losses(constant))
    return follow(problem, contained, constant, l2, steps)


def fit(config: PositionScorer, task: Task) -> list[Fitted]:
    """Fit the scorer of places."""
    pairs = task.pairs(None)
    form = Places(task.train.grid)
    problem = PlacesProblem(form, *(Counts.of(form, split) for split in pairs))
    found = optimum(problem, pairs[0], config.l2, config.steps)
    theta = found.theta.cpu().numpy()
    named = {
        "offsets": theta[: form.cells], "places": theta[form.cells : -1], "bias": theta[-1:],
    }  # fmt: skip
    return [
        Fitted(
            FormScorer(form, found.theta),
            columns=optimum_columns(found),
            weights=named,
            history=found.history,
        )
    ]
