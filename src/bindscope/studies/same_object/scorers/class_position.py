"""What class and place together can tell: trees, or a logistic regression, on p.q and distances.

The strongest account of a pair without binding. The features of a pair: the log-odds of p.q (of
the softmax regression, or whether the true classes are the same), whether both patches are named
alike, their distance, rows and columns apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import Fitted, Task, simple_columns
from bindscope.studies.same_object.scorers.class_pointwise import (
    ClassProbabilities,
    softmax_optimum,
)
from bindscope.studies.same_object.strata import same_class

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import ClassPosition

DRAW = 12  # what a generator is for
LEAST = 20  # pairs of a leaf
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClassAndPlace:
    """A classifier over the features of pairs.

    Attributes
    ----------
    classes
        The softmax regression; None: true classes.
    decide
        Features (P, 5) to logits (P,).
    """

    classes: ClassProbabilities | None
    decide: Callable[[Floats], Floats]

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        found = self.decide(features(block, self.classes))
        return torch.from_numpy(found.astype(np.float32)).to(block.x.device)


def features(block: Block, classes: ClassProbabilities | None) -> Floats:
    """Return the features of a block's pairs, (P, 5)."""
    if classes is None:
        alike = named = same_class(block)
    else:
        alike, named = classes.logits(block), block.equal(classes.named(block))
    a, b = block.both(block.positions)
    apart = (a - b).abs()
    columns = (alike, named, (a - b).norm(dim=-1), apart[:, 0], apart[:, 1])
    return np.stack([c.double().cpu().numpy() for c in columns], axis=1)


def _drawn(
    pairs: Pairs, classes: ClassProbabilities | None, most: int
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return features and labels of at most about so many pairs, evenly drawn."""
    generator, share = rng(DRAW), most / max(pairs.data.n_pairs, 1)
    found, labels = [], []
    for block in pairs.blocks():
        kept = generator.random(len(block.index)) < share
        found.append(features(block, classes)[kept])
        labels.append(block.same.cpu().numpy()[kept])
    return np.concatenate(found), np.concatenate(labels)


def _boosted(
    train: tuple[Floats, npt.NDArray[np.bool_]],
    val: tuple[Floats, npt.NDArray[np.bool_]],
    iterations: int,
) -> tuple[Callable[[Floats], Floats], int]:
    """Fit boosted trees; keep as many as validate best."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=iterations, early_stopping=False, min_samples_leaf=LEAST, random_state=0
    ).fit(*train)
    sign = 1 - 2 * val[1]
    losses = [
        np.logaddexp(0, sign * logits.ravel()).mean()
        for logits in model.staged_decision_function(val[0])
    ]
    kept = int(np.argmin(losses)) + 1
    model = HistGradientBoostingClassifier(
        max_iter=kept, early_stopping=False, min_samples_leaf=LEAST, random_state=0
    ).fit(*train)
    return model.decision_function, kept


def _logistic(train: tuple[Floats, npt.NDArray[np.bool_]]) -> Callable[[Floats], Floats]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model: Any = make_pipeline(StandardScaler(), LogisticRegression()).fit(*train)
    decide: Callable[[Floats], Floats] = model.decision_function
    return decide


def fit(config: ClassPosition, task: Task) -> list[Fitted]:
    """Fit the softmax regression, unless classes are given, and the classifier on top."""
    scaling, classes = None, None
    columns: dict[str, Any] = {}
    if config.classes == "probed":
        scaling = task.scaling(config.token_norm)
    pairs = task.pairs(scaling, config.token_norm if scaling else "none")
    if config.classes == "probed":
        problem, found = softmax_optimum(config, task, pairs)
        classes = problem.scorer(found.theta)
        columns["flags"] = [] if found.ended else ["not_converged"]
    train, val = (_drawn(split, classes, config.pairs) for split in pairs)
    if config.learner == "boosted":
        decide, steps = _boosted(train, val, config.iterations)
    else:
        decide, steps = _logistic(train), 0
    scorer = ClassAndPlace(classes, decide)
    columns |= simple_columns(scorer, pairs) | {"steps": steps}
    norm = config.token_norm if scaling else "none"
    return [Fitted(scorer, scaling, norm, columns=columns)]
