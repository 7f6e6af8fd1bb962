"""Fitting a form to the optimum of its convex loss, with a ridge that validation chooses.

The ridge pulls the weights towards those of the *contained* optimum (that of the linear form for
the diagonal one, that of the diagonal one for the quadratic), not towards 0: without end it is
that optimum, and the weaker it is, the smaller the loss of train. So a form never has a greater
loss of train than the one it contains, at whatever strengths validation chose, nor, as the
contained optimum is on the path, a greater loss of validation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, log
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.checkpoint import Checkpoints, State, remember, take
from bindscope.fitting.lbfgs import Evaluated, Objective, descend
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.scorers.base import (
    Fitted,
    Scorer,
    mean_loss,
    scaling_arrays,
)
from bindscope.studies.same_object.scorers.forms import Combination, Form, Split

FACTOR, WEAKEST = 10.0, 1e-7  # how far the grid of strengths is continued
GAIN = 1e-4  # a strength gains nothing that lowers a loss by less than this share of it
STALE = 2  # strengths in a row with a gain on train alone after which validation has chosen
PERFECT = 1e-4  # bits below which there is nothing left to gain
TOLERANCE, UNENDED = 1e-6, 1e-5  # nats above the optimum: when a fit ends, and when it has not


class Problem(ABC):
    """A convex loss of train and the same of validation."""

    @abstractmethod
    def objective(self, centre: Tensor, l2: float) -> Objective:
        """Return the mean loss of train in nats at weights centre + delta, delta (p, 1)."""

    @abstractmethod
    def losses(self, theta: Tensor) -> tuple[float, float]:
        """Return the mean losses of train and validation at weights (p,), in bits."""

    def evaluate(self, theta: Tensor) -> Optimum:
        """Return weights as an optimum that nothing was fitted for."""
        return Optimum(theta, *self.losses(theta))


class PairObjective(Evaluated):
    """The mean loss of pairs in nats at weights centre + delta; delta (p, 1) is what moves."""

    def __init__(self, form: Form | Combination, pairs: Split, centre: Tensor, l2: float) -> None:
        ridge = torch.full_like(centre, l2)
        ridge[-1] = 0.0  # of the bias
        super().__init__(ridge[:, None])
        self.form, self.pairs, self.centre, self.l2 = form, pairs, centre, l2

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss (1,) and its gradient (p, 1) at delta (p, 1)."""
        theta = self.centre + w[:, 0]
        loss = torch.zeros((), dtype=torch.float64, device=w.device)
        total = torch.zeros(len(w), dtype=torch.float64, device=w.device)
        for block in self.pairs.blocks():
            margins = self.form.logits(theta, block).mul_(block.sign)
            loss += block.counted(softplus(margins)).sum(dtype=torch.float64)
            residuals = block.counted(margins.sigmoid().mul_(block.sign))
            total += self.form.slope(residuals, block)
        n = self.pairs.n_pairs
        return (loss / n)[None], (total / n).to(w.dtype)[:, None]

    def precondition(self, g: Tensor) -> Tensor:
        """Return about the inverse Hessian times (p, 1)."""
        return self.form.precondition(g[:, 0], self.l2)[:, None]


@dataclass(frozen=True)
class FormScorer(Scorer):
    """A form with its weights theta (p,)."""

    form: Form
    theta: Tensor

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        return self.form.logits(self.theta, block)


@dataclass(frozen=True)
class PairProblem(Problem):
    """A form on the pairs of train and validation."""

    form: Form
    pairs: tuple[Split, Split]

    def objective(self, centre: Tensor, l2: float) -> Objective:
        """Return the mean loss of train's pairs."""
        return PairObjective(self.form, self.pairs[0], centre, l2)

    def losses(self, theta: Tensor) -> tuple[float, float]:
        """Return the mean losses of pairs."""
        train, val = (mean_loss(FormScorer(self.form, theta), split) for split in self.pairs)
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


def follow(
    problem: Problem,
    contained: Optimum,
    centre: Tensor,
    strengths: Sequence[float],
    iterations: int,
    checkpoints: Checkpoints | None = None,
) -> Optimum:
    """Fit along the path of ridge strengths; return what validates best.

    `centre`: its weights as weights of this problem, (p,). `strengths`: ridge strengths, in any
    order, with which the path begins; it goes on by factors of ten while validation gains.
    """
    best, delta = replace(contained, theta=centre, l2=inf), torch.zeros_like(centre)[:, None]
    before, steps, stale = best.train_bits, 0, 0
    for l2 in _path(strengths):
        if stale >= STALE or best.val_bits <= PERFECT:
            break

        def fit(parts: Checkpoints | None, l2: float = l2, start: Tensor = delta) -> State:
            solution = descend(
                problem.objective(centre, l2), start, iterations=iterations, tolerance=TOLERANCE,
                checkpoint=take(parts),
            )  # fmt: skip
            losses = problem.losses(centre + solution.w[:, 0])
            ended = {"steps": solution.iterations, "short": float(solution.decrement)}
            return {"delta": solution.w}, ended | {"losses": losses}

        tensors, ended = remember(checkpoints, fit)
        delta, steps = tensors["delta"].to(centre.device), steps + ended["steps"]
        train, val = ended["losses"]
        optimum = Optimum(centre + delta[:, 0], train, val, l2, ended["short"])
        fell, gained = before - optimum.train_bits, best.val_bits - optimum.val_bits
        if gained > GAIN * best.val_bits:
            stale = 0
        elif fell > GAIN * before:
            stale += 1
        before, best = optimum.train_bits, optimum if gained > 0 else best
    return replace(best, steps=steps)


def _path(strengths: Sequence[float]) -> Iterator[float]:
    """Yield ridge strengths, the strongest first, and then ever weaker ones by factors of ten."""
    yield from sorted(strengths, reverse=True)
    l2 = min(strengths)
    while l2 > WEAKEST * FACTOR**0.5:
        yield (l2 := float(f"{l2 / FACTOR:.6g}"))


def start(size: int, pairs: Split) -> Tensor:
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
    form: Form, optimum: Optimum, scaling: Standardiser | None = None, **more: Any
) -> Fitted:
    """Return a form at its optimum as what a fit returns; `more` are columns of its row."""
    weights = {name: part.cpu().numpy() for name, part in form.split(optimum.theta).items()}
    return Fitted(
        FormScorer(form, optimum.theta),
        scaling,
        columns=optimum_columns(optimum) | more,
        weights=weights | scaling_arrays(scaling),
    )
