"""Convex forms: linear, diagonal, quadratic, positions, and quadratic with positions beside it.

Linear, diagonal and quadratic are a ladder: each starts from the one it contains. The quadratic
form with the table of the family `position` is the fair opponent of `class_position`: what two
tokens say of one object, given where they are. It is convex as both its parts are, and holds each
of them. It starts from g = r g_quadratic + s g_position + b, the optima of both and the three
numbers that lower the loss of train most, so that it has no greater loss of train than either;
where one of them validates better than that, it starts from the better one of them instead.

Also the spectrum of the quadratic form, and its truncation; and the cosine, with a scale and an
offset that are fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.lbfgs import descend
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.config import (
    ConvexScorer,
    CosineScorer,
    DiagonalScorer,
    LinearScorer,
    PositionScorer,
    QuadraticPositionScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.metrics import UNCHANGED, Calibration, Histogram
from bindscope.studies.same_object.scorers.base import Fitted, Scorer, Task, simple_columns
from bindscope.studies.same_object.scorers.convex import (
    FormScorer,
    Optimum,
    PairObjective,
    PairProblem,
    fitted_form,
    follow,
    start,
)
from bindscope.studies.same_object.scorers.forms import (
    Combination,
    Counts,
    Covariance,
    Diagonal,
    Form,
    Linear,
    Part,
    Quadratic,
)


def fitted_places(
    pairs: Sequence[Pairs],
    l2: Sequence[float],
    steps: int,
    checkpoints: Checkpoints | None = None,
) -> tuple[Form, Optimum]:
    """Fit the form of places to train and val, from the constant of train's share of pairs."""
    train, val = (Counts.count(split) for split in pairs)
    form = train.form()
    problem = PairProblem(form, (train, val))
    constant = start(form.size, train)
    return form, follow(problem, problem.evaluate(constant), constant, l2, steps, checkpoints)


def fit_position(config: PositionScorer, task: Task) -> list[Fitted]:
    """Fit the scorer of places."""
    fit = fitted_places(task.pairs(None), config.l2, config.steps, task.checkpoints)
    return [fitted_form(*fit)]


LADDER = ("linear", "diagonal", "quadratic")
# Ridge strengths of the table of positions beside tokens, with which its path begins.
POSITION_L2 = (1e-2, 1e-3, 1e-4)
MIXED = 1e-11  # nats above the optimum where a mixture ends
SHARE = 0.95  # of the sum of squares that the effective rank holds


@dataclass(frozen=True)
class Fit:
    """The data of a convex fit, read for it."""

    config: ConvexScorer
    # Mean and deviation of train; train and val, scaled; the covariance of train.
    scaling: Standardiser
    pairs: tuple[Pairs, Pairs]
    covariance: Covariance
    checkpoints: Checkpoints | None = None  # one for each form that is fitted

    @classmethod
    def begin(cls, config: ConvexScorer, task: Task) -> Fit:
        """Read train and val."""
        scaling = task.scaling()
        pairs = task.pairs(scaling)
        return cls(config, scaling, pairs, Covariance.measure(pairs[0]), task.checkpoints)

    def follow(self, form: Form, contained: Optimum, centre: Tensor) -> Optimum:
        """Fit a form from the optimum that it contains."""
        problem = PairProblem(form, self.pairs)
        return follow(
            problem, contained, centre, self.config.l2, self.config.steps, self.checkpoints
        )

    def climb(self, top: str) -> tuple[Form, Optimum]:
        """Fit the forms of the ladder up to one, from the constant of train's share of pairs."""
        form = form_of("linear", self.covariance)
        optimum = PairProblem(form, self.pairs).evaluate(start(form.size, self.pairs[0]))
        for name in LADDER[: LADDER.index(top) + 1]:
            weights = form.split(optimum.theta)
            form = form_of(name, self.covariance)
            if name == "quadratic":
                weights["matrix"] = torch.diag(weights["diagonal"])
            optimum = self.follow(form, optimum, form.join(weights))
        return form, optimum


def form_of(name: str, covariance: Covariance) -> Form:
    """Return a form of the ladder."""
    products: dict[str, list[Part]] = {
        "linear": [], "diagonal": [Diagonal(covariance)], "quadratic": [Quadratic(covariance)],
    }  # fmt: skip
    return Form([*products[name], Linear(covariance)])


