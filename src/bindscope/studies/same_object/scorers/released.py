"""Fits of probes as the code of the IsSameObject paper makes them (arXiv 2510.24709).

Adam at a rate of 0.001 without decay for 16 epochs, a fifth of it after 8; steps of 256 images, of
whose stored patches 64 are drawn again in every epoch; binary cross-entropy over all ordered pairs
of an image, each patch with itself among them; tokens as they are. The epoch with the highest
validation accuracy is kept. An epoch reads images in groups of neighbors, in an order that is drawn
anew: the store reads these faster than single images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

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
        both: Tensor = self.weight + self.weight.t()
        if self.family == "bilinear":
            both = 2 * self.weight
        return both.div(2 * len(self.weight) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of all pairs of tokens (B, m, d), (B, m, m)."""
        if self.family == "linear":  # a map to one number is applied to both, with its bias
            scores = x @ self.weight + self.bias
            return scores[:, :, None] + scores[:, None, :]
        if self.family == "bilinear":
            first, second = x.chunk(2, -1)
            return torch.bmm(first @ self.matrix(), second.mT) + self.bias
        moved = x * self.weight if self.family == "diagonal" else x @ self.matrix()
        return torch.bmm(moved, x.mT) + self.bias

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of a `PairForm` on raw tokens."""
        if self.family == "linear":
            return {"linear": self.weight, "bias": 2 * self.bias}
        name = "diagonal" if self.family == "diagonal" else "matrix"
        value = self.weight if self.family == "diagonal" else self.matrix()
        return {name: value, "bias": self.bias}


def pair_losses(module: nn.Module, drawn: DrawnPatches) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of a step's pairs in nats, and which pairs i < j are right, of which."""
    both = drawn.valid[:, :, None] & drawn.valid[:, None, :]
    logits = module(drawn.x)
    loss = binary_cross_entropy_with_logits(logits[both], drawn.same[both].float())
    upper = both.triu(1)
    return loss, ((logits > 0) == drawn.same)[upper], upper


def class_losses(module: nn.Module, drawn: DrawnPatches) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of a step's patches in nats, and which are named right, of which."""
    known = drawn.valid & (drawn.classes >= 0)
    values, names = module(drawn.x)[known], drawn.classes[known]
    return cross_entropy(values, names), values.argmax(-1) == names, known


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
        number = first
        while True:
            epoch, place = divmod(number, self.steps)
            yield self._step(epoch, place)
            number += 1

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
        right, count = 0, 0
        for block in self.pairs[1].blocks():
            every = torch.arange(block.valid.shape[1], device=block.x.device)
            whole = self._gathered(block, every.expand(block.valid.shape))
            _, hits, of = self.losses(module, whole)
            right, count = right + int(hits.sum()), count + int(of.sum())
        return 1 - right / max(count, 1)


def _train(module: nn.Module, losses: LossFunction, task: FitTask, classes: Tensor) -> int:
    """Fit a module; return the steps that were taken."""
    epochs = _Epochs(task.pairs(None), losses, classes)
    plan = DescentPlan(
        EPOCHS * epochs.steps,
        lambda step: RATE * DROP ** (step // epochs.steps // DROP_AFTER),
        lambda fitted: Adam(fitted.parameters(), 0.0),
        lambda step: step % epochs.steps == 0,
    )
    run = Run("released", module.to(task.device))
    Descent([run], epochs, plan, take(task.checkpoints)).fit()
    run.restore()
    return run.steps


def train_form(family: str, task: FitTask) -> TrainedWeights:
    """Fit a form; its weights are of raw tokens."""
    module = ReleasedForm(family, task.train.dim, torch.Generator().manual_seed(task.seeds[0]))
    none = torch.zeros(1, dtype=torch.int64, device=task.device)
    steps = _train(module, pair_losses, task, none)
    weights = {name: value.detach().double().cpu() for name, value in module.weights().items()}
    return TrainedWeights(weights, steps)


def train_classes(task: FitTask, classes: Tensor) -> TrainedWeights:
    """Fit a softmax regression of classes; `weights` (d, C) and `bias` (C,) are of raw tokens."""
    module, generator = nn.Linear(task.train.dim, len(classes)), torch.Generator()
    generator.manual_seed(task.seeds[0])
    for parameter in module.parameters():
        bound = task.train.dim**-0.5
        parameter.data.uniform_(-bound, bound, generator=generator)
    steps = _train(module, class_losses, task, classes)
    weights: dict[str, Any] = {"weights": module.weight.t(), "bias": module.bias}
    return TrainedWeights({name: w.detach().double().cpu() for name, w in weights.items()}, steps)


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
