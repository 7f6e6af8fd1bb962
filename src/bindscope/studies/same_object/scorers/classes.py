"""What classes predict of a pair: softmax regression of classes; classes, positions and image.

`class_pointwise` is fitted to *class* labels and measured, as all scorers are, on *instance*
labels. A pair scores sum over classes c of p_c q_c s_c, with s_c the share of train's pairs of
class c that are of one object: what both classes tell of a pair, where classes differ in how many
objects they have. The IsSameObject paper scored p.q and graded it on class labels, by whether both
patches are named alike.

`class_position` is the rival of a claim of binding. It reads, of each patch, the probabilities of
its classes and its position, and, of the image, its mean token.

    g = z' V w + the linear form + the parts of the family `position` + sum_k m_k T_k[couple]

for z, w = [class probabilities; principal components m of the image's mean token] of both patches:
the form of the family `quadratic_position` on tokens that hold no more than that, and a table of
couples of positions for each component, fitted in the same way. So a vector that is the same in all
patches of an image, in all patches of a class, at a position of all images, or at a position of all
images of a kind, gives the quadratic probe nothing that this form lacks. On top, trees combine g
with the log-odds of the sum over classes c of p_c q_c s_c(distance), s_c being the share of train's
pairs of class c at that distance that are of one object, with whether both patches are named alike,
and with how far apart they are. Validation chooses whether g reads the image, and between g and the
trees. Where there is one class, or none is known, the same is fitted without classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bindscope.core.array_types import Doubles
from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.config import (
    ClassPosition,
    ClassScorer,
)
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.metrics import FARTHEST, distance_bins
from bindscope.studies.same_object.scorers.base import (
    LN2,
    FitTask,
    FittedProbe,
    Scorer,
    scaling_arrays,
    simple_columns,
)
from bindscope.studies.same_object.scorers.convex import (
    CentredProblem,
    Optimum,
    fit_quadratic_position,
    follow_path,
    optimum_columns,
)
from bindscope.studies.same_object.scorers.forms import BOUND, Covariance, solved
from bindscope.studies.same_object.scorers.released import (
    pairs_of_names,
    standardised,
    train_classes,
)

SURE = 1e-9  # the least distance of a probability from 0 and 1


@dataclass(frozen=True)
class Probabilities(Scorer):
    """Softmax of weights (d, C) and bias (C,); a pair scores the sum of p_c q_c s_c."""

    weights: Tensor
    bias: Tensor
    # s: share of train's pairs of a class that are of one object, (C,); of queries 1.
    shares: Tensor | float = 1.0

    def values(self, block: PairBlock) -> Tensor:
        """Return log-odds of labels up to a constant, (B, M, C)."""
        return block.x @ self.weights + self.bias

    def logits(self, block: PairBlock) -> Tensor:
        """Return the log-odds of the sum, float32 (P,)."""
        p = self.values(block).double().softmax(-1)
        return sure_logit(block.packed(torch.bmm(p * self.shares, p.transpose(1, 2))))


def sure_logit(probability: Tensor) -> Tensor:
    """Return log-odds, float32, that are finite at 0 and 1."""
    return probability.double().clamp(SURE, 1 - SURE).logit().float()


@dataclass(frozen=True)
class ClassProbabilities(Probabilities):
    """Softmax regression of classes."""

    classes: Tensor = field(kw_only=True)  # the C classes, rising, int64; those of train
    # Whether it is also graded as in the released code: by pairs of equal names and classes.
    released: bool = False

    def graded(self, block: PairBlock) -> dict[str, tuple[Any, Any]]:
        """Return the overlap of each class with the patches that are named so, and as released."""
        named = self.classes[self.values(block).argmax(-1)]
        predicted, true = (
            (labels[block.valid][:, None] == self.classes) for labels in (named, block.classes)
        )
        both, either = (
            counts.sum(0).cpu().numpy() for counts in (predicted & true, predicted | true)
        )
        grades: dict[str, tuple[Any, Any]] = {"class_miou": (both, either)}
        if self.released:
            right, pairs = pairs_of_names(named, block.classes, block.valid)
            grades["class_pair_accuracy"] = int(right.sum()), int(pairs.sum())
        return grades


def same_shares(pairs: PatchPairs, classes: Tensor, edges: Sequence[float] = ()) -> Tensor:
    """Return the share of pairs of one object, by class and bin of distance, (C, bins).

    A bin counts one pair more, of the share of the class; a class two more, one of each kind.
    """
    bins = len(edges) + 1
    counts = torch.zeros(2, len(classes) * bins, dtype=torch.float64, device=classes.device)
    for block in pairs.blocks():
        place = torch.searchsorted(classes, block.classes).clamp_max(len(classes) - 1)
        a = block.both(place)[0]
        known = block.equal(block.classes) & (classes[a] == block.both(block.classes)[0])
        place = a * bins + distance_bins(block, edges)
        for i, chosen in enumerate((known, known & block.same)):
            counts[i] += torch.bincount(place[chosen], minlength=counts.shape[1])
    pairs_of, same = counts.view(2, len(classes), bins)
    pooled = (same.sum(1, keepdim=True) + 1) / (pairs_of.sum(1, keepdim=True) + 2)
    shares: Tensor = (same + pooled) / (pairs_of + 1)
    return shares


def targets(block: PairBlock, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens (T, d) and places of their classes (T,) of patches whose class is known."""
    labels = block.classes[block.valid]
    place = torch.searchsorted(classes, labels).clamp_max(len(classes) - 1)
    known = classes[place] == labels
    return block.x[block.valid][known], place[known]


