"""Softmax regression without bias on soft targets, to its convex optimum.

Minimised over W (V, d) is the mean over scenes of the cross-entropy between the targets and
softmax(W z), plus ridge/2 |W|^2.  Its Hessian is at most (I - 1/V) / 2 times Z'Z/n (Boehning 1992),
which preconditions the L-BFGS of `bindscope.fitting`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bindscope.fitting.lbfgs import descend

TOLERANCE = 1e-6  # nats
ITERATIONS = 1000


@dataclass(frozen=True)
class Softmax:
    """A fitted regression.

    Attributes
    ----------
    weights
        float64 (V, d).
    excess_nats
        About how far the loss is above its minimum.
    converged
        Whether that is below `TOLERANCE`.
    """

    weights: Tensor
    excess_nats: float

    @property
    def converged(self) -> bool:
        """Whether the fit ended at its optimum."""
        return self.excess_nats <= TOLERANCE


class _Objective:
    """The loss as one column of weights (V d, 1); logits are held, so a trial takes no product."""

    def __init__(self, z: Tensor, targets: Tensor, ridge: float) -> None:
        self.z, self.targets = z, targets
        self.ridge = torch.full((1, 1), ridge, dtype=z.dtype)
        bound = z.t() @ z / (2 * len(z))
        bound.diagonal().add_(ridge)
        self.factor: Tensor = torch.linalg.cholesky(bound)

    def _matrix(self, w: Tensor) -> Tensor:
        return w.view(self.targets.shape[1], -1)

    def _loss(self, logits: Tensor) -> Tensor:
        inside = (self.targets * logits).sum(1)
        return (torch.logsumexp(logits, 1) - inside).mean()[None]

    def _slope(self, logits: Tensor) -> Tensor:
        residual = torch.softmax(logits, 1) - self.targets
        return (residual.t() @ self.z / len(self.z)).reshape(-1, 1)

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        self.logits = self.z @ self._matrix(w).t()
        return self._loss(self.logits), self._slope(self.logits)

    def aim(self, w: Tensor, direction: Tensor) -> None:
        del w  # the logits at w are held
        self.change = self.z @ self._matrix(direction).t()

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.logits + t * self.change
        residual = torch.softmax(logits, 1) - self.targets
        return self._loss(logits), (residual * self.change).sum(1).mean()[None]

    def arrive(self, t: Tensor) -> Tensor:
        self.logits = self.logits + t * self.change
        return self._slope(self.logits)

    def keep(self, index: Tensor) -> None:
        del index  # there is one column, and when it stops all is over

    def precondition(self, g: Tensor) -> Tensor:
        solved: Tensor = torch.cholesky_solve(self._matrix(g).t(), self.factor)
        return solved.t().reshape(-1, 1)


def fit_softmax(z: Tensor, targets: Tensor, ridge: float) -> Softmax:
    """Fit a softmax regression.

    Parameters
    ----------
    z
        float64 (n, d).
    targets
        Rows that sum to 1, float64 (n, V).
    ridge
        Positive: without it, separable data have no optimum.
    """
    start = z.new_zeros(targets.shape[1] * z.shape[1], 1)
    objective = _Objective(z, targets, ridge)
    found = descend(objective, start, iterations=ITERATIONS, tolerance=TOLERANCE)
    return Softmax(found.w.view(targets.shape[1], -1), float(found.decrement))
