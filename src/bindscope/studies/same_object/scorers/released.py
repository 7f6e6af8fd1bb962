"""Fits of probes as the code of the IsSameObject paper makes them (arXiv 2510.24709).

Adam at a rate of 0.001 without decay for 16 epochs, a fifth of it after 8; steps of 256 images, of
whose stored patches 64 are drawn again in every epoch; binary cross-entropy over all ordered pairs
of an image, each patch with itself among them; tokens as they are. The epoch with the highest
validation accuracy is kept. An epoch reads images in groups of neighbors, in an order that is drawn
anew: the store reads these faster than single images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize

from bindscope.fitting.adam import Adam
from bindscope.fitting.checkpoint import take
from bindscope.fitting.descent import Descent, DescentPlan, Run
from bindscope.fitting.generators import rng
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairBlock, PatchPairs
from bindscope.studies.same_object.scorers.base import LN2, FitTask

EPOCHS, RATE, DROP, DROP_AFTER = 16, 1e-3, 0.2, 8
IMAGES, DRAWN, TOGETHER = 256, 64, 8  # of a step; patches of an image; images of a group
ORDER, PATCHES = 31, 32  # what generators are for


class DrawnPatches(NamedTuple):
    """Drawn patches of the images of a step."""

    x: Tensor  # raw tokens (B, m, d)
    valid: Tensor  # bool (B, m)
    same: Tensor  # bool (B, m, m): whether two patches are of one object
    classes: Tensor  # int64 (B, m)


class TrainedWeights(NamedTuple):
    """Weights of raw tokens by name, and how many steps were taken."""

    weights: dict[str, Tensor]
    steps: int


class ReleasedForm(nn.Module):
    """A linear, diagonal or quadratic form of two raw tokens, with the start of `nn.Linear`.

    Of the family `bilinear` tokens hold two vectors, one after the other: the form compares the
    first of one token with the second of the other.
    """

    def __init__(self, family: str, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.family = family
        dim = dim // 2 if family == "bilinear" else dim
        shape = (dim, dim) if family in ("quadratic", "bilinear") else (dim,)
        weight = torch.empty(shape).uniform_(-(dim**-0.5), dim**-0.5, generator=generator)
        bias = torch.empty(1).uniform_(-(dim**-0.5), dim**-0.5, generator=generator)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def matrix(self) -> Tensor:
        """Return the matrix of a form (d, d), symmetric but for the bilinear one."""
        turned = self.weight if self.family == "bilinear" else self.weight.t()
        return (self.weight + turned).div(2 * len(self.weight) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all pairs of tokens (B, m, d), (B, m, m)."""
        if self.family == "linear":  # a map to one number is applied to both, with its bias
            scores = x @ self.weight + self.bias
            return scores[:, :, None] + scores[:, None, :]
        first, second = x.chunk(2, -1) if self.family == "bilinear" else (x, x)
        moved = first * self.weight if self.family == "diagonal" else first @ self.matrix()
        return torch.bmm(moved, second.mT) + self.bias

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of a `PairForm` on raw tokens."""
        if self.family == "linear":
            return {"linear": self.weight, "bias": 2 * self.bias}
        if self.family == "diagonal":
            return {"diagonal": self.weight, "bias": self.bias}
        return {"matrix": self.matrix(), "bias": self.bias}


class ReleasedSimilarity(nn.Module):
    """The cosine or the inner product of two raw tokens, and an offset, which alone is fitted."""

    def __init__(self, family: str, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.family = family
        bias = torch.empty(1).uniform_(-(dim**-0.5), dim**-0.5, generator=generator)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all pairs of tokens (B, m, d), (B, m, m)."""
        x = normalize(x, dim=-1) if self.family == "cosine" else x
        return torch.bmm(x, x.mT) + self.bias

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of a `PairForm` on raw tokens."""
        return {"slope": torch.ones_like(self.bias), "bias": self.bias}


def pair_losses(module: nn.Module, drawn: DrawnPatches) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of a step's pairs in nats, and which pairs i < j are right, of which."""
    both = drawn.valid[:, :, None] & drawn.valid[:, None, :]
    logits = module(drawn.x)
    loss = binary_cross_entropy_with_logits(logits[both], drawn.same[both].float())
    upper = both.triu(1)
    return loss, ((logits > 0) == drawn.same)[upper], upper


def class_losses(module: nn.Module, drawn: DrawnPatches) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of a step's patches in nats, and which of their pairs are right, of which."""
    known, values = drawn.valid & (drawn.classes >= 0), module(drawn.x)
    loss = cross_entropy(values[known], drawn.classes[known])
    return loss, *pairs_of_names(values.argmax(-1), drawn.classes, known)


