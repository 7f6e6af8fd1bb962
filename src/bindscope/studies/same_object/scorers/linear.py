"""Linear scorer, and what the richer convex ones start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import Fitted, Task, scaling_arrays
from bindscope.studies.same_object.scorers.convex import Optimum, follow, mean_loss
from bindscope.studies.same_object.scorers.forms import Covariance, Form, Linear

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import (
        DiagonalScorer,
        LinearScorer,
        LowRankScorer,
        QuadraticScorer,
    )


@dataclass(frozen=True)
class FormScorer:
    """A form with its weights theta (p,)."""

    form: Form
    theta: Tensor

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        return self.form.logits(self.theta, block)


@dataclass(frozen=True)
class Fit:
    """The data of a convex fit, read for it.

    Attributes
    ----------
    config, task
        Of the family.
    scaling, pairs, covariance
        Mean and deviation of train; train and val, scaled; the covariance of train.
    """

    config: LinearScorer | DiagonalScorer | QuadraticScorer | LowRankScorer
    task: Task
    scaling: Standardiser
    pairs: tuple[Pairs, Pairs]
    covariance: Covariance

    @classmethod
    def of(
        cls,
        config: LinearScorer | DiagonalScorer | QuadraticScorer | LowRankScorer,
        task: Task,
    ) -> Fit:
        """Read train and val."""
        scaling = task.scaling(config.token_norm)
        pairs = task.pairs(scaling, config.token_norm)
        return cls(config, task, scaling, pairs, Covariance.of(pairs[0]))

    def constant(self) -> Optimum:
        """Return the constant of train's share of pairs of the same object, as a linear form."""
        form, data = Linear(self.covariance), self.task.train
        ones, n = float(data.same_of_images.sum()), data.n_pairs
        theta = torch.zeros(form.size, device=self.pairs[0].device)
        theta[-1] = log((ones + 0.5) / (n - ones + 0.5))
        train, val = (mean_loss(form, theta, split) for split in self.pairs)
        return Optimum(theta, train, val)

    def follow(self, form: Form, contained: Optimum, centre: Tensor) -> Optimum:
        """Fit a form from the optimum that it contains."""
        return follow(form, self.pairs, contained, centre, self.config.l2, self.config.steps)

    def linear(self) -> Optimum:
        """Fit the linear form, from the constant."""
        start = self.constant()
        return self.follow(Linear(self.covariance), start, start.theta)

    def fitted(
        self, form: Form, found: Optimum, named: Mapping[str, Tensor], **columns: Any
    ) -> Fitted:
        """Return a form at its optimum as what a fit returns; `named` are its weights by name."""
        weights = {name: value.cpu().numpy() for name, value in named.items()}
        return Fitted(
            FormScorer(form, found.theta),
            self.scaling,
            self.config.token_norm,
            columns=optimum_columns(found) | columns,
            weights=weights | scaling_arrays(self.scaling),
            history=found.history,
        )


def optimum_columns(found: Optimum) -> dict[str, Any]:
    """Return what a row says of how the optimum was found."""
    return {
        "train_loss_bits": found.train_bits,
        "val_loss_bits": found.val_bits,
        "steps": found.steps,
        "l2": found.l2 if isfinite(found.l2) else None,
        "gradient_norm": found.gradient_norm,
        "flags": [] if found.ended else ["not_converged"],
    }


def fit(config: LinearScorer, task: Task) -> list[Fitted]:
    """Fit the linear scorer."""
    this = Fit.of(config, task)
    found = this.linear()
    named = {"linear": found.theta[:-1], "bias": found.theta[-1:]}
    return [this.fitted(Linear(this.covariance), found, named)]
