"""Logistic regressions that share one design matrix, fitted together to their convex optima.

Column c minimises  mean_i softplus(-(2 y_ic - 1) l_ic) + l2/2 |w_c|^2 (bias unpenalised) with
logits l = offset + X w_c, over the leading rows of w_c that the column may use.  All columns
advance in the same matrix products, each with its own L-BFGS memory (Nocedal and Wright,
*Numerical Optimization*, algorithms 7.4 and 7.5) and its own strong Wolfe step.  Three things make
it fast: a line search costs no product, for logits are linear in the weights; the initial inverse
Hessian is that of the bound X'X/4N + l2 (Boehning 1992), later of the mean curvature of the columns
that are left, exact per column because columns use nested leading blocks of one Cholesky factor;
converged columns leave the products.  SciPy's L-BFGS takes 20 times as long or more, in as many
more iterations.

Where the design matrix does not fit in memory, logits are not kept: each trial of a line search is
a pass over blocks of it, in the same two products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

MEMORY = 10
REFRESH = 20  # iterations after which the curvature is measured anew; more often takes as long
ROWS = 4096  # scenes at a time of which the curvature takes another copy
ARMIJO, CURVATURE, TRIALS = 1e-4, 0.9, 12  # of a line search
JITTER = 1e-6

# Of some scenes: design matrix x (n, p); sign (n, C), 1 where the label is 0 and -1 where it is 1;
# and what is added to the logits, in nats, (n, C), or None.
Block: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
# x, sign and margins (n, C): logits, signed so that softplus(margin) is the loss.
Margins: TypeAlias = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Regressions:
    """The data of all columns, and which weights they have.

    Attributes
    ----------
    data
        One block, where all scenes are in memory; or what starts a pass over blocks of successive
        scenes, of which memory holds one at a time.
    rows
        How many leading rows of w each column uses, int64 (C,).
    penalised
        1 for rows under the ridge, 0 for the bias, (p, 1).
    """

    data: Block | Callable[[], Iterator[Block]]
    rows: Tensor
    penalised: Tensor

    @property
    def held(self) -> bool:
        """Whether all scenes are in memory."""
        return not callable(self.data)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (p, C) of the weights."""
        return len(self.penalised), len(self.rows)

    def mask(self) -> Tensor:
        """Return (p, C): 1 where the column uses the row."""
        row = torch.arange(len(self.penalised), device=self.penalised.device)[:, None]
        return (row < self.rows).to(self.penalised.dtype)

    def objective(self, l2: float, columns: Tensor) -> Objective:
        """Return what `descend` minimises for a ridge, of weights that are 0 where `mask` is."""
        return (_Held if self.held else _Streamed)(self, l2, columns)

    def blocks(self) -> Iterable[Block]:
        """Start a pass over the scenes."""
        return self.data() if callable(self.data) else (self.data,)

    @cached_property
    def gram(self) -> Tensor:
        """X'X/4N, float64 (p, p), rounded to the type of the data."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for x, _, _ in self.blocks():
            total, n = (x.t() @ x).double() + total, n + len(x)
        return (total / (4 * n)).to(self.penalised.dtype).double()

    def margins(self, w: Tensor, columns: Tensor | slice = slice(None)) -> Iterator[Margins]:
        """Yield the margins of each block at weights (p, C) of some columns."""
        for block in self.blocks():
            yield _margins(block, w, columns)

    def losses(self, w: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
        """Return the loss of some columns without ridge, in nats per scene, float64 (C,)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for _, _, margins in self.margins(w[:, columns], columns):
            total, n = softplus(margins).double().sum(0) + total, n + len(margins)
        return total / n

    def scene_gains(self, w: Tensor, over: Tensor, columns: Tensor | slice) -> Tensor:
        """Return by how much less each scene loses at w than at other weights (p, C).

        Summed over some columns, in nats, float64 (N,).
        """
        both = (self.margins(weights[:, columns], columns) for weights in (w, over))
        return torch.cat(
            [
                (softplus(others) - softplus(margins)).double().sum(1)
                for (_, _, margins), (_, _, others) in zip(*both, strict=True)
            ]
        )

    def curvature(self, w: Tensor, columns: Tensor) -> Tensor:
        """Return the mean Hessian, without ridge, of columns at weights (p, C), float64 (p, p)."""
        total, n = torch.zeros((), dtype=torch.float64), 0
        for block in self.blocks():
            for start in range(0, len(block[0]), ROWS):
                x, _, margins = _margins(_rows(block, slice(start, start + ROWS)), w, columns)
                sigma = margins.sigmoid_()
                total = (x.t() @ (x * (sigma * (1 - sigma)).mean(1, keepdim=True))).double() + total
                n += len(x)
        return total / n

    def factor(self, l2: float, curvature: Tensor) -> Tensor:
        """Return L^-1 (p, p), where L L' = curvature + l2.

        The inverse of a leading block is L_k^-T L_k^-1 with L_k^-1 the leading block of L^-1, hence
        two products with a mask between them precondition all columns.
        """
        eye = torch.eye(len(self.gram), dtype=torch.float64, device=self.gram.device)
        jitter = JITTER * (1 + self.gram.diagonal().mean())
        cholesky = torch.linalg.cholesky(curvature + eye * (l2 * self.penalised.double() + jitter))
        inverse: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        return inverse.to(self.penalised.dtype)


