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

from collections.abc import Iterator, Sequence
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
from bindscope.studies.same_object.data import Block, PairData, Pairs
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
    BOUND,
    Combination,
    Covariance,
    Diagonal,
    Form,
    Linear,
    Part,
    Quadratic,
)

Used = tuple[Tensor, Tensor, Tensor]
LEAST = 1e-8  # curvature that a weight is taken to have


@dataclass(frozen=True)
class Couples:
    """Two places with any pairs: those of the same object, and then those of others."""

    used: Used  # which weights each couple of places uses
    # -1 and 1, and how many pairs there are, float64 (K,).
    sign: Tensor
    weights: Tensor

    def counted(self, values: Tensor) -> Tensor:
        """Return values (K,) times how many pairs each stands for."""
        return values * self.weights


@dataclass(frozen=True)
class Table:
    """t(|rows apart|, |columns apart|) + u(place) + u(other place); weights [t; u]."""

    grid: tuple[int, int]  # rows and columns of the patch grid
    curvature: Tensor  # how much the loss of train may curve along each weight, (p,)
    name = "table"

    @property
    def shape(self) -> tuple[int]:
        """Two weights for each place."""
        return (2 * self.grid[0] * self.grid[1],)

    def logits(self, weights: Tensor, block: Block | Couples) -> Tensor:
        """Return logits (P,); of couples in float64, as each stands for many pairs."""
        weights = weights.double() if isinstance(block, Couples) else weights
        offset, first, second = self._used(block)
        return weights[offset] + weights[first] + weights[second]

    def slope(self, residuals: Tensor, block: Block | Couples) -> Tensor:
        """Return the gradient (p,)."""
        return summed(residuals, self._used(block), self.shape[0])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Divide by the diagonal."""
        return gradient / (self.curvature + l2).clamp_min(LEAST)

    def _used(self, block: Block | Couples) -> Used:
        """Return which weights pairs use: int64 (P,) each."""
        if isinstance(block, Couples):
            return block.used
        return used_by(*places(block, self.grid), self.grid)


def places(block: Block, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the places of the first and the second patches, int64 (P,) each."""
    by = block.positions.new_tensor([grid[1], 1])
    return block.both((block.positions * by).sum(-1).long())


def used_by(first: Tensor, second: Tensor, grid: tuple[int, int]) -> Used:
    """Return which weights pairs at two places (P,) use."""
    columns, cells = grid[1], grid[0] * grid[1]
    rows = (first // columns - second // columns).abs()
    offset = rows * columns + (first % columns - second % columns).abs()
    return offset, cells + first, cells + second


def summed(values: Tensor, used: Used, size: int) -> Tensor:
    """Return the sums (p,) of values (P,) over what uses a weight."""
    out = values.new_zeros(size)
    for index in used:
        out.index_add_(0, index, values)
    return out


@dataclass(frozen=True)
class Counts:
    """The pairs of a split by their two places, as `Pairs` has them one by one."""

    couples: Couples
    data: PairData
    device: torch.device
    in_memory: bool = False  # margins are made anew at every step, so that no rounding adds up

    @classmethod
    def count(cls, pairs: Pairs) -> Counts:
        """Count the pairs of a split."""
        grid = pairs.data.grid
        cells = grid[0] * grid[1]
        both = torch.zeros(2, cells**2, dtype=torch.int64, device=pairs.device)
        for block in pairs.blocks():
            first, second = places(block, grid)
            place = (~block.same).long() * cells**2 + first * cells + second
            both += torch.bincount(place, minlength=2 * cells**2).view(2, -1)
        different, there = both.nonzero().t()
        indices = used_by(there // cells, there % cells, grid)
        couples = Couples(indices, 2.0 * different.double() - 1.0, both[different, there].double())
        return cls(couples, pairs.data, pairs.device)

    @property
    def n_pairs(self) -> int:
        """Number of pairs, at least 1."""
        return max(self.data.n_pairs, 1)

    def blocks(self) -> Iterator[Couples]:
        """Start a pass."""
        return iter([self.couples])

    def form(self) -> Form:
        """Return the form of places, whose curvature is that of these pairs."""
        size = 2 * self.data.grid[0] * self.data.grid[1]
        share = BOUND * self.couples.weights / self.n_pairs
        return Form([Table(self.data.grid, summed(share, self.couples.used, size).float())])


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
    begin = torch.eye(3, device=parts[0].device)[int(optima[1].train_bits < optima[0].train_bits)]
    objective = PairObjective(Combination(problem.form, parts), train, begin, 0.0)
    r, s, b = begin + descend(objective, torch.zeros_like(begin)[:, None], tolerance=1e-7).w[:, 0]
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
