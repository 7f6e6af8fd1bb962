"""Convex forms fitted to their optimum, with a ridge that validation chooses.

The ridge pulls the weights towards those of the *contained* optimum (that of the linear form for
the diagonal one, that of the diagonal one for the quadratic), not towards 0: without end it is
that optimum, and the weaker it is, the smaller the loss of train. So a form never has a greater
loss of train than the one it contains, at whatever strengths validation chose, nor, as the
contained optimum is on the path, a greater loss of validation.

Linear, diagonal and quadratic are such a ladder: each starts from the one it contains. So are the
parts of the family `position`. The quadratic form with these parts is the fair opponent of
`class_position`: what two tokens say of one object, given where they are. It is convex as its parts
are, and holds each of them. It starts from g = r g_quadratic + s g_position + b, the optima of both
and the three numbers that lower the loss of train most, so that it has no greater loss of train
than either; where one of them validates better than that, it starts from the better one of them
instead.

Also the truncation of the quadratic form.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, log
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.lbfgs import Problem, descend
from bindscope.fitting.ridge import Best, RidgePath
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.config import (
    ConvexScorer,
    CosineScorer,
    DiagonalScorer,
    DotScorer,
    LinearScorer,
    PositionScorer,
    QuadraticScorer,
)
from bindscope.studies.same_object.data import PairBlock, PatchPairs
from bindscope.studies.same_object.scorers.base import (
    FitTask,
    FittedProbe,
    Scorer,
    mean_loss,
    scaling_arrays,
    simple_columns,
)
from bindscope.studies.same_object.scorers.forms import (
    Combination,
    Covariance,
    Diagonal,
    LinearForm,
    LinearTerm,
    PairForm,
    QuadraticForm,
    Similarity,
)
from bindscope.studies.same_object.scorers.positions import (
    CoupleCounts,
    CoupleTable,
    ImageCoupleTable,
    PairSplit,
    PositionTable,
    n_couples,
)
from bindscope.studies.same_object.scorers.released import standardised, train_form

FACTOR, WEAKEST = 10.0, 1e-7  # how far the grid of strengths is continued
PERFECT = 1e-4  # bits below which there is nothing left to gain
TOLERANCE, UNENDED = 1e-6, 1e-5  # nats above the optimum: when a fit ends, and when it has not


@dataclass(frozen=True)
class FormScorer(Scorer):
    """A form with its weights theta (p,)."""

    form: PairForm | Combination
    theta: Tensor

    def logits(self, block: PairBlock) -> Tensor:
        """Return logits (P,)."""
        return self.form.logits(self.theta, block)


class CentredProblem(Problem):
    """A convex loss of train at weights centre + w, (p, 1), of which w is under the ridge."""

    centre: Tensor  # (p,), the last are biases

    @abstractmethod
    def losses(self, w: Tensor) -> tuple[float, float]:
        """Return the mean losses of train and validation at weights (p, 1), in bits."""


class PairProblem(CentredProblem):
    """The mean loss of a form on pairs; `pairs` are train and validation."""

    def __init__(
        self, form: PairForm | Combination, pairs: tuple[PairSplit, PairSplit], centre: Tensor
    ) -> None:
        self.form, self.pairs, self.centre = form, pairs, centre
        self.penalty = form.penalty().to(centre.device)[:, None]

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss of train's pairs in nats, float64 (1,), and its gradient (p, 1)."""
        theta = self.centre + w[:, 0]
        loss = torch.zeros((), dtype=torch.float64, device=theta.device)
        slope = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        for block in self.pairs[0].blocks():
            margins = self.form.logits(theta, block).mul_(block.sign)
            loss += block.counted(softplus(margins)).sum(dtype=torch.float64)
            slope += self.form.slope(block.counted(margins.sigmoid().mul_(block.sign)), block)
        n = self.pairs[0].n_pairs
        return (loss / n)[None], (slope / n).to(w.dtype)[:, None]

    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        """Return about the inverse of the Hessian of the loss and a ridge, times (p, 1)."""
        return self.form.precondition(gradient[:, 0], ridge)[:, None]

    def losses(self, w: Tensor) -> tuple[float, float]:
        """Return the mean losses of train and validation at weights (p, 1), in bits."""
        scorer = FormScorer(self.form, self.centre + w[:, 0])
        train, val = (mean_loss(scorer, split) for split in self.pairs)
        return train, val


