"""Signed low-rank scorers: g = sum_k s_k (A_k x)(A_k y) + the linear form, s_k = +-1.

The paper's form (W2 = S W1). Not convex, so it starts from the convex optimum: the eigenvalues of
W as tokens use it, the k largest by size, their signs s. Then all weights but the signs descend on
the loss of train under a ridge that pulls to 0. Fewer directions need a stronger one, so validation
chooses among that of the quadratic form, 10 and 100 times of it. Ranks are fitted in rising order,
and one that validates worse than a smaller one keeps the weights of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bindscope.fitting.descent import Entry
from bindscope.fitting.lbfgs import Evaluated, descend
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import Fitted, Task, mean_loss
from bindscope.studies.same_object.scorers.convex import (
    TOLERANCE,
    FormScorer,
    Optimum,
    loss_and_slope,
)
from bindscope.studies.same_object.scorers.forms import BOUND, Linear, Quadratic
from bindscope.studies.same_object.scorers.linear import Fit
from bindscope.studies.same_object.scorers.quadratic import eigen, optimum, spectrum_columns

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import LowRankScorer

STRONGER = (100.0, 10.0, 1.0)  # times the quadratic form's ridge


@dataclass(frozen=True)
class SignedForm:
    """The form of rank k; weights [A (k, d); a; b].

    Attributes
    ----------
    linear
        The linear form.
    signs
        s (k,).
    """

    linear: Linear
    signs: Tensor

    @property
    def own(self) -> int:
        """Weights A."""
        return len(self.signs) * self.linear.dim

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.own + self.linear.size

    def rows(self, theta: Tensor) -> Tensor:
        """Return A (k, d)."""
        return theta[: self.own].view(len(self.signs), self.linear.dim)

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return logits (P,)."""
        read = block.x @ self.rows(theta).t()
        products = torch.bmm(read * self.signs, read.transpose(1, 2))
        return self.linear.logits(theta[self.own :], block).add_(block.packed(products))

    def slope(self, theta: Tensor, residuals: Tensor, block: Block) -> Tensor:
        """Return the gradient of the sum of residuals (P,) times logits at weights (p,)."""
        read = block.x @ self.rows(theta).t()
        upper = block.unpacked(residuals)
        pulled = torch.bmm(upper + upper.transpose(1, 2), read) * self.signs
        own = pulled.flatten(0, 1).t() @ block.x.flatten(0, 1)
        return torch.cat([own.view(-1), self.linear.slope(residuals, block)])

    def ridge(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return (|A'SA|^2 + |a|^2) / 2 and its gradient (p,)."""
        rows, a = self.rows(theta), theta[self.own : -1]
        gram = rows @ rows.t()
        signed = self.signs[:, None] * gram * self.signs
        value = ((gram * signed).sum() + a.square().sum()) / 2
        own = 2 * signed @ rows
        return value, torch.cat([own.view(-1), a, torch.zeros_like(theta[-1:])])


class _Descent(Evaluated):
    """Loss of train, ridge included, in nats; not convex."""

    def __init__(self, form: SignedForm, pairs: Pairs, l2: float, sizes: Tensor) -> None:
        super().__init__(torch.zeros(form.size, 1, device=pairs.device))
        self.form, self.pairs, self.l2, self.sizes = form, pairs, l2, sizes

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss (1,) and gradient (p, 1)."""
        theta = w[:, 0]
        loss, slope = loss_and_slope(
            self.pairs,
            w,
            lambda block: self.form.logits(theta, block),
            lambda residuals, block: self.form.slope(theta, residuals, block),
        )
        value, pull = self.form.ridge(theta)
        return loss + self.l2 * value.double(), slope + self.l2 * pull[:, None]

    def precondition(self, g: Tensor) -> Tensor:
        """Take two tokens to be drawn alone, and the rows of A to be as large as at the start."""
        form, (values, q) = self.form, self.form.linear.covariance.spectrum
        curvature = 2 * BOUND * self.sizes * values[:, None] + self.l2
        own = q @ ((q.t() @ form.rows(g[:, 0]).t()) / curvature)
        rest = form.linear.precondition(g[form.own :, 0], self.l2)
        return torch.cat([own.t().reshape(-1), rest])[:, None]


@dataclass(frozen=True)
class _Ranks:
    """What all ranks of a fit start from: eigenvalues (d,), rows (d, d) and linear weights."""

    this: Fit
    lambdas: Tensor
    rows: Tensor
    linear: Tensor
    l2: float

    def fitted(self, rank: int, before: Optimum | None) -> tuple[SignedForm, Optimum]:
        """Fit a rank; `before` is what a smaller one ended with."""
        lambdas = self.lambdas[:rank]
        form = SignedForm(Linear(self.this.covariance), torch.where(lambdas < 0, -1.0, 1.0))
        own = (lambdas.abs().sqrt()[:, None] * self.rows[:rank]).view(-1)
        theta, history, best, steps = torch.cat([own, self.linear]), [], None, 0
        for factor in STRONGER:
            found = self._descended(form, theta, self.l2 * factor)
            theta, steps = found.theta, steps + found.steps
            history += [
                Entry(steps, "train", found.train_bits),
                Entry(steps, "val", found.val_bits),
            ]
            if best is None or found.val_bits < best.val_bits:
                best = found
        assert best is not None
        if before is not None and before.val_bits <= best.val_bits:
            held = len(before.theta) - len(self.linear)
            none = theta.new_zeros(form.size - len(before.theta))
            padded = torch.cat([before.theta[:held], none, before.theta[held:]])
            best = replace(before, theta=padded)
        return form, replace(best, steps=steps, history=history)

    def _descended(self, form: SignedForm, start: Tensor, l2: float) -> Optimum:
        pairs = self.this.pairs
        descent = _Descent(form, pairs[0], l2, self.lambdas[: len(form.signs)].abs())
        steps = self.this.config.steps
        solution = descend(descent, start[:, None], iterations=steps, tolerance=TOLERANCE)
        theta = solution.w[:, 0]
        train, val = (mean_loss(FormScorer(form, theta), split) for split in pairs)
        norm, short = float(descent.begin(solution.w)[1].norm()), float(solution.decrement)
        return Optimum(theta, train, val, l2, norm, short, solution.iterations)


def fit(config: LowRankScorer, task: Task) -> list[Fitted]:
    """Fit all ranks; those that tokens do not have are that of full rank."""
    this = Fit.of(config, task)
    full, found = Quadratic(this.covariance), optimum(this)
    lambdas, rows = eigen(full, found.theta)
    # An optimum at the end of the path has no ridge of its own: the weakest stands for it.
    l2 = found.l2 if isfinite(found.l2) else min(config.l2)
    ranks = _Ranks(this, lambdas, rows, found.theta[full.own :], l2)
    fitted: list[Fitted] = []
    before: Optimum | None = None
    for rank in sorted({min(rank, full.dim) for rank in config.ranks}):
        form, before = ranks.fitted(rank, before)
        named = {
            "rows": form.rows(before.theta), "signs": form.signs,
            "linear": before.theta[form.own : -1], "bias": before.theta[-1:],
        }  # fmt: skip
        one = this.fitted(form, before, named, **spectrum_columns(lambdas[:rank]))
        fitted.append(replace(one, rank=rank))
    return fitted
