"""Logistic regressions that share one design matrix, fitted together to their convex optima.

Column c minimises  mean_i softplus(-(2 y_ic - 1) l_ic) + l2/2 |w_c|^2 (bias unpenalised) with
logits l = offset + X w_c, over the leading rows of w_c that the column may use.  All columns
advance in the same matrix products, each with its own L-BFGS memory (Nocedal and Wright,
*Numerical Optimization*, algorithms 7.4 and 7.5) and its own strong Wolfe step.  Three things make
it fast: a line search costs no product, for logits are linear in the weights; the initial inverse
Hessian is that of the bound X'X/4N + l2 (Boehning 1992), exact per column because columns use
nested leading blocks of one Cholesky factor; converged columns leave the products.

Where the design matrix does not fit in memory (`Passes`), logits are not kept: each trial of a line
search is a pass over blocks of it, in the same two products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

MEMORY = 10
ARMIJO, CURVATURE = 1e-4, 0.9
TRIALS = 12
JITTER = 1e-6


# x (n, p), sign (n, C) and offset (n, C) or None of some scenes; see `Regressions`.
Block: TypeAlias = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Which weights the regressions have.

    Attributes
    ----------
    rows
        How many leading rows of w each column uses, int64 (C,).
    penalised
        1 for rows under the ridge, 0 for the bias, (p, 1).
    """

    rows: Tensor
    penalised: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (p, C) of the weights."""
        return len(self.penalised), len(self.rows)

    def mask(self) -> Tensor:
        """Return (p, C): 1 where the column uses the row."""
        row = torch.arange(len(self.penalised), device=self.penalised.device)[:, None]
        return (row < self.rows).to(self.penalised.dtype)


@dataclass(frozen=True)
class Regressions(Shape):
    """The data of all columns, in memory.

    Attributes
    ----------
    x
        Design matrix (N, p).
    sign
        1 where the label is 0 and -1 where it is 1, (N, C).
    offset
        What is added to the logits, in nats, (N, C), or None.
    """

    x: Tensor
    sign: Tensor
    offset: Tensor | None

    def gram(self) -> Tensor:
        """Return X'X/4N in float64, (p, p)."""
        return (self.x.t() @ self.x / (4 * len(self.x))).double()

    def mean_loss(self, w: Tensor) -> float:
        """Return the loss of all columns without ridge, in nats per scene."""
        return float(softplus(self.margins(w)).sum(1).double().mean())

    def at(self, w: Tensor) -> _Margins:
        """Return the margins at these weights."""
        return _Margins(self, w)

    def margins(self, w: Tensor) -> Tensor:
        """Return the logits with the sign that makes softplus(margin) the loss, (N, C)."""
        logits = self.x @ w
        return self.sign * (logits if self.offset is None else logits + self.offset)

    def columns(self, index: Tensor) -> Regressions:
        """Return the regressions of some columns."""
        offset = None if self.offset is None else self.offset[:, index]
        return replace(self, sign=self.sign[:, index], offset=offset, rows=self.rows[index])


class _Margins:
    """The margins of all scenes at a fit's weights: a trial along a direction costs no product."""

    def __init__(self, problem: Regressions, w: Tensor) -> None:
        self.problem, self.margins = problem, problem.margins(w)
        self.sigma = self.margins.sigmoid()

    def loss(self) -> Tensor:
        """Return the mean loss of each column without ridge, (C,)."""
        return softplus(self.margins).mean(0)

    def slope(self) -> Tensor:
        """Return the gradient (p, C) without ridge."""
        x = self.problem.x
        return x.t() @ (self.sigma * self.problem.sign) / len(x)

    def keep(self, index: Tensor) -> None:
        """Drop all columns but these."""
        self.problem = self.problem.columns(index)
        self.margins = self.margins[:, index]

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Take a direction (p, C) from the weights w."""
        self.change = self.problem.sign * (self.problem.x @ direction)

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean losses and their slopes along the direction at steps t, (C,) each."""
        here = torch.addcmul(self.margins, t, self.change)
        self.sigma = here.sigmoid()
        return softplus(here).mean(0), (self.sigma * self.change).mean(0)

    def go(self, t: Tensor) -> None:
        """Go to w + t direction; t is what `trial` was given last."""
        self.margins.addcmul_(t, self.change)


