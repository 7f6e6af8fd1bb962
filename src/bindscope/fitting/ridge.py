"""Convex fits along a path of ridge strengths, among which validation chooses.

The path goes from the strongest ridge to the weakest, each optimum from the one before it. A choice
takes the optima in turn and decides which columns go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol

import torch
from torch import Tensor

from bindscope.fitting.checkpoint import Checkpoints, SavedState, remember
from bindscope.fitting.lbfgs import Problem, Solution, descend
from bindscope.fitting.regressions import Regressions

GAIN = 1e-4  # a strength gains nothing that lowers a loss by less than this share of it
STALE = 2  # strengths in a row with a gain on train alone after which validation has chosen


class Choice(Protocol):
    """What validation makes of the optima of a path."""

    @property
    def going(self) -> Tensor:
        """Columns that a weaker ridge may serve better, (c,)."""

    def add(self, ridge: float, optimum: Solution) -> None:
        """Take the optimum of the next ridge, of these columns."""


@dataclass(frozen=True)
class RidgePath:
    """Ridge strengths, the strongest first, and when a descent ends.

    `tolerance` is in nats above the optimum, `relative` a limit of it as a share of the ridge.
    """

    strengths: Iterable[float]
    iterations: int
    tolerance: float
    relative: float = inf

    def follow(
        self,
        problem: Problem,
        start: Tensor,
        choice: Choice,
        checkpoints: Checkpoints | None = None,
    ) -> int:
        """Fit the strengths from weights `start` (p, C) until no column goes on.

        Strengths that a killed attempt has fitted are read from `checkpoints`. Returns the
        iterations of all descents.
        """
        w, iterations = start, 0
        for ridge in self.strengths:
            if not len(choice.going):
                break
            optimum = self._fit(problem, ridge, w, choice.going, checkpoints)
            w, iterations = optimum.w, iterations + optimum.iterations
            choice.add(ridge, optimum)
        return iterations

    def _fit(
        self,
        problem: Problem,
        ridge: float,
        start: Tensor,
        columns: Tensor,
        checkpoints: Checkpoints | None,
    ) -> Solution:
        def fit(_: Checkpoints | None) -> SavedState:
            solution = descend(
                problem,
                start,
                ridge,
                columns,
                iterations=self.iterations,
                tolerance=min(self.tolerance, self.relative * ridge),
            )
            tensors = {"w": solution.w, "decrement": solution.decrement}
            return tensors, {"iterations": solution.iterations}

        tensors, record = remember(checkpoints, fit)
        w, decrement = (tensors[name].to(start.device) for name in ("w", "decrement"))
        return Solution(w, decrement, record["iterations"])


class Average:
    """Weights (p, C) averaged over optima by the likelihood that they give some scenes.

    Exponential weights: Yang (2004), "Aggregating regression procedures to improve performance",
    Bernoulli 10. By column (C,), `evidence` is the log of the sum of all likelihoods so far, in
    nats, float64.
    """

    def __init__(self, scenes: Regressions, start: Tensor) -> None:
        self.scenes, self.w = scenes, start.clone()
        self.n = sum(len(x) for x, _, _ in scenes.blocks())
        self.evidence = -self.n * scenes.losses(start)

    def add(self, w: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Take weights (p, C) into the average of some columns.

        Return their losses there, in nats per scene, and their shares of the average.
        """
        losses = self.scenes.select(columns).losses(w[:, columns])
        total = torch.logaddexp(self.evidence[columns], -self.n * losses)
        share = (-self.n * losses - total).exp()
        self.evidence[columns] = total
        self.w[:, columns] = self.w[:, columns].lerp(w[:, columns], share.to(w.dtype))
        return losses, share


class Best:
    """The weights (p, 1) of one column that lose least on validation, among those of a path.

    `losses` returns the losses of weights on train and validation; where the latter is `perfect`,
    the path ends. `ridge` is infinite where the start is best, `short` about how far the weights
    are above their optimum, in nats.
    """

    def __init__(
        self,
        losses: Callable[[Tensor], tuple[float, float]],
        start: Tensor,
        perfect: float,
        short: float,
    ) -> None:
        self._losses, self._perfect = losses, perfect
        self.w, self.ridge, self.short = start, inf, short
        self.train, self.val = losses(start)
        self._last_train, self._stale = self.train, 0

    @property
    def going(self) -> Tensor:
        """The column, while validation gains."""
        ends = self._stale >= STALE or self.val <= self._perfect
        return torch.arange(0 if ends else 1, device=self.w.device)

    def add(self, ridge: float, optimum: Solution) -> None:
        """Take the optimum of the next ridge."""
        train, val = self._losses(optimum.w)
        fell, gained = self._last_train - train, self.val - val
        if gained > GAIN * self.val:
            self._stale = 0
        elif fell > GAIN * self._last_train:
            self._stale += 1
        self._last_train = train
        if gained > 0:
            self.w, self.ridge, self.short = optimum.w, ridge, float(optimum.decrement)
            self.train, self.val = train, val
