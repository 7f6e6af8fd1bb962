"""What classes, positions and the image predict of a pair, without anything else of its patches.

The rival of a claim of binding. It reads, of each patch, the probabilities of its classes (softmax
regression of the token) and its position, and, of the image, its mean token.

    g = z' V w + the linear form + the table of positions of the family `position`

for z, w = [class probabilities; mean token of the image] of both patches: the form of the family
`quadratic_position` on tokens that hold no more than that, fitted in the same way. So a vector that
is the same in all patches of an image, or in all patches of a class, gives the quadratic probe
nothing that this form lacks. On top, trees combine g with the log-odds
of the sum over classes c of p_c q_c s_c(distance), s_c being the share of train's pairs of class c
at that distance that are of one object, with whether both patches are named alike, and with how far
apart they are. Validation chooses whether g reads the image, and between g and the trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows
from bindscope.studies.same_object.data import Block, PairData, Pairs
from bindscope.studies.same_object.scorers import quadratic_position
from bindscope.studies.same_object.scorers.base import Fitted, Task, simple_columns
from bindscope.studies.same_object.scorers.class_pointwise import (
    ClassProbabilities,
    same_shares,
    softmax_optimum,
    sure_logit,
)
from bindscope.studies.same_object.strata import FARTHEST

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import ClassPosition

DRAW = 12  # what a generator is for
LEAST = 20  # pairs of a leaf
IMAGE_DIMS = 64  # principal components of the images' mean tokens, at most
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """What the rival reads of a block.

    Attributes
    ----------
    probed
        The softmax regression.
    basis
        From mean tokens to the numbers of an image, (d, k).
    shares
        Share of train's pairs that are of one object, by class and bin of distance, (C, bins).
    """

    probed: ClassProbabilities
    basis: Tensor
    shares: Tensor

    def probabilities(self, block: Block) -> Tensor:
        """Return the probabilities of the classes, (B, M, C)."""
        return self.probed.values(block).softmax(-1)

    def tokens(self, block: Block) -> Tensor:
        """Return [class probabilities; image] of each patch, (B, M, C + k); 0 of no patch."""
        image = (image_means(block) @ self.basis)[:, None].expand(*block.valid.shape, -1)
        found = torch.cat([self.probabilities(block), image], dim=-1)
        return found * block.valid[..., None]

    def of_pairs(self, block: Block) -> list[Tensor]:
        """Return what is known of pairs besides g, (P,) each."""
        p = self.probabilities(block).double()
        a, b = block.both(block.positions)
        distance = (a - b).norm(dim=-1)
        far = torch.bucketize(distance, distance.new_tensor(FARTHEST))
        alike = torch.zeros(len(far), dtype=torch.float64, device=far.device)
        for i, shares in enumerate(self.shares.T):
            scores = block.packed(torch.bmm(p * shares, p.transpose(1, 2)))
            alike = torch.where(far == i, scores, alike)
        apart = (a - b).abs()
        named = block.equal(p.argmax(-1))
        return [sure_logit(alike), named, distance, apart[:, 0], apart[:, 1]]


def image_means(block: Block) -> Tensor:
    """Return the mean of the valid tokens of each image, (B, d)."""
    return block.x.sum(1) / block.valid.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class ClassAndPlace:
    """The form on what is known, and what combines it with features of the pair.

    Attributes
    ----------
    known
        What is read.
    form
        The fitted form, with the scaling of its tokens.
    decide
        Features (P, 6) to logits (P,); None: the form alone.
    """

    known: Known
    form: Fitted
    decide: Callable[[Floats], Floats] | None = None

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        g = self.of_form(block)
        if self.decide is None:
            return g
        return torch.from_numpy(self.decide(self.features(block, g)).astype(np.float32)).to(g)

    def of_form(self, block: Block) -> Tensor:
        """Return the logits of the form, (P,)."""
        z = self.known.tokens(block)
        if self.form.scaling is not None:
            z = self.form.scaling.scaled(z) * block.valid[..., None]
        return self.form.scorer.logits(replace(block, x=z))

    def features(self, block: Block, g: Tensor) -> Floats:
        """Return the features of a block's pairs, (P, 6)."""
        columns = (g, *self.known.of_pairs(block))
        return np.stack([c.double().cpu().numpy() for c in columns], axis=1)


def _with_tokens(pairs: Pairs, known: Known) -> PairData:
    """Return a split whose tokens are what is known of its patches."""
    blocks = [known.tokens(block).cpu().numpy() for block in pairs.blocks()]
    return replace(pairs.data, tokens=ArrayRows(np.concatenate(blocks)))


def _image_basis(pairs: Pairs) -> Tensor:
    """Return the directions in which the mean tokens of train's images vary most, (d, k)."""
    means = torch.cat([image_means(block) for block in pairs.blocks()])
    if means.shape[1] <= IMAGE_DIMS:
        return torch.eye(means.shape[1], device=means.device)
    vectors: Tensor = torch.linalg.eigh(means.t().double().cov())[1]
    return vectors[:, -IMAGE_DIMS:].float()


def _drawn(pairs: Pairs, scorer: ClassAndPlace, most: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return features and labels of at most about so many pairs, evenly drawn."""
    generator, share = rng(DRAW), most / max(pairs.data.n_pairs, 1)
    found, labels = [], []
    for block in pairs.blocks():
        kept = generator.random(len(block.index)) < share
        found.append(scorer.features(block, scorer.of_form(block))[kept])
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


def _known(
    config: ClassPosition, task: Task, pairs: tuple[Pairs, Pairs]
) -> tuple[Known, list[str]]:
    """Read classes, and what else is known, off train; return also the flags of the fit."""
    problem, found = softmax_optimum(config, task, pairs)
    shares = same_shares(pairs[0], problem.classes, FARTHEST)
    known = Known(problem.scorer(found.theta), _image_basis(pairs[0]), shares)
    return known, [] if found.ended else ["not_converged"]


def fit(config: ClassPosition, task: Task) -> list[Fitted]:
    """Fit classes, the form on what is known, and the classifier on top."""
    from bindscope.studies.same_object.probes_config import QuadraticPositionScorer

    scaling = task.scaling(config.token_norm)
    pairs = task.pairs(scaling, config.token_norm)
    known, flags = _known(config, task, pairs)
    of_form = QuadraticPositionScorer(
        name=config.name, family="quadratic_position", l2=config.l2, steps=config.steps
    )
    forms = []
    for read in (known, replace(known, basis=known.basis[:, :0])):  # with the image, and without
        splits = [_with_tokens(split, read) for split in pairs]
        [form] = quadratic_position.fit(of_form, replace(task, train=splits[0], val=splits[1]))
        forms.append(ClassAndPlace(read, form))
    alone = min(forms, key=lambda one: float(one.form.columns["val_loss_bits"]))
    train, val = (_drawn(split, alone, config.pairs) for split in pairs)
    decide, steps = _boosted(train, val, config.iterations)
    found = []
    for scorer, taken in ((alone, 0), (replace(alone, decide=decide), steps)):
        columns = simple_columns(scorer, pairs) | {"steps": taken}
        columns["flags"] = sorted({*flags, *alone.form.columns["flags"]})
        found.append(Fitted(scorer, scaling, config.token_norm, columns=columns))
    return [min(found, key=lambda one: float(one.columns["val_loss_bits"]))]