class Softmax(CentredProblem):
    """Cross-entropy of the classes of tokens; weights [(d, C); biases (C,)], flattened."""

    def __init__(
        self, pairs: tuple[PatchPairs, PatchPairs], classes: Tensor, centre: Tensor
    ) -> None:
        self.pairs, self.classes, self.centre = pairs, classes, centre
        self.covariance = Covariance.measure(pairs[0])
        self.penalty = torch.ones_like(centre)[:, None]
        self.penalty[-len(classes) :] = 0

    def matrix(self, w: Tensor) -> Tensor:
        """Return weights and biases (d + 1, C)."""
        return w.view(-1, len(self.classes))

    def tokens(self, pairs: PatchPairs, matrix: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield tokens of known classes (T, d), places of these (T,), and log-odds (T, C)."""
        for block in pairs.blocks():
            x, place = targets(block, self.classes)
            yield x, place, x @ matrix[:-1] + matrix[-1]

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss of train's tokens in nats, float64 (1,), and its gradient (p, 1)."""
        matrix = self.matrix(self.centre + w[:, 0])
        loss, slope, n = 0.0, torch.zeros_like(matrix, dtype=torch.float64), 0
        for x, place, values in self.tokens(self.pairs[0], matrix):
            loss += float(cross_entropy(values, place, reduction="sum"))
            residuals = values.softmax(1)
            residuals[torch.arange(len(x), device=x.device), place] -= 1
            slope[:-1] += x.t() @ residuals
            slope[-1] += residuals.sum(0)
            n += len(x)
        return slope.new_tensor([loss / n]), (slope / n).to(w.dtype).view(-1, 1)

    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        """Take every class to be a regression of its own."""
        matrix = self.matrix(gradient)
        step = solved(self.covariance.spectrum, BOUND, ridge, matrix[:-1])
        return torch.cat([step, matrix[-1:] / BOUND]).view(-1, 1)

    def losses(self, w: Tensor) -> tuple[float, float]:
        """Return the mean losses of tokens in bits."""
        matrix, means = self.matrix(self.centre + w[:, 0]), []
        for split in self.pairs:
            losses = [
                cross_entropy(values, place, reduction="none").double()
                for _, place, values in self.tokens(split, matrix)
            ]
            means.append(float(torch.cat(losses).sum()) / max(sum(map(len, losses)), 1) / LN2)
        return means[0], means[1]

    def scorer(self, theta: Tensor) -> ClassProbabilities:
        """Return the scorer of weights."""
        matrix = self.matrix(theta)
        shares = same_shares(self.pairs[0], self.classes)[:, 0]
        return ClassProbabilities(matrix[:-1], matrix[-1], shares, classes=self.classes)


def softmax_optimum(
    config: ClassScorer | ClassPosition, task: FitTask, pairs: tuple[PatchPairs, PatchPairs]
) -> tuple[Softmax, Optimum]:
    """Fit the softmax regression, from the shares of the classes."""
    data = task.train
    present, counts = np.unique(data.classes[data.valid], return_counts=True)
    if len(present) < 2:
        raise InputError(
            "patch sample of train",
            f"all valid patches are of {len(present)} class, so that no class can be read",
            "leave out class_pointwise, or set `class_groups`",
        )
    classes = torch.from_numpy(present.astype(np.int64)).to(task.device)
    matrix = torch.zeros(data.dim + 1, len(present), device=classes.device)
    matrix[-1] = torch.from_numpy(np.log(counts / counts.sum())).float()
    problem = Softmax(pairs, classes, matrix.view(-1))
    return problem, follow_path(problem, config.l2, config.steps, task.checkpoints)


def released_classes(task: FitTask, scaling: Standardiser) -> tuple[ClassProbabilities, int]:
    """Fit the softmax regression as the IsSameObject paper's code does; count steps."""
    present = np.unique(task.train.classes[task.train.valid]).astype(np.int64)
    classes = torch.from_numpy(present).to(task.device)
    trained = train_classes(task, classes)
    weights = standardised(trained.weights, scaling)
    weight, bias = (weights[name].to(task.device) for name in ("weights", "bias"))
    shares = torch.ones(len(present), device=task.device)
    scorer = ClassProbabilities(weight, bias, shares, classes=classes, released=True)
    return scorer, trained.steps


def fit_classes(config: ClassScorer, task: FitTask) -> list[FittedProbe]:
    """Fit the pointwise scorer over classes."""
    scaling = task.scaling()
    pairs = task.pairs(scaling)
    if config.fit == "released":
        scorer, steps = released_classes(task, scaling)
        columns: dict[str, Any] = {"flags": []}
    else:
        problem, optimum = softmax_optimum(config, task, pairs)
        scorer, steps = problem.scorer(optimum.theta), optimum.steps
        columns = optimum_columns(optimum)
    weights = {
        name: getattr(scorer, name).cpu().numpy().astype(np.float32)
        for name in ("weights", "bias", "classes", "shares")
    }
    columns |= simple_columns(scorer, pairs) | {"steps": steps}
    weights |= scaling_arrays(scaling)
    calibrate = config.fit == "optimum"
    return [FittedProbe(scorer, scaling, columns=columns, weights=weights, calibrate=calibrate)]


DRAW = 12  # what a generator is for
LEAF = 20  # pairs of a leaf
IMAGE_DIMS = 64  # principal components of the images' mean tokens, at most


def image_means(block: PairBlock) -> Tensor:
    """Return the mean of the valid tokens of each image, (B, d)."""
    return block.x.sum(1) / block.valid.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class ClassAndPlace(Scorer):
    """What the rival reads of a block, the form on it, and what combines it with the pair."""

    probed: ClassProbabilities  # the softmax regression
    basis: Tensor  # from mean tokens to the numbers of an image, (d, k)
    # Share of train's pairs that are of one object, by class and bin of distance, (C, bins).
    shares: Tensor
    form: FittedProbe | None = None  # the fitted form, with the scaling of its tokens
    # Features (P, 6) to logits (P,); None: the form alone.
    decide: Callable[[Doubles], Doubles] | None = None

    def tokens(self, block: PairBlock) -> Tensor:
        """Return [class probabilities; image] of each patch, (B, M, C + k); 0 of no patch."""
        image = (image_means(block) @ self.basis)[:, None].expand(*block.valid.shape, -1)
        parts = torch.cat([self.probed.values(block).softmax(-1), image], dim=-1)
        return parts * block.valid[..., None]

    def logits(self, block: PairBlock) -> Tensor:
        """Return logits (P,)."""
        if self.decide is None:
            return self.of_form(block)
        logits = torch.from_numpy(self.decide(self.features(block)).astype(np.float32))
        return logits.to(block.x.device)

    def of_form(self, block: PairBlock) -> Tensor:
        """Return the logits of the form, (P,)."""
        assert self.form is not None
        assert self.form.scaling is not None
        z = self.form.scaling.scaled(self.tokens(block)) * block.valid[..., None]
        return self.form.scorer.logits(replace(block, x=z))

    def features(self, block: PairBlock) -> Doubles:
        """Return the form's logits and what else is known of a block's pairs, (P, 6)."""
        p = self.probed.values(block).softmax(-1).double()
        steps, far = block.steps, distance_bins(block, FARTHEST)
        alike = torch.zeros(len(far), dtype=torch.float64, device=far.device)
        for i, shares in enumerate(self.shares.T):
            scores = block.packed(torch.bmm(p * shares, p.transpose(1, 2)))
            alike = torch.where(far == i, scores, alike)
        named = block.equal(p.argmax(-1))
        apart = steps.norm(dim=-1), *steps.abs().t()
        columns = (self.of_form(block), sure_logit(alike), named, *apart)
        return np.stack([c.double().cpu().numpy() for c in columns], axis=1)


def _with_tokens(pairs: PatchPairs, rival: ClassAndPlace) -> PairData:
    """Return a split whose tokens are what is known of its patches."""
    blocks = [rival.tokens(block).cpu().numpy() for block in pairs.blocks()]
    return replace(pairs.data, tokens=ArrayRows(np.concatenate(blocks)))


def _image_basis(pairs: PatchPairs) -> Tensor:
    """Return the directions in which the mean tokens of train's images vary most, (d, k).

    The largest variance first.
    """
    means = torch.cat([image_means(block) for block in pairs.blocks()])
    vectors: Tensor = torch.linalg.eigh(means.t().double().cov())[1]
    return vectors.flip(1)[:, :IMAGE_DIMS].float()


def _with_one_scale(scaling: Standardiser, first: int) -> Standardiser:
    """Scale the columns of the image alike, the first one to a deviation of 1.

    Components of little variance are mostly noise: if each had a deviation of 1, the ridge would
    not distinguish them from others.
    """
    scale = scaling.scale.copy()
    scale[first:] = np.where(scale[first:] > 0, scale[first : first + 1], 0)
    return Standardiser(scaling.mean, scale)


def _drawn(
    pairs: PatchPairs, scorer: ClassAndPlace, most: int
) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Return features and labels of at most about so many pairs, evenly drawn."""
    generator, share = rng(DRAW), most / max(pairs.data.n_pairs, 1)
    features, labels = [], []
    for block in pairs.blocks():
        chosen = generator.random(len(block.index)) < share
        features.append(scorer.features(block)[chosen])
        labels.append(block.same.cpu().numpy()[chosen])
    return np.concatenate(features), np.concatenate(labels)


def _boosted(
    train: tuple[Doubles, npt.NDArray[np.bool_]],
    val: tuple[Doubles, npt.NDArray[np.bool_]],
    iterations: int,
) -> tuple[Callable[[Doubles], Doubles], int]:
    """Fit boosted trees; keep as many as validate best."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=iterations, early_stopping=False, min_samples_leaf=LEAF, random_state=0
    ).fit(*train)
    sign = 1 - 2 * val[1]
    losses = [
        np.logaddexp(0, sign * logits.ravel()).mean()
        for logits in model.staged_decision_function(val[0])
    ]
    n_trees = int(np.argmin(losses)) + 1

    def decide(features: Doubles) -> Doubles:
        staged = model.staged_decision_function(features)
        logits: Doubles = next(islice(staged, n_trees - 1, None))
        return logits.ravel()

    return decide, n_trees