def _margins(block: Block, w: Tensor, columns: Tensor | slice) -> Margins:
    x, sign, offset = block
    own, logits = sign[:, columns], x @ w
    if offset is not None:
        logits += offset[:, columns]
    return x, own, logits.mul_(own)


def _rows(block: Block, rows: slice) -> Block:
    x, sign, offset = block
    return x[rows], sign[rows], None if offset is None else offset[rows]


def loss_and_slope(blocks: Iterable[Margins]) -> tuple[Tensor, Tensor]:
    """Return mean losses (C,) and their gradient (p, C), without ridge, of successive scenes."""
    loss, slope, n = torch.zeros((), dtype=torch.float64), torch.zeros(()), 0
    for x, sign, margins in blocks:
        loss = softplus(margins).sum(0).double() + loss
        slope = x.t() @ margins.sigmoid().mul_(sign) + slope
        n += len(x)
    return (loss / n).to(slope.dtype), slope / n


class Solution(NamedTuple):
    """Where the minimiser stopped.

    Attributes
    ----------
    w
        Weights (p, C).
    decrement
        g'Hg/2 of each column, about its loss above the optimum, in nats (C,); 0 of those that were
        not to be fitted.
    iterations
        Iterations of the slowest column.
    """

    w: Tensor
    decrement: Tensor
    iterations: int


class Objective(Protocol):
    """Convex functions of the columns of weights (p, C), which a `_Minimiser` descends.

    The ridge is not part of loss and slope: the minimiser adds it.

    Attributes
    ----------
    ridge
        What is added to the loss is w' diag(ridge) w / 2, (p, 1).
    """

    ridge: Tensor

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses (C,) and their gradient (p, C) at the weights, where the descent starts."""

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Take note of where the next line starts and leads to, (p, C) each."""

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses and their slopes along the line at steps t, (C,) each."""

    def arrive(self, t: Tensor) -> Tensor:
        """Go to the steps of the last trial; return the gradient (p, C) there."""

    def keep(self, index: Tensor) -> None:
        """Drop all columns but these, which have stopped."""

    def precondition(self, g: Tensor) -> Tensor:
        """Return about the inverse of the Hessian, ridge included, times (p, C)."""


class Evaluated(ABC):
    """An `Objective` of one column, each of whose trials computes loss and gradient anew."""

    def __init__(self, ridge: Tensor) -> None:
        self.ridge = ridge

    @abstractmethod
    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss (1,) and its gradient (p, 1) at weights (p, 1)."""

    @abstractmethod
    def precondition(self, g: Tensor) -> Tensor:
        """Return about the inverse Hessian, ridge included, times (p, 1)."""

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Take note of the line."""
        self.w, self.direction = w, direction

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its slope along the line at step t, (1,) each."""
        loss, self.slope = self.begin(self.w + t.to(self.w.dtype) * self.direction)
        return loss, (self.slope * self.direction).double().sum(0)

    def arrive(self, t: Tensor) -> Tensor:
        """Return the gradient of the last trial."""
        return self.slope

    def keep(self, index: Tensor) -> None:
        """Do nothing: there is one column, and when it stops all is over."""
        del index