@dataclass(frozen=True)
class Passes(Shape):
    """The data of all columns, read in blocks at each pass; memory does not grow with N.

    Attributes
    ----------
    blocks
        Starts a pass: yields x (n, p), sign and offset (n, all columns) of successive scenes.
    n
        Scenes of a pass.
    chosen
        Which of the columns, int64 (C,).
    """

    blocks: Callable[[], Iterator[Block]]
    n: int
    chosen: Tensor

    def gram(self) -> Tensor:
        """Return X'X/4N in float64, (p, p)."""
        side, device = len(self.penalised), self.penalised.device
        total = torch.zeros(side, side, dtype=torch.float64, device=device)
        for x, _, _ in self.blocks():
            total += x.t() @ x
        return total / (4 * self.n)

    def mean_loss(self, w: Tensor) -> float:
        """Return the loss of all columns without ridge, in nats per scene."""
        losses = (softplus(m).sum(1).double().sum() for m, _, _ in self.margins(w))
        return sum(map(float, losses)) / self.n

    def at(self, w: Tensor) -> _Sums:
        """Return losses and gradients at these weights: a pass."""
        return _Sums(self, w)

    def columns(self, index: Tensor) -> Passes:
        """Return the regressions of some columns."""
        return replace(self, chosen=self.chosen[index], rows=self.rows[index])

    def margins(self, w: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield margins, x and sign of each block."""
        for x, sign, offset in self.blocks():
            own, logits = sign[:, self.chosen], x @ w
            if offset is not None:
                logits += offset[:, self.chosen]
            yield logits.mul_(own), x, own

    def sums(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean losses (C,) and their gradient (p, C), without ridge, by one pass."""
        loss = torch.zeros(w.shape[1], dtype=torch.float64, device=w.device)
        slope = torch.zeros_like(w)
        for margins, x, sign in self.margins(w):
            loss += softplus(margins).sum(0)
            slope.addmm_(x.t(), margins.sigmoid().mul_(sign))
        return (loss / self.n).to(w.dtype), slope / self.n


class _Sums:
    """Losses and gradients of the last pass; as `_Margins`, but a trial is a pass."""

    def __init__(self, problem: Passes, w: Tensor) -> None:
        self.problem = problem
        self.losses, self.slopes = problem.sums(w)

    def loss(self) -> Tensor:
        return self.losses

    def slope(self) -> Tensor:
        return self.slopes

    def keep(self, index: Tensor) -> None:
        self.problem = self.problem.columns(index)
        self.losses, self.slopes = self.losses[index], self.slopes[:, index]

    def aim(self, w: Tensor, direction: Tensor) -> None:
        self.w, self.direction = w, direction

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        self.losses, self.slopes = self.problem.sums(self.w + t * self.direction)
        return self.losses, (self.slopes * self.direction).sum(0)

    def go(self, t: Tensor) -> None:
        """Do nothing: the last pass was at these weights."""


Problem: TypeAlias = Regressions | Passes


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

    def __init__(self, problem: Problem) -> None:
        self.gram = problem.gram()
        self.penalised, self.dtype = problem.penalised.double(), problem.penalised.dtype

    def factor(self, l2: float) -> Tensor:
        """Return L^-1, (p, p)."""
        eye = torch.eye(len(self.gram), dtype=torch.float64, device=self.gram.device)
        jitter = JITTER * (1 + self.gram.diagonal().mean())
        cholesky = torch.linalg.cholesky(self.gram + eye * (l2 * self.penalised + jitter))
        inverse: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        return inverse.to(self.dtype)


class _Fit:
    """The columns that still move: weights, logits, gradient and memory."""

    def __init__(self, problem: Problem, w: Tensor, inverse: Tensor, l2: float) -> None:
        self.ridge, self.inverse = l2 * problem.penalised, inverse
        self.mask = problem.mask()
        self.w = w * self.mask
        self.data: _Margins | _Sums = problem.at(self.w)
        self.gradient = self._gradient()
        self.loss = self.data.loss()
        self.memory: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scale = torch.ones_like(self.loss)

    def _gradient(self) -> Tensor:
        return (self.data.slope() + self.ridge * self.w) * self.mask

    def keep(self, index: Tensor) -> None:
        """Drop all columns but these."""
        self.data.keep(index)
        self.gradient = self.gradient[:, index]
        self.w, self.mask = self.w[:, index], self.mask[:, index]
        self.loss, self.scale = self.loss[index], self.scale[index]
        self.memory = [(s[:, index], y[:, index], rho[index]) for s, y, rho in self.memory]

    def _precondition(self, g: Tensor) -> Tensor:
        return self.mask * (self.inverse.t() @ (self.mask * (self.inverse @ g)))

    def direction(self) -> Tensor:
        """Return -H g by the two-loop recursion."""
        q = self.gradient.clone()
        alphas = []
        for s, y, rho in reversed(self.memory):
            alphas.append(rho * (s * q).sum(0))
            q -= alphas[-1] * y
        q = self._precondition(q) * self.scale
        for (s, y, rho), alpha in zip(self.memory, reversed(alphas), strict=True):
            q += s * (alpha - rho * (y * q).sum(0))
        return -q

    def advance(self, direction: Tensor, slope: Tensor) -> Tensor:
        """Take a strong Wolfe step along `direction`; return which columns moved, bool (C,)."""
        self.data.aim(self.w, direction)
        linear = (self.ridge * self.w * direction).sum(0)
        square = (self.ridge * direction.square()).sum(0)
        step, loss = _line_search(self.data.trial, self.loss, slope, linear, square)
        self.data.go(step)
        s = step * direction
        self.w = self.w + s
        gradient = self._gradient()
        self._remember(s, gradient - self.gradient)
        self.gradient, self.loss = gradient, loss
        return step > 0

    def _remember(self, s: Tensor, y: Tensor) -> None:
        """Take a step and the change of the gradient into the memory, where curvature is safe."""
        curvature = (s * y).sum(0)
        safe = curvature > torch.finfo(s.dtype).tiny
        rho = torch.where(safe, 1 / curvature.where(safe, torch.ones_like(curvature)), 0.0)
        size = (y * self._precondition(y)).sum(0)
        safe &= size > torch.finfo(s.dtype).tiny
        self.scale = torch.where(
            safe, curvature / size.where(safe, torch.ones_like(size)), self.scale
        )
        self.memory = [*self.memory[-(MEMORY - 1) :], (s, y, rho)]


def minimise(
    problem: Problem,
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
    fit = _Fit(problem, start, preconditioner.factor(l2), l2)
    w = fit.w.clone()
    decrement = torch.full_like(fit.loss, torch.inf)
    live = torch.arange(w.shape[1], device=w.device)
    for iteration in range(iterations + 1):
        direction = fit.direction()
        slope = (fit.gradient * direction).sum(0)
        decrement[live] = -slope / 2
        going = -slope / 2 > tolerance
        if not going.all():
            index = going.nonzero().squeeze(1)
            fit.keep(index)
            live, direction, slope = live[index], direction[:, index], slope[index]
        if not len(live) or iteration == iterations:
            break
        moved = fit.advance(direction, slope)
        w[:, live] = fit.w
        if not moved.all():  # a step of length 0: rounding hides what is left
            index = moved.nonzero().squeeze(1)
            fit.keep(index)
            live = live[index]
        if watch is not None:
            watch(iteration + 1, w)
        if not len(live):
            break
    return Solution(w, decrement, iteration)


def _line_search(
    trial: Callable[[Tensor], tuple[Tensor, Tensor]],
    loss: Tensor,
    slope: Tensor,
    linear: Tensor,
    square: Tensor,
) -> tuple[Tensor, Tensor]:
    """Find a strong Wolfe step per column.

    The objective along the line is convex, so its slope brackets the minimum; trials are secants
    of the slope.

    Parameters
    ----------
    trial
        Steps -> losses and slopes along the direction.
    loss, slope
        Mean loss without ridge and derivative at t = 0, (C,).
    linear, square
        The ridge adds `linear` t + `square` t^2 / 2, (C,).

    Returns
    -------
    tuple[Tensor, Tensor]
        Steps (0 where none was found) and mean losses at the steps.
    """
    low, low_slope = torch.zeros_like(slope), slope.clone()
    high, high_slope = torch.full_like(slope, torch.inf), torch.zeros_like(slope)
    t = torch.ones_like(slope)
    done = torch.zeros_like(slope, dtype=torch.bool)
    rounding = 4 * torch.finfo(loss.dtype).eps * loss
    for _ in range(TRIALS):
        data, at = trial(t)
        at = at + linear + square * t
        drop = data - loss + t * linear + t.square() * square / 2
        enough = drop <= ARMIJO * t * slope + rounding
        done |= enough & (at.abs() <= CURVATURE * slope.abs())
        if done.all():
            return t, data
        right = ~done & (~enough | (at > 0))
        left = ~done & ~right
        high, high_slope = torch.where(right, t, high), torch.where(right, at, high_slope)
        low, low_slope = torch.where(left, t, low), torch.where(left, at, low_slope)
        share = (low_slope / (low_slope - high_slope.clamp_min(0))).clamp(0.1, 0.9)
        inside = low + (high - low) * share
        t = torch.where(done, t, torch.where(high.isinf(), t * 4, inside))
    t = torch.where(done, t, low)
    return t, trial(t)[0]
