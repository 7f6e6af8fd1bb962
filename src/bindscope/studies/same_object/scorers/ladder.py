"""The ladder of convex forms, linear, diagonal and quadratic: each starts from the one it contains.

Also the spectrum of the quadratic form, and its truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Pairs, TokenNorm
from bindscope.studies.same_object.scorers.base import (
    Fitted,
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

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import (
        DiagonalScorer,
        LinearScorer,
        QuadraticScorer,
    )

LADDER: dict[str, type[Linear]] = {
    "linear": Linear, "diagonal": Diagonal, "quadratic": Quadratic,
}  # fmt: skip
SHARE = 0.95  # of the sum of squares that the effective rank holds


class Convex(Protocol):
    """How a convex form is fitted."""

    @property
    def token_norm(self) -> TokenNorm:
        """Scaling of every token for itself."""

    @property
    def l2(self) -> Sequence[float]:
        """Ridge strengths with which the path begins."""

    @property
    def steps(self) -> int:
        """Most iterations of each."""


@dataclass(frozen=True)
class Fit:
    """The data of a convex fit, read for it.

    Attributes
    ----------
    config
        Of the family.
    scaling, pairs, covariance
        Mean and deviation of train; train and val, scaled; the covariance of train.
    """

    config: Convex
    scaling: Standardiser
    pairs: tuple[Pairs, Pairs]
    covariance: Covariance

    @classmethod
    def of(cls, config: Convex, task: Task) -> Fit:
        """Read train and val."""
        scaling = task.scaling(config.token_norm)
        pairs = task.pairs(scaling, config.token_norm)
        return cls(config, scaling, pairs, Covariance.of(pairs[0]))

    def follow(self, form: Form, contained: Optimum, centre: Tensor) -> Optimum:
        """Fit a form from the optimum that it contains."""
        problem = PairProblem(form, self.pairs)
        return follow(problem, contained, centre, self.config.l2, self.config.steps)

    def climb(self, top: str) -> Optimum:
        """Fit the forms of the ladder up to one, from the constant of train's share of pairs."""
        lowest = Linear(self.covariance)
        found = PairProblem(lowest, self.pairs).at(start(lowest.size, self.pairs[0]))
        for name, kind in LADDER.items():
            form = kind(self.covariance)
            found = self.follow(form, found, form.contain(found.theta))
            if name == top:
                break
        return found

    def fitted(self, form: Form, found: Optimum, **more: Any) -> Fitted:
        """Return a form at its optimum as what a fit returns; `more` are columns of its row."""
        named = form.named(found.theta)
        weights = {name: value.cpu().numpy() for name, value in named.items()}
        return Fitted(
            FormScorer(form, found.theta),
            self.scaling,
            self.config.token_norm,
            columns=optimum_columns(found) | more,
            weights=weights | scaling_arrays(self.scaling),
            history=found.history,
        )


def fit(config: LinearScorer | DiagonalScorer | QuadraticScorer, task: Task) -> list[Fitted]:
    """Fit a form of the ladder; of the quadratic one also its truncations, which come first."""
    this = Fit.of(config, task)
    form, found = LADDER[config.family](this.covariance), this.climb(config.family)
    if config.family != "quadratic":
        return [this.fitted(form, found)]
    assert isinstance(form, Quadratic)
    lambdas, rows = eigen(form, found.theta)
    full = this.fitted(form, found, **spectrum_columns(lambdas))
    arrays = {"eigenvalues": lambdas.cpu().numpy(), "eigenrows": rows.cpu().numpy()}
    full = replace(full, weights={**full.weights, **arrays})
    ranks = sorted({min(rank, form.dim) for rank in config.ranks})
    cut = []
    for rank in ranks:
        scorer = FormScorer(form, truncated(form, found.theta, lambdas, rows, rank))
        columns = simple_columns(scorer, this.pairs) | spectrum_columns(lambdas[:rank])
        columns["flags"] = full.columns["flags"]
        cut.append(replace(full, scorer=scorer, rank=rank, weights={}, history=(), columns=columns))
    return [*cut, full]


def eigen(form: Quadratic, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose W as tokens use it: S^1/2 W S^1/2, for the tokens' covariance S.

    Scores of two tokens drawn alone have the variance tr(W S W S), the sum of the squared
    eigenvalues, so the largest ones (by size) are the rank-k form that keeps most of it.

    Returns
    -------
    float32 (d,) and (k-th row is S^-1/2 u_k, so that W = sum_k value_k row_k' row_k) (d, d); by
    falling size.
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
    held = int((squares.cumsum(0) < SHARE * total).sum()) + 1
    return {
        "participation_ratio": float(size.sum() ** 2) / total,
        "effective_rank": held,
        "negative_share": float(squares[lambdas < 0].sum()) / total,
    }


def truncated(form: Quadratic, theta: Tensor, lambdas: Tensor, rows: Tensor, rank: int) -> Tensor:
    """Return the weights (p,) with only the largest eigenvalues; nothing is fitted again."""
    kept = rows[:rank]
    matrix = (kept.t() * lambdas[:rank]) @ kept
    return torch.cat([matrix.view(-1), theta[form.own :]])
