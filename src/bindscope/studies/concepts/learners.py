"""Learners of the map from the values of a scene's objects to its embedding.

- `additive`: a vector per value and slot, summed.
- `per_object`: in addition, the product over the types of an object's vectors, summed over slots.
- `global`: in addition, the product over the types of all slots.
- `mlp`: a vector per value and slot, joined, then layers with ReLU.

Products either pass a linear map, for an embedding need not have them along its axes, and are then
fitted by descent like MLPs, several learners at once (`fit_descended`); or they are products in the
embedding's own dimensions, which have nothing in common: each is a small fit (`fit_coordinates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi, sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bindscope.fitting.adam import Adam
from bindscope.fitting.lbfgs import descend
from bindscope.studies.concepts.counting import NUMBERS_AT_ONCE
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes
from bindscope.studies.concepts.splits import ObjectSplit
from bindscope.studies.concepts.vectors import value_columns

Selected = Literal["final", "validation"]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What learners of one shape predict."""

    # Embeddings of all scenes, (copies, n, d), by the state that is judged: the one of the smallest
    # loss on validation scenes, where a learner has several states and there are such scenes.
    predicted: npt.NDArray[np.float32]
    selected: Selected
    losses: Doubles  # mean square error in training, in variances, (evaluations, copies)
    parameters: int | None  # of one learner; None of trees
    ended: list[bool]  # of each copy, whether its fit converged


def combined(term: str, vectors: Tensor, n_slots: int) -> Tensor:
    """Add up (`additive`) or multiply the vectors of a scene's values.

    Vectors (n, m C, width) are in the order of slots; returns (n, width).
    """
    if term == "additive":
        return vectors.sum(1)
    by_slot = vectors.view(len(vectors), n_slots, -1, vectors.shape[2])
    return _product(by_slot.transpose(1, 2)).sum(1) if term == "per_object" else _product(vectors)


def _product(factors: Tensor) -> Tensor:
    """Multiply over the second axis; unlike that of `torch.prod`, the gradient is products too."""
    out = factors[:, 0]
    for i in range(1, factors.shape[1]):
        out = out * factors[:, i]
    return out


# --- By descent ---------------------------------------------------------------------------------

# Of the first numbers in tables of values. At 1, as in the released code, what was never trained on
# is predicted as a product of them: noise several times as large as the embedding.
FIRST = 0.2
RATE = 1e-2  # of Adam at the start; it falls to 0 along a cosine
EVALUATIONS = 20
STILL_FALLING, NEGLIGIBLE = 0.05, 1e-3  # share of the loss; of the embedding's variance

Build = Callable[[int, torch.Generator], nn.Module]


