"""Scorer that knows where two patches are and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.convex import (
    FormScorer,
    PairProblem,
    follow,
    optimum_columns,
    start,
)
from bindscope.studies.same_object.scorers.forms import BOUND

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import PositionScorer


@dataclass(frozen=True)
class Places:
    """g = t(|rows apart|, |columns apart|) + u(place) + u(other place) + b; weights [t; u; b].

    Attributes
    ----------
    grid
        Rows and columns of the patch grid.
    curvature
        About the diagonal of the loss's Hessian, (p,).
    """

    grid: tuple[int, int]
    curvature: Tensor

    @classmethod
    def of(cls, pairs: Pairs) -> Places:
        """Count the pairs of a split."""
        rows, columns = pairs.data.grid
        empty = cls(pairs.data.grid, torch.zeros(2 * rows * columns + 1))
        total = empty.curvature.double().to(pairs.device)
        for block in pairs.blocks():
            ones = torch.ones(len(block.index), device=pairs.device)
            total = total + empty.slope(ones, block).double()
        return cls(pairs.data.grid, (BOUND * total / max(pairs.data.n_pairs, 1)).float())

    @property
    def size(self) -> int:
        """Number of weights."""
        return 2 * self.grid[0] * self.grid[1] + 1

    def penalised(self) -> Tensor:
        """All weights but b."""
        ones = torch.ones_like(self.curvature)
        ones[-1] = 0.0
        return ones

    def _used(self, block: Block) -> tuple[Tensor, Tensor, Tensor]:
        """Return which weights a pair uses: its offset and two places, int64 (P,) each."""
        rows, columns = self.grid
        places = (block.positions * block.positions.new_tensor([columns, 1])).sum(-1).long()
        first, second = block.both(places + rows * columns)
        a, b = block.both(block.positions)
        apart = (a - b).abs()
        return (apart[:, 0] * columns + apart[:, 1]).long(), first, second

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return logits (P,)."""
        offset, first, second = self._used(block)
        return theta[offset] + theta[first] + theta[second] + theta[-1]

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return the gradient of the sum of residuals times logits."""
        out = residuals.new_zeros(self.size)
        for used in self._used(block):
            out.index_add_(0, used, residuals)
        out[-1] = residuals.sum()
        return out

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Divide by the diagonal."""
        return gradient / (self.curvature + l2 * self.penalised()).clamp_min(1e-8)


def fit(config: PositionScorer, task: Task) -> list[Fitted]:
    """Fit the scorer of places."""
    pairs = task.pairs(None)
    form = Places.of(pairs[0])
    problem, constant = PairProblem(form, pairs), start(form.size, pairs[0])
    contained = problem.at(constant)
    found = follow(problem, contained, constant, config.l2, config.steps)
    n = form.grid[0] * form.grid[1]
    theta = found.theta.cpu().numpy()
    named = {"offsets": theta[:n], "places": theta[n:-1], "bias": theta[-1:]}
    return [
        Fitted(
            FormScorer(form, found.theta),
            columns=optimum_columns(found),
            weights=named,
            history=found.history,
        )
    ]