class _Columns:
    """What the two objectives below share: the columns that move (`live`), mask and factor."""

    def __init__(self, problem: Regressions, l2: float, columns: Tensor) -> None:
        self.problem, self.ridge, self.live = problem, l2 * problem.penalised, columns
        self.inverse, self.mask = problem.factor(l2, problem.gram), problem.mask()[:, columns]
        self.l2, self.lines = l2, 0

    def aim(self, w: Tensor, direction: Tensor) -> None:
        self.w, self.direction = w, direction
        self.lines += 1
        if self.lines % REFRESH == 0:
            self.inverse = self.problem.factor(self.l2, self.problem.curvature(w, self.live))

    def keep(self, index: Tensor) -> None:
        self.live, self.mask = self.live[index], self.mask[:, index]

    def precondition(self, g: Tensor) -> Tensor:
        return self.mask * (self.inverse.t() @ (self.mask * (self.inverse @ g)))


class _Streamed(_Columns):
    """Each trial is a pass, which gives the gradient there too."""

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        loss, self.slope = loss_and_slope(self.problem.margins(w, self.live))
        return loss, self.slope * self.mask

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        loss, self.slope = loss_and_slope(
            self.problem.margins(self.w + t * self.direction, self.live)
        )
        return loss, (self.slope * self.direction).sum(0)

    def arrive(self, t: Tensor) -> Tensor:
        return self.slope * self.mask


class _Held(_Columns):
    """Margins are held: a trial takes no product."""

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        [(self.x, self.sign, self.margins)] = blocks = list(self.problem.margins(w, self.live))
        loss, slope = loss_and_slope(blocks)
        return loss, slope * self.mask

    def aim(self, w: Tensor, direction: Tensor) -> None:
        super().aim(w, direction)
        self.change = self.sign * (self.x @ direction)

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        here = torch.addcmul(self.margins, t, self.change)
        self.sigma = here.sigmoid()
        return softplus(here).mean(0), (self.sigma * self.change).mean(0)

    def arrive(self, t: Tensor) -> Tensor:
        self.margins.addcmul_(t, self.change)
        return self.x.t() @ (self.sigma * self.sign) / len(self.x) * self.mask

    def keep(self, index: Tensor) -> None:
        super().keep(index)
        self.sign, self.margins = self.sign[:, index], self.margins[:, index]


