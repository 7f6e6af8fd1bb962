"""L-BFGS for the columns of a matrix of weights, which advance together to their convex optima.

All columns advance in the same matrix products, each with its own memory (Nocedal and Wright,
*Numerical Optimization*, algorithms 7.4 and 7.5) and its own strong Wolfe step. Converged columns
leave the products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 10
ARMIJO, CURVATURE, TRIALS = 1e-4, 0.9, 12  # of a line search


class Solution(NamedTuple):
    """Where the minimiser stopped: weights (p, C), and iterations of the slowest column.

    `decrement` is g'Hg/2 of each column, about its loss above the optimum, in nats (C,); 0 of those
    that were not to be fitted.
    """

    w: Tensor
    decrement: Tensor
    iterations: int


class Problem(ABC):
    """Convex functions of the columns of weights (p, C), and about the inverses of their Hessians.

    A ridge adds ridge / 2 * w' diag(penalty) w to each; `penalty` is (p, 1).
    """

    penalty: Tensor

    @abstractmethod
    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (C,) and their gradient (p, C) at weights, both without a ridge."""

    @abstractmethod
    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        """Return about the inverse of the Hessian, ridge included, times a gradient (p, C)."""

    def prepare(self, w: Tensor, ridge: float, line: int) -> None:
        """Adapt what `precondition` uses to weights; line 0 comes before the first of them."""
        del w, ridge, line

    def select(self, columns: Tensor) -> Problem:
        """Return the problem of some columns (c,) alone."""
        del columns
        return self


