"""Softmax regression without bias on soft targets, to its convex optimum.

Minimised over W (V, d) is the mean over scenes of the cross-entropy between the targets and
softmax(W z), plus ridge/2 |W|^2.  Its Hessian is at most (I - 1/V) / 2 times Z'Z/n (Boehning 1992),
which preconditions the L-BFGS of `bindscope.fitting`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class LinearObjective(ABC):
    """A convex loss of logits Z W', as one column of weights (V d, 1).

    Logits are held, so that a trial of a line search takes no product.

    Parameters
    ----------
    z
        float64 (n, d).
    n_rows
        Rows V of W.
    ridge
        Half of it times |W|^2 is added to the loss.
    """

    def __init__(self, z: Tensor, n_rows: int, ridge: float) -> None:
        self.z, self.n_rows = z, n_rows
        self.ridge = torch.full((1, 1), ridge, dtype=z.dtype, device=z.device)
        bound = z.t() @ z / (2 * len(z))
        bound.diagonal().add_(ridge)
        self.factor: Tensor = torch.linalg.cholesky(bound)

    @abstractmethod
    def losses(self, logits: Tensor) -> Tensor:
        """Return the loss of each scene (n,) in nats."""

    @abstractmethod
    def residual(self, logits: Tensor) -> Tensor:
        """Return its derivative by the logits (n, V)."""

    def _matrix(self, w: Tensor) -> Tensor:
        return w.view(self.n_rows, -1)

    def _loss(self, logits: Tensor) -> Tensor:
        return self.losses(logits).mean()[None]

    def _slope(self, logits: Tensor) -> Tensor:
        return (self.residual(logits).t() @ self.z / len(self.z)).reshape(-1, 1)

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and slope at some weights; see `bindscope.fitting.lbfgs`."""
        self.logits = self.z @ self._matrix(w).t()
        return self._loss(self.logits), self._slope(self.logits)

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Prepare a line search."""
        del w  # the logits at w are held
        self.change = self.z @ self._matrix(direction).t()

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and directional derivative along it."""
        logits = self.logits + t * self.change
        return self._loss(logits), (self.residual(logits) * self.change).sum(1).mean()[None]

    def arrive(self, t: Tensor) -> Tensor:
        """Return the slope where it ended."""
        self.logits = self.logits + t * self.change
        return self._slope(self.logits)

    def keep(self, index: Tensor) -> None:
        """Nothing to drop."""
        del index  # there is one column, and when it stops all is over

    def precondition(self, g: Tensor) -> Tensor:
        """Solve with the bound of the Hessian."""
        solved: Tensor = torch.cholesky_solve(self._matrix(g).t(), self.factor)
        return solved.t().reshape(-1, 1)


class _SoftmaxObjective(LinearObjective):
    def __init__(self, z: Tensor, targets: Tensor, ridge: float) -> None:
        super().__init__(z, targets.shape[1], ridge)
        self.targets = targets

    def losses(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits, 1) - (self.targets * logits).sum(1)

    def residual(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1) - self.targets


def minimised(objective: LinearObjective) -> Softmax:
    """Minimise a loss from weights of 0 on."""
    n_rows, dim = objective.n_rows, objective.z.shape[1]
    start = objective.z.new_zeros(n_rows * dim, 1)
    found = descend(objective, start, iterations=ITERATIONS, tolerance=TOLERANCE)
    return Softmax(found.w.view(n_rows, -1), float(found.decrement))


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
    return minimised(_SoftmaxObjective(z, targets, ridge))
