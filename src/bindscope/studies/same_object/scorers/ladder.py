"""The ladder of convex forms: linear, diagonal, quadratic, and quadratic with positions beside it.

Each starts from the one it contains. The quadratic form with the table of the family `position` is
the fair opponent of `class_position`: what two tokens say of one object, given where they are. It
is convex as both its parts are, and holds each of them. It starts from g = r g_quadratic +
s g_position + b, the optima of both and the three numbers that lower the loss of train most, so
that it has no greater loss of train than either; where one of them validates better than that, it
starts from the better one of them instead.

Also the spectrum of the quadratic form, and its truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.checkpoint import Checkpoints, take
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.probes_config import (
    DiagonalScorer,
    LinearScorer,
    QuadraticPositionScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.scorers.base import (
    Fitted,
    Split,
    Task,
    scaling_arrays,
    simple_columns,
)
from bindscope.studies.same_object.scorers.convex import (
    FormScorer,
    Optimum,
    PairProblem,
    follow,
    optimum_columns,
    start,
)
from bindscope.studies.same_object.scorers.forms import (
    Covariance,
    Diagonal,
    Form,
    Linear,
    Quadratic,
)
from bindscope.studies.same_object.scorers.position import LEAST, Places, fitted_places

LADDER: dict[str, type[Linear]] = {
    "linear": Linear, "diagonal": Diagonal, "quadratic": Quadratic,
}  # fmt: skip
# Ridge strengths of the table of positions beside tokens, with which its path begins.
POSITION_L2 = (1e-2, 1e-3, 1e-4)
SHARE = 0.95  # of the sum of squares that the effective rank holds


class Convex(Protocol):
    """How a convex form is fitted."""

    @property
    def l2(self) -> Sequence[float]:
        """Ridge strengths with which the path begins."""

    @property
    def steps(self) -> int:
        """Most iterations of each."""


@dataclass(frozen=True)
class Fit:
    """The data of a convex fit, read for it."""

    config: Convex  # of the family
    # Mean and deviation of train; train and val, scaled; the covariance of train.
    scaling: Standardiser
    pairs: tuple[Pairs, Pairs]
    covariance: Covariance
    checkpoints: Checkpoints | None = None  # one for each form that is fitted

    @classmethod
    def begin(cls, config: Convex, task: Task) -> Fit:
        """Read train and val."""
        scaling = task.scaling()
        pairs = task.pairs(scaling)
        return cls(config, scaling, pairs, Covariance.measure(pairs[0]), task.checkpoints)

    def follow(self, form: Form, contained: Optimum, centre: Tensor) -> Optimum:
        """Fit a form from the optimum that it contains."""
        problem = PairProblem(form, self.pairs)
        return follow(
            problem, contained, centre, self.config.l2, self.config.steps, take(self.checkpoints)
        )

    def climb(self, top: str) -> Optimum:
        """Fit the forms of the ladder up to one, from the constant of train's share of pairs."""
        lowest = Linear(self.covariance)
        optimum = PairProblem(lowest, self.pairs).evaluate(start(lowest.size, self.pairs[0]))
        for name, kind in LADDER.items():
            form = kind(self.covariance)
            optimum = self.follow(form, optimum, form.contain(optimum.theta))
            if name == top:
                break
        return optimum

    def fitted(self, form: Form, optimum: Optimum, **more: Any) -> Fitted:
        """Return a form at its optimum as what a fit returns; `more` are columns of its row."""
        named = form.named(optimum.theta)
        weights = {name: value.cpu().numpy() for name, value in named.items()}
        return Fitted(
            FormScorer(form, optimum.theta),
            self.scaling,
            columns=optimum_columns(optimum) | more,
            weights=weights | scaling_arrays(self.scaling),
            history=optimum.history,
        )


def fit_form(config: LinearScorer | DiagonalScorer | QuadraticScorer, task: Task) -> list[Fitted]:
    """Fit a form of the ladder; of the quadratic one also its truncations, which come first."""
    this = Fit.begin(config, task)
    form, optimum = LADDER[config.family](this.covariance), this.climb(config.family)
    if config.family != "quadratic":
        return [this.fitted(form, optimum)]
    assert isinstance(form, Quadratic)
    lambdas, rows = eigen(form, optimum.theta)
    full = this.fitted(form, optimum, **spectrum_columns(lambdas))
    arrays = {"eigenvalues": lambdas.cpu().numpy(), "eigenrows": rows.cpu().numpy()}
    full = replace(full, weights={**full.weights, **arrays})
    ranks = sorted({min(rank, form.dim) for rank in config.ranks})
    cut = []
    for rank in ranks:
        scorer = FormScorer(form, truncated(form, optimum.theta, lambdas, rows, rank))
        columns = simple_columns(scorer, this.pairs) | spectrum_columns(lambdas[:rank])
        columns["flags"] = full.columns["flags"]
        cut.append(replace(full, scorer=scorer, rank=rank, weights={}, history=(), columns=columns))
    return [*cut, full]