class _Minimiser:
    """The columns that still move (`live`): weights, gradient, memory."""

    def __init__(self, problem: Problem, ridge: float, start: Tensor, columns: Tensor) -> None:
        self.problem, self.strength, self.live = problem.select(columns), ridge, columns
        self.ridge = (ridge * problem.penalty).to(start.dtype)
        self.w, self.lines = start[:, columns], 0
        self.problem.prepare(self.w, ridge, self.lines)
        self.loss, slope = self.problem.value_and_gradient(self.w)
        self.gradient, self.scale = slope + self.ridge * self.w, torch.ones_like(slope[0])
        self.memory: list[tuple[Tensor, Tensor, Tensor]] = []
        self.direction, self.descent = torch.zeros_like(self.w), torch.zeros_like(slope[0])

    def keep(self, selected: Tensor) -> None:
        """Drop all columns but some, bool (C,)."""
        if selected.all():
            return
        index = selected.nonzero().squeeze(1)
        self.live, self.loss = self.live[index], self.loss[index]
        self.scale, self.descent = self.scale[index], self.descent[index]
        self.w = self.w[:, index]
        self.gradient, self.direction = self.gradient[:, index], self.direction[:, index]
        self.memory = [(s[:, index], y[:, index], rho[index]) for s, y, rho in self.memory]
        self.problem = self.problem.select(index)

    def aim(self) -> Tensor:
        """Choose the direction -H g by the two-loop recursion; return g'Hg/2, (C,)."""
        q = self.gradient.clone()
        alphas = []
        for s, y, rho in reversed(self.memory):
            alphas.append(rho * (s * q).sum(0))
            q -= alphas[-1] * y
        q = self.problem.precondition(q, self.strength) * self.scale
        for (s, y, rho), alpha in zip(self.memory, reversed(alphas), strict=True):
            q += s * (alpha - rho * (y * q).sum(0))
        self.direction = -q
        self.descent = (self.gradient * self.direction).sum(0)
        return -self.descent / 2

    def advance(self) -> Tensor:
        """Take a strong Wolfe step along the direction; return which columns moved, bool (C,)."""
        self.lines += 1
        self.problem.prepare(self.w, self.strength, self.lines)
        step, self.loss, slope = self._line_search()
        s = step.to(self.w.dtype) * self.direction
        self.w = self.w + s
        gradient = slope + self.ridge * self.w
        self._remember(s, gradient - self.gradient)
        self.gradient = gradient
        return step > 0

    def _line_search(self) -> tuple[Tensor, Tensor, Tensor]:
        """Find steps (0 where there is none); return them, values (C,) and gradients (p, C) there.

        The function along the line is convex, so its slope brackets the minimum; trials are secants
        of the slope.
        """
        linear = (self.ridge * self.w * self.direction).sum(0)
        square = (self.ridge * self.direction.square()).sum(0)
        low, low_slope = torch.zeros_like(self.descent), self.descent
        high, high_slope = torch.full_like(low, torch.inf), torch.zeros_like(low)
        t, done = torch.ones_like(low), torch.zeros_like(low, dtype=torch.bool)
        rounding = 4 * torch.finfo(self.w.dtype).eps * self.loss
        data, gradient = torch.zeros_like(self.loss), torch.zeros_like(self.gradient)
        for _ in range(TRIALS):
            self._evaluate(t, ~done, data, gradient)
            at = (gradient * self.direction).sum(0, dtype=data.dtype) + linear + square * t
            drop = data - self.loss + t * linear + t.square() * square / 2
            enough = drop <= ARMIJO * t * self.descent + rounding
            done |= enough & (at.abs() <= CURVATURE * self.descent.abs())
            if done.all():
                return t, data, gradient
            right = ~done & (~enough | (at > 0))
            falling = ~done & ~right
            high, high_slope = torch.where(right, t, high), torch.where(right, at, high_slope)
            low, low_slope = torch.where(falling, t, low), torch.where(falling, at, low_slope)
            share = (low_slope / (low_slope - high_slope.clamp_min(0))).clamp(0.1, 0.9)
            inside = low + (high - low) * share
            t = torch.where(done, t, torch.where(high.isinf(), t * 4, inside))
        t = torch.where(done, t, low)
        self._evaluate(t, ~done, data, gradient)
        return t, data, gradient

    def _evaluate(self, t: Tensor, selected: Tensor, data: Tensor, gradient: Tensor) -> None:
        """Put values (C,) and gradients (p, C) at steps of some columns, bool (C,), in place."""
        columns = selected.nonzero().squeeze(1)
        problem = self.problem if selected.all() else self.problem.select(columns)
        w = self.w[:, columns] + t[columns].to(self.w.dtype) * self.direction[:, columns]
        data[columns], gradient[:, columns] = problem.value_and_gradient(w)

    def _remember(self, s: Tensor, y: Tensor) -> None:
        """Take a step and the change of the gradient into the memory, where curvature is safe."""
        tiny, curvature = torch.finfo(s.dtype).tiny, (s * y).sum(0)
        safe = curvature > tiny
        self.memory = [*self.memory[1 - MEMORY :], (s, y, torch.where(safe, 1 / curvature, 0.0))]
        size = (y * self.problem.precondition(y, self.strength)).sum(0)
        self.scale = torch.where(safe & (size > tiny), curvature / size, self.scale)


def descend(
    problem: Problem,
    start: Tensor,
    ridge: float = 0.0,
    columns: Tensor | None = None,
    *,
    iterations: int = 150,
    tolerance: float = 1e-6,
) -> Solution:
    """Descend from `start` (p, C) to the optima of some columns; others keep their start.

    A column has converged when g'Hg/2, about its loss above the optimum, is below `tolerance` nats;
    or when it is within the rounding of the loss. Where the problem is not convex, this ends at a
    point without slope, if at all.
    """
    if columns is None:
        columns = torch.arange(start.shape[1], device=start.device)
    fit = _Minimiser(problem, ridge, start, columns)
    w, decrement = start.clone(), fit.gradient.new_zeros(start.shape[1])
    eps = torch.finfo(w.dtype).eps
    for iteration in range(iterations + 1):
        decrement[fit.live] = expected_decrease = fit.aim()
        fit.keep(expected_decrease > (eps * fit.loss).clamp_min(tolerance))
        if not len(fit.live) or iteration == iterations:
            break
        moved = fit.advance()
        w[:, fit.live] = fit.w
        fit.keep(moved)  # a step of length 0: rounding hides what is left
        if not len(fit.live):
            break
    return Solution(w, decrement, iteration)