class Structured(nn.Module):
    """Sums of vectors of values, and products of others behind a linear map to `dim` dimensions."""

    def __init__(
        self,
        sizes: Sequence[int],
        n_slots: int,
        dim: int,
        copies: int,
        terms: Sequence[str],
        rank: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_slots, self.rows = n_slots, n_slots * sum(sizes)
        self.tables, self.heads = nn.ParameterDict(), nn.ParameterDict()
        for term in terms:
            # Sums are in the embedding's own dimensions: a map behind them adds nothing.
            width = dim if term == "additive" else rank
            table = FIRST * torch.randn(copies * self.rows, width, generator=generator)
            self.tables[term] = nn.Parameter(table)
            if term != "additive":
                head = torch.randn(copies, rank, dim, generator=generator) / sqrt(rank)
                self.heads[term] = nn.Parameter(head)
        self.bias = nn.Parameter(torch.zeros(copies, 1, dim))

    def forward(self, columns: Tensor) -> Tensor:
        """Return embeddings (copies, n, d) of scenes, rows of the tables (copies, n, m C)."""
        copies, n, places = columns.shape
        flat = columns + self.rows * torch.arange(copies, device=columns.device)[:, None, None]
        out: Tensor = self.bias
        for term, table in self.tables.items():
            vectors = table.index_select(0, flat.reshape(-1)).view(copies * n, places, -1)
            part = combined(term, vectors, self.n_slots).view(copies, n, -1)
            out = out + (part @ self.heads[term] if term in self.heads else part)
        return out


class Perceptron(nn.Module):
    """Vectors of values of `dim` dimensions, joined, then layers with ReLU.

    The first layer on joined vectors is a sum over slots and types of vectors times that layer's
    own rows: these products are formed once for each value and not for each scene.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        n_slots: int,
        dim: int,
        copies: int,
        widths: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.places = [size for _ in range(n_slots) for size in sizes]
        self.rows = sum(self.places)
        self.vectors = nn.Parameter(torch.randn(copies, self.rows, dim, generator=generator))
        inputs, outputs = [dim * len(self.places), *widths], [*widths, dim]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip(inputs, outputs, strict=True):
            weight = torch.empty(copies, fan_in, fan_out)
            bound = 1 / sqrt(fan_in)
            self.weights.append(nn.Parameter(weight.uniform_(-bound, bound, generator=generator)))
            self.biases.append(nn.Parameter(torch.zeros(copies, 1, fan_out)))

    def forward(self, columns: Tensor) -> Tensor:
        """Return embeddings (copies, n, d); see `Structured.forward`."""
        copies, n, places = columns.shape
        first = self.weights[0].view(copies, places, self.vectors.shape[2], -1)
        parts = torch.split(self.vectors, self.places, dim=1)
        table = torch.cat([part @ first[:, i] for i, part in enumerate(parts)], dim=1)
        copy = torch.arange(copies, device=columns.device)[:, None, None]
        rows = table.flatten(0, 1).index_select(0, (columns + self.rows * copy).reshape(-1))
        x: Tensor = rows.view(copies, n, places, -1).sum(2) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = torch.relu(x) @ weight + bias
        return x


def fit_descended(
    z: Floats,
    scenes: Scenes,
    splits: Sequence[ObjectSplit],
    build: Build,
    steps: int,
    device: str = "cpu",
) -> Fitted:
    """Fit a learner of embeddings (n, d) to each split of one coverage by full batches of Adam.

    Embeddings are shifted by the mean of the training scenes and divided by one number, so that the
    rate does not hang on their unit. Each learner is judged by its best validation loss or, where
    no scene validates, at the end. The seed of the first split is that of the first weights, which
    are the same on every device.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    data = _Data(torch.from_numpy(np.asarray(z, np.float32)).to(device), columns, splits)
    model = build(len(splits), torch.Generator().manual_seed(splits[0].seed)).to(device)
    optimizer, states = Adam(model.parameters(), 0.0), _States(data, splits)
    inputs, targets, weights = data.training()
    for step in range(steps):
        if step % max(1, steps // EVALUATIONS) == 0:
            states.evaluate(model)
        error = (model(inputs) - targets).square().mean(2) * weights
        error.sum().backward()
        optimizer.step(RATE * (1 + cos(pi * step / steps)) / 2)
    states.evaluate(model)
    numbers = sum(p.numel() for p in model.parameters()) // len(splits)
    losses = np.stack(states.losses)
    selected: Selected = "validation" if states.scored else "final"
    return Fitted(states.predictions(), selected, losses, numbers, _ended(losses))


def learners_at_once(build: Build, shape: tuple[int, ...], n_train: int, width: int) -> int:
    """Return how many learners fit in `NUMBERS_AT_ONCE` together, at least one.

    `shape` is that of the embeddings, (n, d); `width` is what is held of each of `n_train` scenes
    between the layers.
    """
    weights = sum(p.numel() for p in build(1, torch.Generator()).parameters())
    # Weights, gradients and two moments; embeddings, their errors and predictions; activations.
    numbers = 4 * weights + 4 * shape[0] * shape[1] + 3 * n_train * (shape[1] + width)
    return max(1, NUMBERS_AT_ONCE // numbers)


def _ended(losses: Doubles) -> list[bool]:
    """Return of each copy whether its loss hardly fell in the second half of the steps."""
    before, after = losses[len(losses) // 2], losses[-1]
    allowed = np.maximum(STILL_FALLING * before, NEGLIGIBLE)
    return [bool(fell) for fell in before - after <= allowed]


class _Data:
    """Training scenes of each learner, filled up to equal numbers; embeddings in their scale."""

    def __init__(self, z: Tensor, columns: Tensor, splits: Sequence[ObjectSplit]) -> None:
        self.columns, self.splits = columns, splits
        train = [torch.from_numpy(split.train).to(z.device) for split in splits]
        self.mean = torch.stack([z[index].mean(0) for index in train])[:, None]
        self.scaled = z - self.mean
        spread = [self.scaled[i, index].square().mean() for i, index in enumerate(train)]
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


class _States:
    """The predictions of the best state so far; without validation scenes, of the last one."""

    def __init__(self, data: _Data, splits: Sequence[ObjectSplit]) -> None:
        self.data, self.splits = data, splits
        self.losses: list[Doubles] = []
        self.scored = all(len(split.validation) for split in splits)
        self.best = np.full(len(splits), np.inf)
        self.predicted: Tensor | None = None

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> None:
        columns = self.data.columns
        predicted = model(columns.expand(len(self.splits), *columns.shape))
        error = (predicted - self.data.scaled).square().mean(2).double().cpu().numpy()
        self.losses.append(_means(error, [split.train for split in self.splits]))
        if self.predicted is None or not self.scored:
            self.predicted = predicted
        if self.scored:
            loss = _means(error, [split.validation for split in self.splits])
            better = torch.from_numpy(loss < self.best).to(predicted.device)[:, None, None]
            self.predicted = torch.where(better, predicted, self.predicted)
            self.best = np.minimum(loss, self.best)

    def predictions(self) -> npt.NDArray[np.float32]:
        assert self.predicted is not None
        embeddings = self.predicted * self.data.scale + self.data.mean
        return np.asarray(embeddings.cpu().numpy(), np.float32)


def _means(error: Doubles, scenes: Sequence[Integers]) -> Doubles:
    return np.array([row[index].mean() for row, index in zip(error, scenes, strict=True)])


# --- In the embedding's own dimensions ----------------------------------------------------------

TOLERANCE = 1e-6  # of the loss, in variances of the embedding
SIZE = 0.1  # standard deviation of the first numbers
# Half of each times the sum of squares is added to the mean square of the error, in variances of
# the embedding. Without validation scenes the first counts alone.
RIDGES = (1e-4, 1e-2, 1e-1)
ITERATIONS = 200


class _Errors:
    """Mean square of the error per column, with its gradient: an `Objective` of L-BFGS."""

    def __init__(
        self, columns: Tensor, targets: Tensor, terms: Sequence[str], n_slots: int, rows: int
    ) -> None:
        self.columns, self.targets = columns, targets
        self.terms, self.n_slots, self.rows = tuple(terms), n_slots, rows
        self.ridge = torch.zeros(1, 1)

    def predict(self, w: Tensor, columns: Tensor) -> Tensor:
        """Return predictions (n, columns of w)."""
        out = w[-1:]
        for i, term in enumerate(self.terms):
            table = w[i * self.rows : (i + 1) * self.rows]
            out = out + combined(term, table[columns], self.n_slots)
        return out

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = w.detach().requires_grad_()
            loss = (self.predict(leaf, self.columns) - self.targets).square().mean(0)
            (slope,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), slope

    def aim(self, w: Tensor, direction: Tensor) -> None:
        self.w, self.direction = w, direction

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        loss, self.slope = self.begin(self.w + t * self.direction)
        return loss, (self.slope * self.direction).sum(0)

    def arrive(self, t: Tensor) -> Tensor:
        del t  # the gradient is that of the last trial
        return self.slope

    def keep(self, index: Tensor) -> None:
        self.targets = self.targets[:, index]

    def precondition(self, g: Tensor) -> Tensor:
        return g * (self.rows / self.columns.shape[1])  # how seldom a value is there


def fit_coordinates(
    z: Floats,
    scenes: Scenes,
    split: ObjectSplit,
    terms: Sequence[str],
    starts: int,
    device: str = "cpu",
) -> Fitted:
    """Fit sums and products to the training scenes of a split, all dimensions in one L-BFGS.

    A product has local minima, so that each dimension is fitted from several starts, of which the
    one with the least penalized loss on training scenes is chosen; in every other start, factors of
    products are about 1, not about 0. Where a product does not hold, its predictions of unseen
    objects are far off unless a ridge limits them: where there are validation scenes, each
    dimension has its best ridge and start by these as well.
    """
    columns = torch.from_numpy(value_columns(scenes)).to(device)
    values = torch.from_numpy(np.asarray(z, np.float32)).to(device)
    mean = values[split.train].mean(0)
    scale = (values[split.train] - mean).square().mean().sqrt().clamp_min(1e-12)
    targets, dim = (values - mean) / scale, values.shape[1]
    rows = scenes.n_slots * sum(scenes.sizes)
    first = _first(terms, rows, dim, starts, split.seed).to(device)
    predicted, penalized, decrements = [], [], []
    for ridge in RIDGES if len(split.validation) else RIDGES[:1]:
        repeated = targets[split.train].repeat(1, starts)
        errors = _Errors(columns[split.train], repeated, terms, scenes.n_slots, rows)
        errors.ridge = torch.full((1, 1), ridge, device=values.device)
        minimum = descend(errors, first, iterations=ITERATIONS, tolerance=TOLERANCE)
        with torch.no_grad():
            predicted.append(errors.predict(minimum.w, columns).view(len(values), -1, dim))
        penalized.append(ridge / 2 * minimum.w.square().sum(0).view(-1, dim))
        decrements.append(minimum.decrement.view(-1, dim))
    fits = torch.cat(predicted, dim=1)
    loss, chosen, ended = _chosen(fits, targets, torch.cat(penalized), torch.cat(decrements), split,
                                  starts)  # fmt: skip
    every = torch.arange(dim, device=values.device)
    return Fitted(
        (fits[:, chosen, every] * scale + mean)[None].cpu().numpy(),
        "validation" if len(split.validation) else "final",
        losses=loss[chosen, every].mean()[None, None].double().cpu().numpy(),
        parameters=len(first) * dim,
        ended=[ended],
    )


def _chosen(
    fits: Tensor, targets: Tensor, penalty: Tensor, decrements: Tensor, split: ObjectSplit,
    starts: int,
) -> tuple[Tensor, Tensor, bool]:  # fmt: skip
    """Return losses (fits, d), the fit of each dimension, and whether nearly all converged.

    Predictions are (n, fits, d); those of the first ridge come first.
    """
    error = (fits - targets[:, None]).square()
    loss = error[split.train].mean(0)
    final = (loss + penalty)[:starts].argmin(0)
    chosen = error[split.validation].mean(0).argmin(0) if len(split.validation) else final
    converged = decrements.gather(0, final[None]) <= 10 * TOLERANCE
    return loss, chosen, bool(converged.float().mean() >= 0.95)


def _first(terms: Sequence[str], rows: int, dim: int, starts: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(terms) * rows + 1, starts, dim)
    first = SIZE * torch.randn(shape, generator=generator)
    for i, term in enumerate(terms):
        if term != "additive":
            first[i * rows : (i + 1) * rows, 1::2] += 1
    return first.flatten(1)