@dataclass(frozen=True)
class Optimum:
    """Weights that validation chose on the path of a form."""

    theta: Tensor  # weights (p,)
    # Mean losses there, in bits a pair.
    train_bits: float
    val_bits: float
    l2: float = inf  # ridge strength; infinite where they are those of the contained optimum
    short: float = 0.0  # about how far it is above the optimum of that strength, in nats
    steps: int = 0  # iterations of the whole path

    @property
    def ended(self) -> bool:
        """Whether the fit is at its optimum."""
        return self.short <= UNENDED


def evaluate(form: PairForm, pairs: tuple[PairSplit, PairSplit], theta: Tensor) -> Optimum:
    """Return weights (p,) as an optimum that nothing was fitted for."""
    return Optimum(theta, *PairProblem(form, pairs, theta).losses(torch.zeros_like(theta)[:, None]))


def follow_path(
    problem: CentredProblem,
    strengths: Sequence[float],
    iterations: int,
    checkpoints: Checkpoints | None = None,
    short: float = 0.0,
) -> Optimum:
    """Fit along the path of ridge strengths; return what validates best.

    The centre of the problem is the optimum that it contains, which is `short` of its own loss.
    `strengths`: ridge strengths, in any order, with which the path begins; it goes on by factors of
    ten while validation gains.
    """
    start = torch.zeros_like(problem.centre)[:, None]
    best = Best(problem.losses, start, PERFECT, short)
    path = RidgePath(_continued(strengths), iterations, TOLERANCE)
    steps = path.follow(problem, start, best, checkpoints)
    theta = problem.centre + best.w[:, 0]
    return Optimum(theta, best.train, best.val, best.ridge, best.short, steps)


def _continued(strengths: Sequence[float]) -> Iterator[float]:
    """Yield ridge strengths, the strongest first, and then ever weaker ones by factors of ten."""
    yield from sorted(strengths, reverse=True)
    weakest = min(strengths)
    while weakest > WEAKEST * FACTOR**0.5:
        weakest = float(f"{weakest / FACTOR:.6g}")
        yield weakest


def start(size: int, pairs: PairSplit) -> Tensor:
    """Return weights (p,) that know only the share of pairs of the same object; the last is b."""
    ones, n = float(pairs.data.same_of_images.sum()), pairs.data.n_pairs
    theta = torch.zeros(size, device=pairs.device)
    theta[-1] = log((ones + 0.5) / (n - ones + 0.5))
    return theta


def optimum_columns(optimum: Optimum) -> dict[str, Any]:
    """Return what a row says of how the optimum was found."""
    return {
        "train_loss_bits": optimum.train_bits,
        "val_loss_bits": optimum.val_bits,
        "steps": optimum.steps,
        "l2": optimum.l2 if isfinite(optimum.l2) else None,
        "flags": [] if optimum.ended else ["not_converged"],
    }


def fitted_form(
    form: PairForm, optimum: Optimum, scaling: Standardiser | None = None
) -> FittedProbe:
    """Return a form at its optimum as what a fit returns."""
    weights = {name: part.cpu().numpy() for name, part in form.split(optimum.theta).items()}
    return FittedProbe(
        FormScorer(form, optimum.theta),
        scaling,
        columns=optimum_columns(optimum),
        weights=weights | scaling_arrays(scaling),
    )


# --- Families ---


def climb(
    forms: Sequence[PairForm],
    pairs: tuple[PairSplit, PairSplit],
    config: ConvexScorer,
    checkpoints: Checkpoints | None = None,
) -> tuple[PairForm, Optimum]:
    """Fit forms, each from the optimum of the one before, which it contains; return the last.

    The first one starts from the constant of train's share of pairs of the same object.
    """
    form = forms[0]
    theta, short = start(form.size, pairs[0]), 0.0
    for richer in forms:
        weights = form.split(theta)
        if "diagonal" in weights:
            weights["matrix"] = torch.diag(weights["diagonal"])
        problem = PairProblem(richer, pairs, richer.join(weights))
        optimum = follow_path(problem, config.l2, config.steps, checkpoints, short)
        form, theta, short = richer, optimum.theta, optimum.short
    return form, optimum


