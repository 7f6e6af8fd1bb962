"""Linear scorer, and what the richer convex ones start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Pairs, TokenNorm
from bindscope.studies.same_object.scorers.base import Fitted, Task, scaling_arrays
from bindscope.studies.same_object.scorers.convex import (
    FormScorer,
    Optimum,
    PairProblem,
    Scores,
    follow,
    optimum_columns,
    start,
)
from bindscope.studies.same_object.scorers.forms import Covariance, Form, Linear

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import LinearScorer


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


class Path(NamedTuple):
    """The same, of a family that is not convex itself."""

    token_norm: TokenNorm
    l2: Sequence[float]
    steps: int


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

    config: Convex
    task: Task
    scaling: Standardiser
    pairs: tuple[Pairs, Pairs]
    covariance: Covariance

    @classmethod
    def of(cls, config: Convex, task: Task) -> Fit:
        """Read train and val."""
        scaling = task.scaling(config.token_norm)
        pairs = task.pairs(scaling, config.token_norm)
        return cls(config, task, scaling, pairs, Covariance.of(pairs[0]))

    def constant(self) -> Optimum:
        """Return the constant of train's share of pairs of the same object, as a linear form."""
        form = Linear(self.covariance)
        return PairProblem(form, self.pairs).at(start(form.size, self.pairs[0]))

    def follow(self, form: Form, contained: Optimum, centre: Tensor) -> Optimum:
        """Fit a form from the optimum that it contains."""
        problem = PairProblem(form, self.pairs)
        return follow(problem, contained, centre, self.config.l2, self.config.steps)

    def linear(self) -> Optimum:
        """Fit the linear form, from the constant."""
        constant = self.constant()
        return self.follow(Linear(self.covariance), constant, constant.theta)

    def fitted(
        self, form: Scores, found: Optimum, named: Mapping[str, Tensor], **columns: Any
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


def fit(config: LinearScorer, task: Task) -> list[Fitted]:
    """Fit the linear scorer."""
    this = Fit.of(config, task)
    found = this.linear()
    named = {"linear": found.theta[:-1], "bias": found.theta[-1:]}
    return [this.fitted(Linear(this.covariance), found, named)]
