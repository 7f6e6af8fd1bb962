"""Fitting a form to the optimum of its convex loss, with a ridge that validation chooses.

The ridge pulls the weights towards those of the *contained* optimum (that of the linear form for
the diagonal one, that of the diagonal one for the quadratic), not towards 0: without end it is
that optimum, and the weaker it is, the smaller the loss of train. So a form never has a greater
loss of train than the one it contains, at whatever strengths validation chose, nor, as the
contained optimum is on the path, a greater loss of validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.lbfgs import descend
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import LN2, Loss
from bindscope.studies.same_object.scorers.forms import Form

FACTOR, WEAKEST = 10.0, 1e-7  # how far the grid of strengths is continued
GAIN = 1e-4  # a strength gains nothing that lowers a loss by less than this share of it
STALE = 2  # strengths in a row with a gain on train alone after which validation has chosen
PERFECT = 1e-4  # bits below which there is nothing left to gain
TOLERANCE, UNENDED = 1e-6, 1e-5  # nats above the optimum: when a fit ends, and when it has not


class PairObjective:
    """The mean loss of pairs in nats at weights centre + delta; delta (p, 1) is what moves.

    A `fitting.lbfgs.Objective`. Where the blocks are in memory, margins are too, and a trial of a
    line search takes no product.
    """

    def __init__(self, form: Form, pairs: Pairs, centre: Tensor, l2: float) -> None:
        self.form, self.pairs, self.centre, self.l2 = form, pairs, centre, l2
        self.ridge = l2 * form.penalised()[:, None]
        self.n = max(pairs.data.n_pairs, 1)
        self.margins: list[Tensor] = []
        self.changes: list[Tensor] = []
        self.signs: list[Tensor] = []

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss (1,) and its gradient (p, 1) at delta (p, 1)."""
        theta, loss, slope = self.centre + w[:, 0], torch.zeros((), dtype=torch.float64), 0.0
        for block in self.pairs.blocks():
            sign = sign_of(block)
            margins = self.form.logits(theta, block).mul_(sign)
            loss = loss + softplus(margins).sum(dtype=torch.float64).cpu()
            slope = slope + self.form.slope(margins.sigmoid().mul_(sign), block).double()
            if self.pairs.held:
                self.margins.append(margins)
                self.signs.append(sign)
        assert isinstance(slope, Tensor)
        self.slope = (slope / self.n).to(w.dtype)[:, None]
        return (loss / self.n).to(w.device)[None], self.slope

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Take note of the line; where margins are held, also of how they change along it."""
        self.w, self.direction = w, direction
        if self.pairs.held:
            self.changes = [
                self.form.logits(direction[:, 0], block).mul_(sign)
                for block, sign in zip(self.pairs.blocks(), self.signs, strict=True)
            ]

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its slope along the line at step t, (1,) each."""
        if not self.pairs.held:
            loss, slope = self.begin(self.w + t.to(self.w.dtype) * self.direction)
            return loss, (slope * self.direction).double().sum(0)
        step, sums = t.to(self.w.dtype), torch.zeros(2, dtype=torch.float64)
        for margins, change in zip(self.margins, self.changes, strict=True):
            here = torch.addcmul(margins, step, change)
            along = here.sigmoid().mul_(change).sum(dtype=torch.float64)
            sums += torch.stack([softplus(here).sum(dtype=torch.float64), along]).cpu()
        loss, slope = (sums / self.n).to(t.device)
        return loss[None], slope[None]

    def arrive(self, t: Tensor) -> Tensor:
        """Go to the step; return the gradient (p, 1)."""
        if not self.pairs.held:
            return self.slope
        step, total = t.to(self.w.dtype), torch.zeros((), dtype=torch.float64, device=t.device)
        each = zip(self.pairs.blocks(), self.margins, self.changes, self.signs, strict=True)
        for block, margins, change, sign in each:
            margins.addcmul_(step, change)
            total = total + self.form.slope(margins.sigmoid().mul_(sign), block).double()
        return (total / self.n).to(self.w.dtype)[:, None]

    def keep(self, index: Tensor) -> None:
        """Return: there is one column."""

    def precondition(self, g: Tensor) -> Tensor:
        """Return about the inverse Hessian times (p, 1)."""
        return self.form.precondition(g[:, 0], self.l2)[:, None]