def fitted_positions(
    pairs: Sequence[PatchPairs], config: ConvexScorer, checkpoints: Checkpoints | None = None
) -> tuple[PairForm, Optimum]:
    """Fit a table of offsets and positions, and then a number of each couple of positions too."""
    train, val = (CoupleCounts.count(split) for split in pairs)
    table = PositionTable(train.data.grid, train.curvature)
    forms = [PairForm([table]), PairForm([table, CoupleTable(train.curvature)])]
    return climb(forms, (train, val), config, checkpoints)


def fit_position(config: PositionScorer, task: FitTask) -> list[FittedProbe]:
    """Fit the scorer of positions."""
    return [fitted_form(*fitted_positions(task.pairs(None), config, task.checkpoints))]


LADDER = ("linear", "diagonal", "quadratic")
MIXED = 1e-11  # nats above the optimum where a mixture ends
COPIES = 32  # of its weights that a descent holds


@dataclass(frozen=True)
class Fit:
    """The data of a convex fit, read for it."""

    config: ConvexScorer
    # Mean and deviation of train; train and val, scaled; the covariance of train.
    scaling: Standardiser
    pairs: tuple[PatchPairs, PatchPairs]
    covariance: Covariance
    checkpoints: Checkpoints | None = None  # one for each form that is fitted

    @classmethod
    def begin(cls, config: ConvexScorer, task: FitTask, scaling: Standardiser | None = None) -> Fit:
        """Read train and val; without a scaling, by that of train's tokens."""
        scaling = scaling or task.scaling()
        pairs = task.pairs(scaling)
        return cls(config, scaling, pairs, Covariance.measure(pairs[0]), task.checkpoints)

    def follow(self, form: PairForm, centre: Tensor, short: float = 0.0) -> Optimum:
        """Fit a form from the optimum that it contains, as its weights (p,)."""
        problem, config = PairProblem(form, self.pairs, centre), self.config
        return follow_path(problem, config.l2, config.steps, self.checkpoints, short)

    def climb(self, top: str) -> tuple[PairForm, Optimum]:
        """Fit the forms of the ladder up to one."""
        names = LADDER[: LADDER.index(top) + 1]
        forms = [form_of(name, self.covariance) for name in names]
        return climb(forms, self.pairs, self.config, self.checkpoints)


def form_of(name: str, covariance: Covariance) -> PairForm:
    """Return a form of the ladder."""
    products: dict[str, list[LinearTerm]] = {
        "linear": [],
        "diagonal": [Diagonal(covariance)],
        "quadratic": [QuadraticForm(covariance)],
    }
    return PairForm([*products[name], LinearForm(covariance)])


def descend_form(family: str, task: FitTask, this: Fit) -> tuple[PairForm, Optimum]:
    """Fit a form of the ladder as the IsSameObject paper's code does."""
    trained = train_form(family, task)
    form = form_of(family, this.covariance)
    theta = form.join(standardised(trained.weights, this.scaling)).to(task.device)
    return form, replace(evaluate(form, this.pairs, theta), steps=trained.steps)


def fit_form(
    config: LinearScorer | DiagonalScorer | QuadraticScorer, task: FitTask
) -> list[FittedProbe]:
    """Fit a form of the ladder; of the quadratic one also its truncations, which come first."""
    this, family, released = Fit.begin(config, task), config.family, config.fit == "released"
    form, optimum = descend_form(family, task, this) if released else this.climb(family)
    full = replace(fitted_form(form, optimum, this.scaling), calibrate=not released)
    if not isinstance(config, QuadraticScorer):
        return [full]
    weights = form.split(optimum.theta)
    lambdas, rows = eigen(this.covariance, weights["matrix"])
    arrays = {"eigenvalues": lambdas.cpu().numpy(), "eigenrows": rows.cpu().numpy()}
    full = replace(full, weights={**full.weights, **arrays})
    cut = []
    for rank in sorted({min(rank, this.covariance.dim) for rank in config.ranks}):
        # Only the largest eigenvalues; nothing is fitted again.
        truncated = (rows[:rank].t() * lambdas[:rank]) @ rows[:rank]
        scorer = FormScorer(form, form.join({**weights, "matrix": truncated}))
        columns = {**simple_columns(scorer, this.pairs), "flags": full.columns["flags"]}
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