def eigen(form: Quadratic, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose W as tokens use it: S^1/2 W S^1/2, for the tokens' covariance S.

    Scores of two tokens drawn alone have the variance tr(W S W S), the sum of the squared
    eigenvalues, so the largest ones (by size) are the rank-k form that keeps most of it.

    Returns: float32 (d,) and (k-th row is S^-1/2 u_k, so that W = sum_k value_k row_k' row_k) (d,
    d); by falling size.
    """
    values, q = (part.double() for part in form.covariance.spectrum)
    inner = q.t() @ form.matrix(theta).double() @ q
    root = values.sqrt()
    lambdas, u = torch.linalg.eigh(root[:, None] * inner * root)
    order = lambdas.abs().argsort(descending=True, stable=True)
    rows = (u[:, order].t() / root) @ q.t()
    return lambdas[order].float(), rows.float()


def spectrum_columns(lambdas: Tensor) -> dict[str, Any]:
    """Return how many directions a form uses: eigenvalues (d,) of `eigen`.

    The participation ratio is (sum |l|)^2 / sum l^2, the effective rank the number of the largest
    that hold 95 % of the sum of squares.
    """
    size = lambdas.abs().double()
    squares = size.square()
    total = float(squares.sum())
    if total == 0:
        return {"participation_ratio": 0.0, "effective_rank": 0, "negative_share": 0.0}
    n_needed = int((squares.cumsum(0) < SHARE * total).sum()) + 1
    return {
        "participation_ratio": float(size.sum() ** 2) / total,
        "effective_rank": n_needed,
        "negative_share": float(squares[lambdas < 0].sum()) / total,
    }


def truncated(form: Quadratic, theta: Tensor, lambdas: Tensor, rows: Tensor, rank: int) -> Tensor:
    """Return the weights (p,) with only the largest eigenvalues; nothing is fitted again."""
    largest = rows[:rank]
    matrix = (largest.t() * lambdas[:rank]) @ largest
    return torch.cat([matrix.view(-1), theta[form.linear_start :]])


NEWTON, HALVINGS = 20, 10  # steps of the start, and halvings of one of them, at most
ENDED = 1e-7  # nats that a step of the start gains at least


@dataclass(frozen=True)
class QuadraticPlaces(Quadratic):
    """g = x' W y + t(places apart) + u(place) + u(other place) + the linear form.

    Weights [W; t; u; a; b].
    """

    places: Places  # the form of positions, whose weights are [t; u; b]

    @property
    def table(self) -> slice:
        """Where t and u are among the weights."""
        return slice(self.dim**2, self.linear_start)

    @property
    def linear_start(self) -> int:
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
    """Mean loss of train's pairs at r theta_1 + s theta_2 of a form, and b more in its bias."""

    form: Form
    pairs: Split
    thetas: Sequence[Tensor]  # two weights (p,)

    def evaluate(self, numbers: Tensor) -> tuple[float, Tensor, Tensor]:
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
        numbers: Tensor = min(parts, key=lambda point: self.evaluate(point)[0])
        loss, slope, curved = self.evaluate(numbers)
        for _ in range(NEWTON):
            guard = 1e-9 * torch.eye(3, dtype=torch.float64, device=device)
            step = torch.linalg.solve(curved + guard * curved.trace(), slope)
            for k in range(HALVINGS):
                tried = numbers - step / 2**k
                candidate = self.evaluate(tried)
                if candidate[0] < loss:
                    break
            else:
                return numbers
            gained = loss - candidate[0]
            numbers, (loss, slope, curved) = tried, candidate
            if gained < ENDED:
                break
        return numbers


def mix(problem: PairProblem, parts: Sequence[Tensor]) -> Optimum:
    """Return the mixture of two weights (p,), or the better part if that validates better.

    `parts`: the optima that it contains, as weights of it.
    """
    r, s, b = _Mixture(problem.form, problem.pairs[0], parts).lowest().float()
    mixed = r * parts[0] + s * parts[1]
    mixed[-1] += b
    return min(
        (problem.evaluate(theta) for theta in (mixed, *parts)), key=lambda optimum: optimum.val_bits
    )


def fit_quadratic_position(config: QuadraticPositionScorer, task: Task) -> list[Fitted]:
    """Fit the quadratic form, the table of positions, and then both at once."""
    this = Fit.begin(config, task)
    of_tokens = this.climb("quadratic")
    checkpoint = take(this.checkpoints)
    places, of_places = fitted_places(this.pairs, POSITION_L2, config.steps, checkpoint)
    form = QuadraticPlaces(this.covariance, places)
    parts = [form.contain(of_tokens.theta), form.contain_places(of_places.theta)]
    contained = mix(PairProblem(form, this.pairs), parts)
    optimum = this.follow(form, contained, contained.theta)
    lambdas, _ = eigen(form, optimum.theta)
    return [this.fitted(form, optimum, **spectrum_columns(lambdas))]