def sign_of(block: Block) -> Tensor:
    """Return -1 for pairs of the same object and 1 for others: softplus(sign g) is the loss."""
    return 1.0 - 2.0 * block.same.float()


def mean_loss(form: Form, theta: Tensor, pairs: Pairs) -> float:
    """Return the mean loss of a split's pairs in bits."""
    total = 0.0
    for block in pairs.blocks():
        margins = form.logits(theta, block).mul_(sign_of(block))
        total += float(softplus(margins).sum(dtype=torch.float64))
    return total / max(pairs.data.n_pairs, 1) / LN2


@dataclass
class Optimum:
    """Weights that validation chose on the path of a form.

    Attributes
    ----------
    theta
        Weights (p,).
    l2
        Ridge strength; infinite where they are those of the contained optimum.
    train_bits, val_bits
        Mean losses there, in bits a pair.
    gradient_norm
        Length of the gradient of the penalised mean loss, in nats.
    short
        About how far it is above the optimum of that strength, in nats.
    steps
        Iterations of the whole path.
    history
        Losses after each strength.
    """

    theta: Tensor
    train_bits: float
    val_bits: float
    l2: float = inf
    gradient_norm: float = 0.0
    short: float = 0.0
    steps: int = 0
    history: list[Loss] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the fit is at its optimum."""
        return self.short <= UNENDED


def follow(
    form: Form,
    pairs: tuple[Pairs, Pairs],
    contained: Optimum,
    centre: Tensor,
    strengths: Sequence[float],
    iterations: int,
) -> Optimum:
    """Fit a form along the path of ridge strengths; return what validates best.

    Parameters
    ----------
    form
        What is fitted.
    pairs
        Train and val.
    contained
        The optimum that it starts from.
    centre
        Its weights as weights of this form, (p,).
    strengths
        Ridge strengths, in any order, with which the path begins; it goes on by factors of ten
        while validation gains.
    iterations
        Most iterations of a strength.
    """
    train, val = pairs
    best = Optimum(centre, contained.train_bits, contained.val_bits, short=contained.short)
    best.gradient_norm = contained.gradient_norm
    history = [Loss(0, "train", best.train_bits), Loss(0, "val", best.val_bits)]
    delta, before, steps, stale = torch.zeros_like(centre)[:, None], best.train_bits, 0, 0
    given, l2 = sorted(strengths, reverse=True), inf
    while stale < STALE and best.val_bits > PERFECT and (given or l2 > WEAKEST * FACTOR**0.5):
        l2 = given.pop(0) if given else l2 / FACTOR
        objective = PairObjective(form, train, centre, l2)
        solution = descend(objective, delta, iterations=iterations, tolerance=TOLERANCE)
        delta, steps = solution.w, steps + solution.iterations
        theta = centre + delta[:, 0]
        found = Optimum(theta, mean_loss(form, theta, train), mean_loss(form, theta, val), l2)
        found.short = float(solution.decrement)
        history += [Loss(steps, "train", found.train_bits), Loss(steps, "val", found.val_bits)]
        fell, gained = before - found.train_bits, best.val_bits - found.val_bits
        if gained > GAIN * best.val_bits:
            stale = 0
        elif fell > GAIN * before:
            stale += 1
        before = found.train_bits
        if gained > 0:
            best = found
    if best.l2 < inf:
        last = PairObjective(form, train, centre, best.l2)
        w = (best.theta - centre)[:, None]
        best.gradient_norm = float((last.begin(w)[1] + last.ridge * w).norm())
    best.steps, best.history = steps, history
    return best