def _classes(
    config: ClassPosition, task: FitTask, pairs: tuple[PatchPairs, PatchPairs]
) -> tuple[ClassProbabilities, set[str]]:
    """Return the fitted softmax regression of classes and its flags; of one class, a constant."""
    present = np.unique(task.train.classes[task.train.valid]).astype(np.int64)
    if len(present) > 1:
        problem, optimum = softmax_optimum(config, task, pairs)
        return problem.scorer(optimum.theta), {*optimum_columns(optimum)["flags"]}
    zeros = torch.zeros(task.train.dim + 1, 1, device=task.device)
    classes = torch.from_numpy(present).to(task.device)
    return ClassProbabilities(zeros[:-1], zeros[-1], classes=classes), set()


def _forms(
    config: ClassPosition, task: FitTask, pairs: tuple[PatchPairs, PatchPairs]
) -> Iterator[tuple[ClassAndPlace, FittedProbe]]:
    """Fit the form that reads the image, and the one that does not."""
    probed, flags = _classes(config, task, pairs)
    shares, first = same_shares(pairs[0], probed.classes, FARTHEST), len(probed.classes)
    basis = _image_basis(pairs[0])
    for of_image in (basis, basis[:, :0]):
        rival = ClassAndPlace(probed, of_image, shares)
        train, val = (_with_tokens(split, rival) for split in pairs)
        known = replace(task, train=train, val=val)
        [form] = fit_quadratic_position(
            config,
            known,
            scaling=_with_one_scale(known.scaling(), first),
            first_of_image=first if of_image.shape[1] else None,
        )
        columns = {**form.columns, "flags": sorted(flags.union(form.columns["flags"]))}
        yield replace(rival, form=form), replace(form, columns=columns)


def fit_class_position(config: ClassPosition, task: FitTask) -> list[FittedProbe]:
    """Fit classes, the form on what is known, and the classifier on top."""
    scaling = task.scaling()
    pairs = task.pairs(scaling)
    rival, form = min(_forms(config, task, pairs), key=lambda both: _validation(both[1]))
    drawn = [_drawn(split, rival, config.pairs) for split in pairs]
    decide, n_trees = _boosted(drawn[0], drawn[1], config.iterations)
    boosted = replace(rival, decide=decide)
    flags = form.columns["flags"]
    columns = {**simple_columns(boosted, pairs), "steps": n_trees, "flags": flags}
    return [
        min(
            FittedProbe(rival, scaling, columns=form.columns),
            FittedProbe(boosted, scaling, columns=columns),
            key=_validation,
        )
    ]


def _validation(fitted: FittedProbe) -> float:
    return float(fitted.columns["val_loss_bits"])
