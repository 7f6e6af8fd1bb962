"""Logistic regressions that share one design matrix, fitted together to their convex optima.

Column c minimises  mean_i softplus(-(2 y_ic - 1) l_ic) + l2/2 |w_c|^2 (bias unpenalised) with
logits l = offset + X w_c, over the leading rows of w_c that the column may use.  All columns
advance in the same matrix products, each with its own L-BFGS memory (Nocedal and Wright,
*Numerical Optimization*, algorithms 7.4 and 7.5) and its own strong Wolfe step.  Three things make
it fast: a line search costs no product, for logits are linear in the weights; the initial inverse
Hessian is that of the bound X'X/4N + l2 (Boehning 1992), exact per column because columns use
nested leading blocks of one Cholesky factor; converged columns leave the products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

MEMORY = 10
ARMIJO, CURVATURE = 1e-4, 0.9
TRIALS = 12
JITTER = 1e-6


@dataclass(frozen=True)
class Regressions:
    """The data of all columns.

    Attributes
    ----------
    x
        Design matrix (N, p).
    sign
        1 where the label is 0 and -1 where it is 1, (N, C).
    offset
        What is added to the logits, in nats, (N, C), or None.
    rows
        How many leading rows of w each column uses, int64 (C,).
    penalised
        1 for rows under the ridge, 0 for the bias, (p, 1).
    """

    x: Tensor
    sign: Tensor
    offset: Tensor | None
    rows: Tensor
    penalised: Tensor

    def mask(self) -> Tensor:
        """Return (p, C): 1 where the column uses the row."""
        row = torch.arange(self.x.shape[1], device=self.x.device)[:, None]
        return (row < self.rows).to(self.x.dtype)

    def margins(self, w: Tensor) -> Tensor:
        """Return the logits with the sign that makes softplus(margin) the loss, (N, C)."""
        logits = self.x @ w
        return self.sign * (logits if self.offset is None else logits + self.offset)

    def gradient(self, w: Tensor, sigma: Tensor, l2: float) -> Tensor:
        """Return the gradient (p, C) from sigma = sigmoid(margins)."""
        slope = self.x.t() @ (sigma * self.sign) / len(self.x)
        return (slope + l2 * self.penalised * w) * self.mask()

    def columns(self, index: Tensor) -> Regressions:
        """Return the regressions of some columns."""
        offset = None if self.offset is None else self.offset[:, index]
        return replace(self, sign=self.sign[:, index], offset=offset, rows=self.rows[index])


@dataclass(frozen=True)
class Solution:
    """Where the minimiser stopped.

    Attributes
    ----------
    w
        Weights (p, C).
    decrement
        g'Hg/2 of each column, about its loss above the optimum, in nats (C,).
    iterations
        Iterations of the slowest column.
    """

    w: Tensor
    decrement: Tensor
    iterations: int


class Preconditioner:
    """Inverse of X'X/4N + l2 on each column's leading block, by one Cholesky factor.

    The inverse of a leading block is L_k^-T L_k^-1 with L_k^-1 the leading block of L^-1, hence two
    products with a mask between them.
    """

    def __init__(self, problem: Regressions) -> None:
        self.gram = (problem.x.t() @ problem.x / (4 * len(problem.x))).double()
        self.penalised, self.dtype = problem.penalised.double(), problem.x.dtype

    def factor(self, l2: float) -> Tensor:
        """Return L^-1, (p, p)."""
        eye = torch.eye(len(self.gram), dtype=torch.float64, device=self.gram.device)
        jitter = JITTER * (1 + self.gram.diagonal().mean())
        cholesky = torch.linalg.cholesky(self.gram + eye * (l2 * self.penalised + jitter))
        inverse: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        return inverse.to(self.dtype)


class _State:
    """The columns that still move: weights, margins, gradient and memory."""

    def __init__(self, problem: Regressions, w: Tensor, inverse: Tensor, l2: float) -> None:
        self.problem, self.inverse, self.l2 = problem, inverse, l2
        self.mask = problem.mask()
        self.w = w * self.mask
        self.margins = problem.margins(self.w)
        self.gradient = problem.gradient(self.w, self.margins.sigmoid(), l2)
        self.loss = softplus(self.margins).mean(0)
        self.memory: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scale = torch.ones_like(self.loss)

    def keep(self, index: Tensor) -> None:
        """Drop all columns but these."""
        self.problem = self.problem.columns(index)
        self.margins, self.gradient = self.margins[:, index], self.gradient[:, index]
        self.w, self.mask = self.w[:, index], self.mask[:, index]
        self.loss, self.scale = self.loss[index], self.scale[index]
        self.memory = [(s[:, index], y[:, index], rho[index]) for s, y, rho in self.memory]

    def precondition(self, g: Tensor) -> Tensor:
        return self.mask * (self.inverse.t() @ (self.mask * (self.inverse @ g)))

    def direction(self) -> Tensor:
        """Return -H g by the two-loop recursion."""
        q = self.gradient.clone()
        alphas = []
        for s, y, rho in reversed(self.memory):
            alphas.append(rho * (s * q).sum(0))
            q -= alphas[-1] * y
        q = self.precondition(q) * self.scale
        for (s, y, rho), alpha in zip(self.memory, reversed(alphas), strict=True):
            q += s * (alpha - rho * (y * q).sum(0))
        return -q

    def remember(self, s: Tensor, y: Tensor) -> None:
        """Take a step and the change of the gradient into the memory, where curvature is safe."""
        curvature = (s * y).sum(0)
        safe = curvature > torch.finfo(s.dtype).tiny
        rho = torch.where(safe, 1 / curvature.where(safe, torch.ones_like(curvature)), 0.0)
        size = (y * self.precondition(y)).sum(0)
        safe &= size > torch.finfo(s.dtype).tiny
        self.scale = torch.where(
            safe, curvature / size.where(safe, torch.ones_like(size)), self.scale
        )
        self.memory = [*self.memory[-(MEMORY - 1) :], (s, y, rho)]


def minimise(
    problem: Regressions,
    start: Tensor,
    l2: float,
    preconditioner: Preconditioner,
    *,
    iterations: int = 150,
    tolerance: float = 1e-6,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Solution:
    """Fit all columns to their optima.

    Parameters
    ----------
    problem
        The data.
    start
        Weights to start from, (p, C).
    l2
        Ridge strength.
    preconditioner
        Of this problem.
    iterations
        Most iterations.
    tolerance
        A column has converged when g'Hg/2, about its loss above the optimum, is below this, nats.
    watch
        Called with the iteration and the current weights (p, C) after each iteration.

    Returns
    -------
    Solution
        Weights, remaining decrement, iterations.
    """
    state = _State(problem, start, preconditioner.factor(l2), l2)
    w = state.w.clone()
    decrement = torch.full_like(state.loss, torch.inf)
    live = torch.arange(w.shape[1], device=w.device)
    for iteration in range(iterations + 1):
        direction = state.direction()
        slope = (state.gradient * direction).sum(0)
        decrement[live] = -slope / 2
        going = -slope / 2 > tolerance
        if not going.all():
            index = going.nonzero().squeeze(1)
            state.keep(index)
            live, direction, slope = live[index], direction[:, index], slope[index]
        if not len(live) or iteration == iterations:
            break
        moved = _advance(state, direction, slope)
        w[:, live] = state.w
        if not moved.all():  # a step of length 0: rounding hides what is left
            index = moved.nonzero().squeeze(1)
            state.keep(index)
            live = live[index]
        if watch is not None:
            watch(iteration + 1, w)
        if not len(live):
            break
    return Solution(w, decrement, iteration)


def _advance(state: _State, direction: Tensor, slope: Tensor) -> Tensor:
    """Take a strong Wolfe step along `direction`; return which columns moved, bool (C,)."""
    problem = state.problem
    change = problem.sign * (problem.x @ direction)
    ridge = state.l2 * problem.penalised
    step, sigma, loss = _line_search(
        state.margins, change, state.loss, slope,
        (ridge * state.w * direction).sum(0), (ridge * direction.square()).sum(0),
    )  # fmt: skip
    state.margins.addcmul_(step, change)
    s = step * direction
    state.w = state.w + s
    gradient = problem.gradient(state.w, sigma, state.l2)
    state.remember(s, gradient - state.gradient)
    state.gradient, state.loss = gradient, loss
    return step > 0


def _line_search(
    margins: Tensor, change: Tensor, loss: Tensor, slope: Tensor, linear: Tensor, square: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find a strong Wolfe step per column along margins + t change.

    The objective along the line is convex, so its slope brackets the minimum; trials are secants
    of the slope.

    Parameters
    ----------
    margins, change
        (N, C).
    loss, slope
        Mean loss without ridge and derivative at t = 0, (C,).
    linear, square
        The ridge adds `linear` t + `square` t^2 / 2, (C,).

    Returns
    -------
    tuple[Tensor, Tensor, Tensor]
        Steps (0 where none was found), sigmoid(margins) and mean losses at the steps.
    """
    low, low_slope = torch.zeros_like(slope), slope.clone()
    high, high_slope = torch.full_like(slope, torch.inf), torch.zeros_like(slope)
    t = torch.ones_like(slope)
    done = torch.zeros_like(slope, dtype=torch.bool)
    rounding = 4 * torch.finfo(loss.dtype).eps * loss
    for _ in range(TRIALS):
        here = torch.addcmul(margins, t, change)
        sigma = here.sigmoid()
        at = (sigma * change).mean(0) + linear + square * t
        data = softplus(here).mean(0)
        drop = data - loss + t * linear + t.square() * square / 2
        enough = drop <= ARMIJO * t * slope + rounding
        done |= enough & (at.abs() <= CURVATURE * slope.abs())
        if done.all():
            return t, sigma, data
        right = ~done & (~enough | (at > 0))
        left = ~done & ~right
        high, high_slope = torch.where(right, t, high), torch.where(right, at, high_slope)
        low, low_slope = torch.where(left, t, low), torch.where(left, at, low_slope)
        share = (low_slope / (low_slope - high_slope.clamp_min(0))).clamp(0.1, 0.9)
        inside = low + (high - low) * share
        t = torch.where(done, t, torch.where(high.isinf(), t * 4, inside))
    t = torch.where(done, t, low)
    here = torch.addcmul(margins, t, change)
    return t, here.sigmoid(), softplus(here).mean(0)