def mix(form: PairForm, pairs: tuple[PairSplit, PairSplit], parts: Sequence[Tensor]) -> Tensor:
    """Return the mixture of two weights (p,), or the better part if that validates better.

    `parts`: the optima that it contains, as weights of it. The mixture is fitted to train.
    """
    optima = [evaluate(form, pairs, theta) for theta in parts]
    begin = torch.eye(3, dtype=torch.float64, device=parts[0].device)
    begin = begin[int(optima[1].train_bits < optima[0].train_bits)]
    mixing = PairProblem(Combination(form, parts), pairs, begin)
    solution = descend(mixing, torch.zeros_like(begin)[:, None], tolerance=MIXED)
    r, s, b = (begin + solution.w[:, 0]).float()
    mixed = r * parts[0] + s * parts[1]
    mixed[-1] += b
    candidates = [evaluate(form, pairs, mixed), *optima]
    return min(candidates, key=lambda optimum: optimum.val_bits).theta


def image_columns(first: int, task: FitTask) -> Tensor:
    """Return the columns of tokens, from one on, that are read times couples of positions.

    They are the same in all patches of an image. As many take part as a descent may hold in the
    memory of the task, the first ones, at least one.
    """
    most = max(1, task.memory // (4 * COPIES * n_couples(task.train.grid)))
    return torch.arange(first, task.train.dim, device=task.device)[:most]


def times_image(
    this: Fit, columns: Tensor, positions: PairForm, optimum: Optimum
) -> tuple[PairForm, Optimum]:
    """Fit also a number of each couple of positions for each number of the image."""
    of_couples = positions.parts[-1]
    assert isinstance(of_couples, CoupleTable)
    form = PairForm([*positions.parts, ImageCoupleTable(of_couples.curvature, columns)])
    centre = form.join(positions.split(optimum.theta))
    return form, this.follow(form, centre, optimum.short)


def fit_quadratic_position(
    config: ConvexScorer,
    task: FitTask,
    *,
    scaling: Standardiser | None = None,
    first_of_image: int | None = None,
) -> list[FittedProbe]:
    """Fit the quadratic form, the parts of positions, and then both at once.

    `scaling`: of the tokens, by train if left out. `first_of_image`: of the columns that are the
    same in all patches of an image; with it, these are read times couples of positions, too.
    """
    this = Fit.begin(config, task, scaling)
    quadratic, of_tokens = this.climb("quadratic")
    positions, of_positions = fitted_positions(this.pairs, config, task.checkpoints)
    if first_of_image is not None:
        columns = image_columns(first_of_image, task)
        positions, of_positions = times_image(this, columns, positions, of_positions)
    form = PairForm([quadratic.parts[0], *positions.parts, quadratic.parts[1]])
    parts = [
        form.join(contained.split(optimum.theta))
        for contained, optimum in ((quadratic, of_tokens), (positions, of_positions))
    ]
    optimum = this.follow(form, mix(form, this.pairs, parts))
    return [fitted_form(form, optimum, this.scaling)]


def fit_similarity(config: CosineScorer | DotScorer, task: FitTask) -> list[FittedProbe]:
    """Fit scale and offset to the pairs of train; as released, the offset alone."""
    pairs, length = task.pairs(None), 0.0
    if config.fit == "released":
        trained = train_form(config.family, task)
        form = PairForm([Similarity(float(config.family == "dot"))])
        theta = form.join(trained.weights).float().to(task.device)
        optimum = replace(evaluate(form, pairs, theta), steps=trained.steps)
        return [replace(fitted_form(form, optimum), calibrate=False)]
    if config.family == "dot":
        tokens = [block.x[block.valid].double().square().sum(-1) for block in pairs[0].blocks()]
        length = float(torch.cat(tokens).mean().clamp_min(1e-30))
    form = PairForm([Similarity(length)])
    problem = PairProblem(form, pairs, start(form.size, pairs[0]))
    solution = descend(problem, torch.zeros_like(problem.centre)[:, None])
    optimum = evaluate(form, pairs, problem.centre + solution.w[:, 0])
    optimum = replace(optimum, short=float(solution.decrement), steps=solution.iterations)
    return [fitted_form(form, optimum)]