def pairs_of_names(named: Tensor, classes: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return which ordered pairs of patches (B, m) are named alike as their classes are, of which.

    Each patch with itself is among them, as in the released code.
    """
    both = known[:, :, None] & known[:, None, :]
    alike, equal = (labels[:, :, None] == labels[:, None, :] for labels in (named, classes))
    return (alike == equal)[both], both


LossFunction = Callable[[nn.Module, DrawnPatches], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class _Epochs:
    """A `fitting.descent.Task`: steps of drawn images and patches, epoch after epoch."""

    pairs: tuple[PatchPairs, PatchPairs]
    losses: LossFunction
    classes: Tensor  # classes of train, ascending

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.pairs[0].data.n_images // IMAGES)

    def batches(self, first: int) -> Iterator[DrawnPatches]:
        for number in count(first):
            yield self._step(*divmod(number, self.steps))

    def _step(self, epoch: int, place: int) -> DrawnPatches:
        n = self.pairs[0].data.n_images
        order = rng(ORDER, epoch).permutation(-(-n // TOGETHER))
        each = IMAGES // TOGETHER
        parts = [
            self._draw(
                self.pairs[0].read(start, min(start + TOGETHER, n)), rng(PATCHES, epoch, start)
            )
            for start in TOGETHER * order[place * each : (place + 1) * each]
        ]
        return DrawnPatches(*(torch.cat(values) for values in zip(*parts, strict=True)))

    def _draw(self, block: PairBlock, generator: np.random.Generator) -> DrawnPatches:
        """Draw patches of each image of a block, valid ones first."""
        keys = torch.from_numpy(generator.random(block.valid.shape)).to(block.x.device)
        chosen = keys.masked_fill(~block.valid, 2.0).argsort(1)[:, :DRAWN]
        return self._gathered(block, chosen)

    def _gathered(self, block: PairBlock, chosen: Tensor) -> DrawnPatches:
        valid, instances, named = (
            values.gather(1, chosen) for values in (block.valid, block.instances, block.classes)
        )
        place = torch.searchsorted(self.classes, named).clamp_max(len(self.classes) - 1)
        place = torch.where(self.classes[place] == named, place, -1)
        x = torch.take_along_dim(block.x, chosen[..., None], 1)
        return DrawnPatches(x, valid, instances[:, :, None] == instances[:, None, :], place)

    def backward(self, run: Run, batch: DrawnPatches, share: float) -> Tensor:
        with torch.enable_grad():
            loss, _, _ = self.losses(run.module, batch)
            torch.autograd.backward(loss * share)
        return loss.detach() / LN2

    def validate(self, runs: Sequence[Run]) -> list[float]:
        """Return the share of errors, whose smallest one is kept."""
        return [self._errors(run.module) for run in runs]

    def _errors(self, module: nn.Module) -> float:
        right, n = 0, 0
        for block in self.pairs[1].blocks():
            every = torch.arange(block.valid.shape[1], device=block.x.device)
            whole = self._gathered(block, every.expand(block.valid.shape))
            _, hits, of = self.losses(module, whole)
            right, n = right + int(hits.sum()), n + int(of.sum())
        return 1 - right / max(n, 1)


def _train(
    module: nn.Module,
    losses: LossFunction,
    task: FitTask,
    classes: Tensor,
    weights: Callable[[], Mapping[str, Tensor]],
) -> TrainedWeights:
    """Fit a module, whose `weights` are then returned."""
    epochs = _Epochs(task.pairs(None), losses, classes)
    plan = DescentPlan(
        EPOCHS * epochs.steps,
        lambda step: RATE * DROP ** (step // epochs.steps // DROP_AFTER),
        lambda fitted: Adam(fitted.parameters(), 0.0),
        lambda step: step % epochs.steps == 0,
        unit="errors a pair",
    )
    run = Run("released", module.to(task.device))
    Descent([run], epochs, plan, take(task.checkpoints)).fit()
    run.restore()
    values = {name: value.detach().double().cpu() for name, value in weights().items()}
    return TrainedWeights(values, run.steps)


def train_form(family: str, task: FitTask) -> TrainedWeights:
    """Fit a form; its weights are of raw tokens."""
    kind = ReleasedSimilarity if family in ("cosine", "dot") else ReleasedForm
    module = kind(family, task.train.dim, torch.Generator().manual_seed(task.seeds[0]))
    none = torch.zeros(1, dtype=torch.int64, device=task.device)
    return _train(module, pair_losses, task, none, module.weights)


def train_classes(task: FitTask, classes: Tensor) -> TrainedWeights:
    """Fit a softmax regression of classes; `weights` (d, C) and `bias` (C,) are of raw tokens."""
    module = nn.Linear(task.train.dim, len(classes))
    generator, bound = torch.Generator().manual_seed(task.seeds[0]), task.train.dim**-0.5
    for parameter in module.parameters():
        parameter.data.uniform_(-bound, bound, generator=generator)
    return _train(
        module,
        class_losses,
        task,
        classes,
        lambda: {"weights": module.weight.t(), "bias": module.bias},
    )


def standardised(weights: dict[str, Tensor], scaling: Standardiser) -> dict[str, Tensor]:
    """Rewrite weights of raw tokens for standardized ones, float32: z with x = mean + z / scale.

    A raw token that is constant (scale 0) is read as its mean.
    """
    mean, scale = (torch.from_numpy(part).double() for part in (scaling.mean, scaling.scale))
    deviation = torch.where(scale > 0, 1 / scale.clamp_min(1e-300), 0.0)
    new = {"bias": weights["bias"].clone()}
    if "linear" in weights:
        new["linear"] = deviation * weights["linear"]
        new["bias"] += 2 * weights["linear"] @ mean
    elif "weights" in weights:
        new["weights"] = deviation[:, None] * weights["weights"]
        new["bias"] += mean @ weights["weights"]
    else:
        whole = "matrix" in weights
        read = weights["matrix"] @ mean if whole else weights["diagonal"] * mean
        new["linear"], new["bias"] = deviation * read, new["bias"] + read @ mean
        if whole:
            new["matrix"] = deviation[:, None] * weights["matrix"] * deviation
        else:
            new["diagonal"] = deviation**2 * weights["diagonal"]
    return {name: value.float() for name, value in new.items()}
