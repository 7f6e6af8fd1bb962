"""Quadratic scorer with the table of positions of the family `position` beside it.

The fair opponent of `class_position`: what two tokens say of one object, given where they are. It
is convex as both its parts are, and holds each of them. It starts from g = r g_quadratic +
s g_position + b, the optima of both and the three numbers that lower the loss of train most, so
that it has no greater loss of train than either; where one of them validates better than that, it
starts from the better one of them instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.scorers.base import Fitted, Split, Task
from bindscope.studies.same_object.scorers.convex import Optimum, PairProblem
from bindscope.studies.same_object.scorers.forms import Form, Quadratic
from bindscope.studies.same_object.scorers.ladder import Fit, eigen, spectrum_columns
from bindscope.studies.same_object.scorers.position import LEAST, Places, fitted_places

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import QuadraticPositionScorer

NEWTON, HALVINGS = 20, 10  # steps of the start, and halvings of one of them, at most
ENDED = 1e-7  # nats that a step of the start gains at least


@dataclass(frozen=True)
class QuadraticPlaces(Quadratic):
    """g = x' W y + t(places apart) + u(place) + u(other place) + the linear form.

    Weights [W; t; u; a; b].

    Attributes
    ----------
    places
        The form of positions, whose weights are [t; u; b].
    """

    places: Places

    @property
    def table(self) -> slice:
        """Where t and u are among the weights."""
        return slice(self.dim**2, self.own)

    @property
    def own(self) -> int:
        """Weights before [a; b]."""
        return self.dim**2 + 2 * self.places.cells

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Return W, t, u, a and b."""
        return {**super().named(theta), **self.places.tables(theta[self.table])}

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return logits (P,)."""
        table = self.places.tabled(theta[self.table], block)
        return super().logits(theta, block).add_(table)

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return the gradient (p,)."""
        table = self.places.slope(residuals, block)[:-1]
        return self._joined(super().slope(residuals, block), table)

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take the table for itself, weight by weight."""
        curvature = (self.places.curvature[:-1] + l2).clamp_min(LEAST)
        return self._joined(super().precondition(gradient, l2), gradient[self.table] / curvature)

    def _joined(self, quadratic: Tensor, table: Tensor) -> Tensor:
        """Put weights [W; a; b] and [t; u] together."""
        d2 = self.dim**2
        return torch.cat([quadratic[:d2], table, quadratic[d2:]])

    def contain(self, theta: Tensor) -> Tensor:
        """Return the weights whose form is a quadratic one with weights (d^2 + d + 1,)."""
        return self._joined(theta, theta.new_zeros(2 * self.places.cells))

    def contain_places(self, theta: Tensor) -> Tensor:
        """Return the weights whose form is that of places with weights (2 cells + 1,)."""
        rest = theta.new_zeros(self.dim**2 + self.dim)
        return self._joined(torch.cat([rest, theta[-1:]]), theta[:-1])


@dataclass(frozen=True)
class _Mixture:
    """Mean loss of train's pairs at the sum of two weights of a form, each times a number, and b.

    Attributes
    ----------
    thetas
        Two weights (p,).
    """

    form: Form
    pairs: Split
    thetas: Sequence[Tensor]

    def at(self, numbers: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the loss in nats at numbers (3,), its gradient and its Hessian; float64."""
        loss, n = 0.0, self.pairs.n_pairs
        slope, curved = numbers.new_zeros(3), numbers.new_zeros(3, 3)
        for block in self.pairs.blocks():
            parts = [self.form.logits(theta, block) for theta in self.thetas]
            x = torch.stack([*parts, torch.ones_like(parts[0])], 1).double()
            sign = block.sign.double()
            margins = (x @ numbers) * sign
            p = margins.sigmoid()
            loss += float(softplus(margins).sum())
            slope += x.t() @ (p * sign)
            curved += x.t() @ ((p * (1 - p))[:, None] * x)
        return loss / n, slope / n, curved / n

    def lowest(self) -> Tensor:
        """Return the numbers of the smallest loss, by damped Newton steps from the better part."""
        device = self.thetas[0].device
        parts = list(torch.eye(3, dtype=torch.float64, device=device)[:2])
        numbers: Tensor = min(parts, key=lambda one: self.at(one)[0])
        loss, slope, curved = self.at(numbers)
        for _ in range(NEWTON):
            guard = 1e-9 * torch.eye(3, dtype=torch.float64, device=device)
            step = torch.linalg.solve(curved + guard * curved.trace(), slope)
            for k in range(HALVINGS):
                tried = numbers - step / 2**k
                found = self.at(tried)
                if found[0] < loss:
                    break
            else:
                return numbers
            gained = loss - found[0]
            numbers, (loss, slope, curved) = tried, found
            if gained < ENDED:
                break
        return numbers


def start(problem: PairProblem, parts: Sequence[Tensor]) -> Optimum:
    """Return the mixture of two weights (p,), or the better part if that validates better.

    Parameters
    ----------
    problem
        The form on train and validation.
    parts
        The optima that it contains, as weights of it.
    """
    r, s, b = _Mixture(problem.form, problem.pairs[0], parts).lowest().float()
    mixed = r * parts[0] + s * parts[1]
    mixed[-1] += b
    return min((problem.at(theta) for theta in (mixed, *parts)), key=lambda one: one.val_bits)


def fit(config: QuadraticPositionScorer, task: Task) -> list[Fitted]:
    """Fit the quadratic form, the table of positions, and then both at once."""
    this = Fit.of(config, task)
    of_tokens = this.climb("quadratic")
    places, of_places = fitted_places(this.pairs, config.position_l2, config.steps)
    form = QuadraticPlaces(this.covariance, places)
    parts = [form.contain(of_tokens.theta), form.contain_places(of_places.theta)]
    contained = start(PairProblem(form, this.pairs), parts)
    found = this.follow(form, contained, contained.theta)
    lambdas, _ = eigen(form, found.theta)
    return [this.fitted(form, found, **spectrum_columns(lambdas))]
