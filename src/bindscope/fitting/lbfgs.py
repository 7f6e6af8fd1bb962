"""L-BFGS for the columns of a matrix of weights, which advance together to their convex optima.

All columns advance in the same matrix products, each with its own memory (Nocedal and Wright,
*Numerical Optimization*, algorithms 7.4 and 7.5) and its own strong Wolfe step. Converged columns
leave the products. A descent that is killed goes on from its checkpoint and ends in the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from bindscope.fitting.checkpoint import Checkpoint, State

MEMORY = 10
ARMIJO, CURVATURE, TRIALS = 1e-4, 0.9, 12  # of a line search
_MOVING = ("live", "w", "loss", "gradient", "scale")  # of a `_Minimiser`


class Solution(NamedTuple):
    """Where the minimiser stopped: weights (p, C), and iterations of the slowest column.

    `decrement` is g'Hg/2 of each column, about its loss above the optimum, in nats (C,); 0 of those
    that were not to be fitted.
    """

    w: Tensor
    decrement: Tensor
    iterations: int


class Objective(Protocol):
    """Convex functions of the columns of weights (p, C), which a `_Minimiser` descends.

    The minimiser adds w' diag(ridge) w / 2, `ridge` (p, 1): it is not part of loss and slope.
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


@runtime_checkable
class Resumable(Objective, Protocol):
    """An objective whose descent can go on in another process."""

    def state(self) -> dict[str, Tensor]:
        """Return what, between two lines, more than the weights decides the next one."""

    def resume(self, live: Tensor, state: dict[str, Tensor]) -> None:
        """Take the state of `state` after `begin`; `live` are numbers of the columns left, (c,)."""


class Evaluated(ABC):
    """A `Resumable` of one column, each of whose trials computes loss and gradient anew."""

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

    def state(self) -> dict[str, Tensor]:
        """Return nothing: each line begins with its weights alone."""
        return {}

    def resume(self, live: Tensor, state: dict[str, Tensor]) -> None:
        """Do nothing: `begin` has done all."""
        del live, state


class _Minimiser:
    """The columns that still move (`live`): weights, gradient, memory."""

    def __init__(self, objective: Objective, start: Tensor, columns: Tensor) -> None:
        self.objective, self.ridge, self.live = objective, objective.ridge, columns
        self.w = start
        self.loss, slope = objective.begin(start)
        self.gradient, self.scale = slope + self.ridge * start, torch.ones_like(slope[0])
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
            falling = ~done & ~right
            high, high_slope = torch.where(right, t, high), torch.where(right, at, high_slope)
            low, low_slope = torch.where(falling, t, low), torch.where(falling, at, low_slope)
            share = (low_slope / (low_slope - high_slope.clamp_min(0))).clamp(0.1, 0.9)
            inside = low + (high - low) * share
            t = torch.where(done, t, torch.where(high.isinf(), t * 4, inside))
        t = torch.where(done, t, low)
        return t, self.objective.trial(t)[0]

    def state(self) -> dict[str, Tensor]:
        """Return what the next line depends on, but for the objective."""
        memory = {
            f"{i}.{name}": value
            for i, each in enumerate(self.memory)
            for name, value in zip(("s", "y", "rho"), each, strict=True)
        }
        return memory | {name: getattr(self, name) for name in _MOVING}

    def resume(self, state: dict[str, Tensor]) -> None:
        """Take such a state."""
        for name in _MOVING:
            setattr(self, name, state[name])
        n = sum(name.endswith(".rho") for name in state)
        self.memory = [(state[f"{i}.s"], state[f"{i}.y"], state[f"{i}.rho"]) for i in range(n)]

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
    checkpoint: Checkpoint | None = None,
) -> Solution:
    """Descend from `start` (p, C) to the optima of some columns; others keep their start.

    A column has converged when g'Hg/2, about its loss above the optimum, is below `tolerance` nats;
    or when it is within the rounding of the loss. Where the objective is not convex, this ends at a
    point without slope, if at all. The state of a long descent is written to `checkpoint`, and read
    from it at the start; the objective is `Resumable` then.
    """
    if columns is None:
        columns = torch.arange(start.shape[1], device=start.device)
    fit = _Minimiser(objective, start[:, columns], columns)
    w, decrement = start.clone(), fit.gradient.new_zeros(start.shape[1])
    eps, first, saved_s = torch.finfo(w.dtype).eps, 0, monotonic()
    if checkpoint and (state := checkpoint.read()) is not None:
        first = state[1]["step"]
        w, decrement = _resume(fit, state)
    for iteration in range(first, iterations + 1):
        if checkpoint and iteration > first and checkpoint.is_due(monotonic() - saved_s):
            checkpoint.write(*_state(fit, w, decrement, iteration))
            saved_s = monotonic()
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


def _state(fit: _Minimiser, w: Tensor, decrement: Tensor, iteration: int) -> State:
    """Return what the rest of a descent depends on, before an iteration."""
    assert isinstance(fit.objective, Resumable)
    beside = {f"objective.{name}": value for name, value in fit.objective.state().items()}
    state = {"all.w": w, "all.decrement": decrement, **fit.state(), **beside}
    # Sums round otherwise where columns lie otherwise in memory.
    turned = [name for name, value in state.items() if _is_turned(value)]
    state |= {name: state[name].t() for name in turned}
    return state, {"step": iteration, "turned": turned}


def _is_turned(value: Tensor) -> bool:
    return value.dim() == 2 and not value.is_contiguous() and value.t().is_contiguous()


def _resume(fit: _Minimiser, state: State) -> tuple[Tensor, Tensor]:
    """Take such a state; return the weights and decrements of all columns."""
    assert isinstance(fit.objective, Resumable)
    tensors = {name: value.to(fit.w.device) for name, value in state[0].items()}
    tensors |= {name: tensors[name].t() for name in state[1]["turned"]}
    live = torch.searchsorted(fit.live, tensors["live"])  # columns are in falling order
    names = [name for name in tensors if name.startswith("objective.")]
    fit.resume(tensors)
    fit.objective.resume(live, {name.removeprefix("objective."): tensors[name] for name in names})
    return tensors["all.w"], tensors["all.decrement"]