class _Minimiser:
    """The columns that still move (`live`): weights, gradient, memory."""

    def __init__(self, objective: Objective, start: Tensor, columns: Tensor) -> None:
        self.objective, self.ridge, self.live = objective, objective.ridge, columns
        self.w = start
        self.loss, slope = objective.begin(start)
        self.gradient, self.scale = slope + self.ridge * start, torch.ones_like(slope[0])
        self.memory: list[tuple[Tensor, Tensor, Tensor]] = []
        self.direction, self.descent = torch.zeros_like(self.w), torch.zeros_like(slope[0])

    def keep(self, wanted: Tensor) -> None:
        """Drop all columns but some, bool (C,)."""
        if wanted.all():
            return
        index = wanted.nonzero().squeeze(1)
        self.live, self.loss = self.live[index], self.loss[index]
        self.scale, self.descent = self.scale[index], self.descent[index]
        self.w = self.w[:, index]
        self.gradient, self.direction = self.gradient[:, index], self.direction[:, index]
        self.memory = [(s[:, index], y[:, index], rho[index]) for s, y, rho in self.memory]
        self.objective.keep(index)

    def aim(self) -> Tensor:
        """Choose the direction -H g by the two-loop recursion; return g'Hg/2, (C,)."""
        q = self.gradient.clone()
        alphas = []
        for s, y, rho in reversed(self.memory):
            alphas.append(rho * (s * q).sum(0))
            q -= alphas[-1] * y
        q = self.objective.precondition(q) * self.scale
        for (s, y, rho), alpha in zip(self.memory, reversed(alphas), strict=True):
            q += s * (alpha - rho * (y * q).sum(0))
        self.direction = -q
        self.descent = (self.gradient * self.direction).sum(0)
        return -self.descent / 2

    def advance(self) -> Tensor:
        """Take a strong Wolfe step along the direction; return which columns moved, bool (C,)."""
        self.objective.aim(self.w, self.direction)
        step, self.loss = self._line_search()
        slope = self.objective.arrive(step)
        s = step.to(self.w.dtype) * self.direction
        self.w = self.w + s
        gradient = slope + self.ridge * self.w
        self._remember(s, gradient - self.gradient)
        self.gradient = gradient
        return step > 0

    def _line_search(self) -> tuple[Tensor, Tensor]:
        """Find steps (0 where there is none) and mean losses there, (C,) each.

        The objective along the line is convex, so its slope brackets the minimum; trials are
        secants of the slope. The last trial is at the steps that are returned.
        """
        linear = (self.ridge * self.w * self.direction).sum(0)
        square = (self.ridge * self.direction.square()).sum(0)
        low, low_slope = torch.zeros_like(self.descent), self.descent
        high, high_slope = torch.full_like(low, torch.inf), torch.zeros_like(low)
        t, done = torch.ones_like(low), torch.zeros_like(low, dtype=torch.bool)
        rounding = 4 * torch.finfo(self.w.dtype).eps * self.loss
        for _ in range(TRIALS):
            data, at = self.objective.trial(t)
            at = at + linear + square * t
            drop = data - self.loss + t * linear + t.square() * square / 2
            enough = drop <= ARMIJO * t * self.descent + rounding
            done |= enough & (at.abs() <= CURVATURE * self.descent.abs())
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
        return t, self.objective.trial(t)[0]

    def _remember(self, s: Tensor, y: Tensor) -> None:
        """Take a step and the change of the gradient into the memory, where curvature is safe."""
        tiny, curvature = torch.finfo(s.dtype).tiny, (s * y).sum(0)
        safe = curvature > tiny
        self.memory = [*self.memory[1 - MEMORY :], (s, y, torch.where(safe, 1 / curvature, 0.0))]
        size = (y * self.objective.precondition(y)).sum(0)
        self.scale = torch.where(safe & (size > tiny), curvature / size, self.scale)


def descend(
    objective: Objective,
    start: Tensor,
    columns: Tensor | None = None,
    *,
    iterations: int = 150,
    tolerance: float = 1e-6,
) -> Solution:
    """Descend to the optima of some columns of weights.

    Parameters
    ----------
    objective
        What is minimised. Where it is not convex, this ends at a point without slope, if at all.
    start
        Weights to start from, (p, C).
    columns
        Which columns, int64; by default all. The others keep their start.
    iterations
        Most iterations.
    tolerance
        A column has converged when g'Hg/2, about its loss above the optimum, is below this, nats;
        or when it is within the rounding of the loss.

    Returns
    -------
    Solution
        Weights, remaining decrement, iterations.
    """
    if columns is None:
        columns = torch.arange(start.shape[1], device=start.device)
    fit = _Minimiser(objective, start[:, columns], columns)
    w, decrement = start.clone(), fit.gradient.new_zeros(start.shape[1])
    eps = torch.finfo(w.dtype).eps
    for iteration in range(iterations + 1):
        decrement[fit.live] = left = fit.aim()
        fit.keep(left > (eps * fit.loss).clamp_min(tolerance))
        if not len(fit.live) or iteration == iterations:
            break
        moved = fit.advance()
        w[:, fit.live] = fit.w
        fit.keep(moved)  # a step of length 0: rounding hides what is left
        if not len(fit.live):
            break
    return Solution(w, decrement, iteration)
