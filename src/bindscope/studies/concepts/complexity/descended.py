"""Fits of approximators by descent, several learners at once.

Full batches of Adam with the rate falling to zero along a cosine.  Embeddings are shifted by the
mean of the training scenes and divided by one number, so that the rate does not hang on their unit.
Kept are the embeddings that each learner predicts at its best validation loss, or, where no scene
validates, at the end (specification, section 2.8; defects D6 and D7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bindscope.fitting.adam import Adam
from bindscope.studies.concepts.complexity.fitted import Fitted, Selected
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.least_squares import value_columns
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes

EVALUATIONS = 20
NUMBERS_AT_ONCE = 2**28  # float32 of learners that descend together: 1 GiB
STILL_FALLING, NEGLIGIBLE = 0.05, 1e-3  # share of the loss; of the embedding's variance


@dataclass(frozen=True)
class Descending:
    """How far and how fast to descend.

    Attributes
    ----------
    steps
        Of the optimiser.
    rate
        Learning rate at the start.
    ridge
        Decay of the weights, apart from the gradient (AdamW).
    """

    steps: int = 1000
    rate: float = 1e-2
    ridge: float = 0.0


Build = Callable[[int, torch.Generator], nn.Module]


def fit_descended(
    z: Floats,
    scenes: Scenes,
    splits: Sequence[ObjectSplit],
    build: Build,
    descending: Descending,
    seed: int = 0,
    device: str = "cpu",
) -> Fitted:
    """Fit a learner to each split.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    splits
        A learner each; of one coverage, so that their training scenes are about as many.
    build
        Makes the learners, given how many and a generator.
    descending
        Steps and rate.
    seed
        Of the first weights, which are the same on every device.
    device
        Where they are fitted.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    data = _Data(torch.from_numpy(np.asarray(z, np.float32)).to(device), columns, splits)
    model = build(len(splits), torch.Generator().manual_seed(seed)).to(device)
    optimiser = Adam(model.parameters(), descending.ridge)
    kept = _Kept(data, splits)
    inputs, targets, weights = data.training()
    every = max(1, descending.steps // EVALUATIONS)
    for step in range(descending.steps):
        if step % every == 0:
            kept.evaluate(model)
        error = (model(inputs) - targets).square().mean(2) * weights
        error.sum().backward()
        optimiser.step(descending.rate * (1 + cos(pi * step / descending.steps)) / 2)
    kept.evaluate(model)
    numbers = sum(p.numel() for p in model.parameters()) // len(splits)
    losses = np.stack(kept.losses)
    selected: Selected = "validation" if kept.scored else "final"
    return Fitted(kept.found(), selected, losses, numbers, _ended(losses))


def learners_at_once(build: Build, shape: tuple[int, ...], n_train: int, width: int) -> int:
    """Return how many learners fit in `NUMBERS_AT_ONCE` together, at least one.

    Parameters
    ----------
    build
        Makes learners.
    shape
        Of the embeddings, (n, d).
    n_train, width
        Training scenes, and what is held of each between the layers.
    """
    one = sum(p.numel() for p in build(1, torch.Generator()).parameters())
    # Weights, gradients and two moments; embeddings, their errors and predictions; activations.
    held = 4 * one + 4 * shape[0] * shape[1] + 3 * n_train * (shape[1] + width)
    return max(1, NUMBERS_AT_ONCE // held)


def _ended(losses: Doubles) -> list[bool]:
    """Tell of each copy whether its loss hardly fell in the second half of the steps."""
    before, after = losses[len(losses) // 2], losses[-1]
    allowed = np.maximum(STILL_FALLING * before, NEGLIGIBLE)
    return [bool(fell) for fell in before - after <= allowed]


class _Data:
    """Training scenes of each learner, filled up to equal numbers; embeddings in their scale."""

    def __init__(self, z: Tensor, columns: Tensor, splits: Sequence[ObjectSplit]) -> None:
        self.columns, self.splits = columns, splits
        own = [torch.from_numpy(split.train).to(z.device) for split in splits]
        self.mean = torch.stack([z[index].mean(0) for index in own])[:, None]
        self.scaled = z - self.mean
        spread = [self.scaled[i, index].square().mean() for i, index in enumerate(own)]
        self.scale = torch.stack(spread).sqrt().clamp_min(1e-12)[:, None, None]
        self.scaled = self.scaled / self.scale

    def training(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return columns (copies, t, q), targets (copies, t, d) and weights (copies, t)."""
        longest = max(len(split.train) for split in self.splits)
        index = torch.zeros(len(self.splits), longest, dtype=torch.int64)
        weights = torch.zeros(len(self.splits), longest)
        for i, split in enumerate(self.splits):
            index[i, : len(split.train)] = torch.from_numpy(split.train)
            weights[i, : len(split.train)] = 1 / max(len(split.train), 1)
        device = self.columns.device
        index, copies = index.to(device), torch.arange(len(self.splits), device=device)[:, None]
        return self.columns[index], self.scaled[copies, index], weights.to(device)

    def all(self) -> Tensor:
        return self.columns.expand(len(self.splits), *self.columns.shape)


class _Kept:
    """The predictions of the best state so far; without validation scenes, of the last one."""

    def __init__(self, data: _Data, splits: Sequence[ObjectSplit]) -> None:
        self.data, self.splits = data, splits
        self.losses: list[Doubles] = []
        self.scored = all(len(split.validation) for split in splits)
        self.best = np.full(len(splits), np.inf)
        self.predicted: Tensor | None = None

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> None:
        predicted = model(self.data.all())
        error = (predicted - self.data.scaled).square().mean(2).double().cpu().numpy()
        self.losses.append(_means(error, [split.train for split in self.splits]))
        if self.predicted is None or not self.scored:
            self.predicted = predicted
        if self.scored:
            loss = _means(error, [split.validation for split in self.splits])
            better = torch.from_numpy(loss < self.best).to(predicted.device)[:, None, None]
            self.predicted = torch.where(better, predicted, self.predicted)
            self.best = np.minimum(loss, self.best)

    def found(self) -> npt.NDArray[np.float32]:
        assert self.predicted is not None
        found = self.predicted * self.data.scale + self.data.mean
        return np.asarray(found.cpu().numpy(), np.float32)


def _means(error: Doubles, scenes: Sequence[Integers]) -> Doubles:
    return np.array([row[index].mean() for row, index in zip(error, scenes, strict=True)])
