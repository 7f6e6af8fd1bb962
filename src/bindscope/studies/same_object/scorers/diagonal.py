"""Diagonal scorer, from the optimum of the linear one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.convex import Optimum
from bindscope.studies.same_object.scorers.forms import Diagonal
from bindscope.studies.same_object.scorers.linear import Fit

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import DiagonalScorer


def optimum(this: Fit) -> Optimum:
    """Fit the diagonal form, after the linear one that it contains."""
    form, contained = Diagonal(this.covariance), this.linear()
    return this.follow(form, contained, form.contain(contained.theta))


def fit(config: DiagonalScorer, task: Task) -> list[Fitted]:
    """Fit the diagonal scorer."""
    this = Fit.of(config, task)
    form, found = Diagonal(this.covariance), optimum(this)
    own, d = found.theta, form.dim
    return [this.fitted(form, found, {"diagonal": own[:d], "linear": own[d:-1], "bias": own[-1:]})]
