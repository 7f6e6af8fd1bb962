"""Full quadratic scorer, from the optimum of the diagonal one, and its spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.convex import FormScorer, Optimum
from bindscope.studies.same_object.scorers.diagonal import optimum as diagonal_optimum
from bindscope.studies.same_object.scorers.forms import Quadratic
from bindscope.studies.same_object.scorers.linear import Fit

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import QuadraticScorer

SHARE = 0.95  # of the sum of squares that the effective rank holds


def optimum(this: Fit) -> Optimum:
    """Fit the quadratic form, after the diagonal one that it contains."""
    form, contained = Quadratic(this.covariance), diagonal_optimum(this)
    return this.follow(form, contained, form.contain(contained.theta))


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


def fit(config: QuadraticScorer, task: Task) -> list[Fitted]:
    """Fit the quadratic scorer."""
    this = Fit.of(config, task)
    form, found = Quadratic(this.covariance), optimum(this)
    lambdas, rows = eigen(form, found.theta)
    named = {
        "matrix": form.matrix(found.theta),
        "linear": found.theta[form.own : -1],
        "bias": found.theta[-1:],
        "eigenvalues": lambdas,
        "eigenrows": rows,
    }
    full = this.fitted(form, found, named, **spectrum_columns(lambdas))
    ranks = sorted({min(rank, form.dim) for rank in config.ranks})
    return [*(truncated(full, form, found.theta, rank) for rank in ranks), full]


def truncated(full: Fitted, form: Quadratic, theta: Tensor, rank: int) -> Fitted:
    """Return the fitted form with only the largest `rank` eigenvalues; nothing is fitted again."""
    lambdas, rows = (torch.from_numpy(full.weights[name]) for name in ("eigenvalues", "eigenrows"))
    kept, values = rows[:rank].to(theta), lambdas[:rank].to(theta)
    matrix = (kept.t() * values) @ kept
    scorer = FormScorer(form, torch.cat([matrix.view(-1), theta[form.own :]]))
    columns = spectrum_columns(lambdas[:rank]) | {"flags": full.columns["flags"]}
    return Fitted(scorer, full.scaling, full.norm, rank=rank, columns=columns)