def fit_form(config: LinearScorer | DiagonalScorer | QuadraticScorer, task: Task) -> list[Fitted]:
    """Fit a form of the ladder; of the quadratic one also its truncations, which come first."""
    this = Fit.begin(config, task)
    form, optimum = this.climb(config.family)
    if not isinstance(config, QuadraticScorer):
        return [fitted_form(form, optimum, this.scaling)]
    weights = form.split(optimum.theta)
    lambdas, rows = eigen(this.covariance, weights["matrix"])
    full = fitted_form(form, optimum, this.scaling, **spectrum_columns(lambdas))
    arrays = {"eigenvalues": lambdas.cpu().numpy(), "eigenrows": rows.cpu().numpy()}
    full = replace(full, weights={**full.weights, **arrays})
    cut = []
    for rank in sorted({min(rank, this.covariance.dim) for rank in config.ranks}):
        # Only the largest eigenvalues; nothing is fitted again.
        truncated = (rows[:rank].t() * lambdas[:rank]) @ rows[:rank]
        scorer = FormScorer(form, form.join({**weights, "matrix": truncated}))
        columns = simple_columns(scorer, this.pairs) | spectrum_columns(lambdas[:rank])
        columns["flags"] = full.columns["flags"]
        cut.append(replace(full, scorer=scorer, rank=rank, weights={}, columns=columns))
    return [*cut, full]


def eigen(covariance: Covariance, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose W (d, d) as tokens use it: S^1/2 W S^1/2, for the tokens' covariance S.

    Scores of two tokens drawn alone have the variance tr(W S W S), the sum of the squared
    eigenvalues, so the largest ones (by size) are the rank-k form that keeps most of it.

    Returns: float32 (d,) and (k-th row is S^-1/2 u_k, so that W = sum_k value_k row_k' row_k) (d,
    d); by falling size.
    """
    values, q = (part.double() for part in covariance.spectrum)
    inner = q.t() @ matrix.double() @ q
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
        return {"participation_ratio": 0.0, "effective_rank": 0}
    return {
        "participation_ratio": float(size.sum() ** 2) / total,
        "effective_rank": int((squares.cumsum(0) < SHARE * total).sum()) + 1,
    }


def mix(problem: PairProblem, parts: Sequence[Tensor]) -> Optimum:
    """Return the mixture of two weights (p,), or the better part if that validates better.

    `parts`: the optima that it contains, as weights of it. The mixture is fitted to train.
    """
    train, optima = problem.pairs[0], [problem.evaluate(theta) for theta in parts]
    begin = torch.eye(3, dtype=torch.float64, device=parts[0].device)
    begin = begin[int(optima[1].train_bits < optima[0].train_bits)]
    objective = PairObjective(Combination(problem.form, parts), train, begin, 0.0)
    solution = descend(objective, torch.zeros_like(begin)[:, None], tolerance=MIXED)
    r, s, b = (begin + solution.w[:, 0]).float()
    mixed = r * parts[0] + s * parts[1]
    mixed[-1] += b
    return min([problem.evaluate(mixed), *optima], key=lambda optimum: optimum.val_bits)


def fit_quadratic_position(config: QuadraticPositionScorer, task: Task) -> list[Fitted]:
    """Fit the quadratic form, the table of positions, and then both at once."""
    this = Fit.begin(config, task)
    quadratic, of_tokens = this.climb("quadratic")
    places, of_places = fitted_places(this.pairs, POSITION_L2, config.steps, task.checkpoints)
    form = Form([quadratic.parts[0], places.parts[0], quadratic.parts[1]])
    parts = [
        form.join(contained.split(optimum.theta))
        for contained, optimum in ((quadratic, of_tokens), (places, of_places))
    ]
    contained = mix(PairProblem(form, this.pairs), parts)
    optimum = this.follow(form, contained, contained.theta)
    lambdas, _ = eigen(this.covariance, form.split(optimum.theta)["matrix"])
    return [fitted_form(form, optimum, this.scaling, **spectrum_columns(lambdas))]


@dataclass(frozen=True)
class Cosine(Scorer):
    """g = scale cos(x, y) + offset."""

    by: Calibration = UNCHANGED

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        x = normalize(block.x, dim=-1)
        scores = block.packed(torch.bmm(x, x.transpose(1, 2)))
        return scores.mul_(self.by.scale).add_(self.by.offset)


def fit_cosine(config: CosineScorer, task: Task) -> list[Fitted]:
    """Fit scale and offset to the pairs of train.

    Scores are counted in fine bins, whose means stand for them: the loss is off by less than 1e-6.
    """
    pairs = task.pairs(None)
    plain, counted = Cosine(), Histogram()
    for block in pairs[0].blocks():
        counted.add(plain.logits(block).cpu().numpy(), block.same.cpu().numpy())
    scorer = Cosine(counted.calibrated())
    learned = {
        "slope": np.array([scorer.by.scale], np.float32),
        "offset": np.array([scorer.by.offset], np.float32),
    }
    columns = simple_columns(scorer, pairs)
    return [Fitted(scorer, columns=columns, weights=learned)]
