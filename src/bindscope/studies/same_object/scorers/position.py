"""Scorer that knows where two patches are and nothing else.

All pairs at the same two places have the same logit, so they are counted once for all: a fit reads
no pair, however many images there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.same_object.data import Block, PairData, Pairs
from bindscope.studies.same_object.probes_config import PositionScorer
from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.convex import (
    Optimum,
    PairProblem,
    fitted_form,
    follow,
    start,
)
from bindscope.studies.same_object.scorers.forms import BOUND, Form

Used = tuple[Tensor, Tensor, Tensor]
LEAST = 1e-8  # curvature that a weight is taken to have


@dataclass(frozen=True)
class Couples:
    """Two places with any pairs: those of the same object, and then those of others."""

    used: Used  # which weights each couple of places uses
    # -1 and 1, and how many pairs there are, float64 (K,).
    sign: Tensor
    weights: Tensor

    def counted(self, values: Tensor) -> Tensor:
        """Return values (K,) times how many pairs each stands for."""
        return values * self.weights


@dataclass(frozen=True)
class Table:
    """t(|rows apart|, |columns apart|) + u(place) + u(other place); weights [t; u]."""

    grid: tuple[int, int]  # rows and columns of the patch grid
    curvature: Tensor  # how much the loss of train may curve along each weight, (p,)
    name = "table"

    @property
    def shape(self) -> tuple[int]:
        """Two weights for each place."""
        return (2 * self.grid[0] * self.grid[1],)

    def logits(self, weights: Tensor, block: Block | Couples) -> Tensor:
        """Return logits (P,); of couples in float64, as each stands for many pairs."""
        weights = weights.double() if isinstance(block, Couples) else weights
        offset, first, second = self._used(block)
        return weights[offset] + weights[first] + weights[second]

    def slope(self, residuals: Tensor, block: Block | Couples) -> Tensor:
        """Return the gradient (p,)."""
        return summed(residuals, self._used(block), self.shape[0])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Divide by the diagonal."""
        return gradient / (self.curvature + l2).clamp_min(LEAST)

    def _used(self, block: Block | Couples) -> Used:
        """Return which weights pairs use: int64 (P,) each."""
        if isinstance(block, Couples):
            return block.used
        return used_by(*places(block, self.grid), self.grid)


def places(block: Block, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the places of the first and the second patches, int64 (P,) each."""
    by = block.positions.new_tensor([grid[1], 1])
    return block.both((block.positions * by).sum(-1).long())


def used_by(first: Tensor, second: Tensor, grid: tuple[int, int]) -> Used:
    """Return which weights pairs at two places (P,) use."""
    columns, cells = grid[1], grid[0] * grid[1]
    rows = (first // columns - second // columns).abs()
    offset = rows * columns + (first % columns - second % columns).abs()
    return offset, cells + first, cells + second


def summed(values: Tensor, used: Used, size: int) -> Tensor:
    """Return the sums (p,) of values (P,) over what uses a weight."""
    out = values.new_zeros(size)
    for index in used:
        out.index_add_(0, index, values)
    return out


@dataclass(frozen=True)
class Counts:
    """The pairs of a split by their two places, as `Pairs` has them one by one."""

    couples: Couples
    data: PairData
    device: torch.device
    in_memory: bool = False  # margins are made anew at every step, so that no rounding adds up

    @classmethod
    def count(cls, pairs: Pairs) -> Counts:
        """Count the pairs of a split."""
        grid = pairs.data.grid
        cells = grid[0] * grid[1]
        both = torch.zeros(2, cells**2, dtype=torch.int64, device=pairs.device)
        for block in pairs.blocks():
            first, second = places(block, grid)
            place = (~block.same).long() * cells**2 + first * cells + second
            both += torch.bincount(place, minlength=2 * cells**2).view(2, -1)
        different, there = both.nonzero().t()
        indices = used_by(there // cells, there % cells, grid)
        couples = Couples(indices, 2.0 * different.double() - 1.0, both[different, there].double())
        return cls(couples, pairs.data, pairs.device)

    @property
    def n_pairs(self) -> int:
        """Number of pairs, at least 1."""
        return max(self.data.n_pairs, 1)

    def blocks(self) -> Iterator[Couples]:
        """Start a pass."""
        return iter([self.couples])

    def form(self) -> Form:
        """Return the form of places, whose curvature is that of these pairs."""
        size = 2 * self.data.grid[0] * self.data.grid[1]
        share = BOUND * self.couples.weights / self.n_pairs
        return Form([Table(self.data.grid, summed(share, self.couples.used, size).float())])


def fitted_places(
    pairs: Sequence[Pairs],
    l2: Sequence[float],
    steps: int,
    checkpoints: Checkpoints | None = None,
) -> tuple[Form, Optimum]:
    """Fit the form of places to train and val, from the constant of train's share of pairs."""
    train, val = (Counts.count(split) for split in pairs)
    form = train.form()
    problem = PairProblem(form, (train, val))
    constant = start(form.size, train)
    return form, follow(problem, problem.evaluate(constant), constant, l2, steps, checkpoints)


def fit_position(config: PositionScorer, task: Task) -> list[Fitted]:
    """Fit the scorer of places."""
    fit = fitted_places(task.pairs(None), config.l2, config.steps, task.checkpoints)
    return [fitted_form(*fit)]
