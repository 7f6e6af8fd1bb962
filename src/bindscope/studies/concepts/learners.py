"""Maps from the values of a scene's objects to its embedding, which descent fits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from bindscope.studies.concepts.config import Approximator


def combined(term: str, vectors: Tensor, n_slots: int) -> Tensor:
    """Add up (`additive`), multiply or join (`mlp`) the vectors of a scene's values.

    Vectors (n, m C, width) are in the order of slots; returns (n, width), joined (n, m C width).
    """
    if term == "mlp":
        return vectors.flatten(1)
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


class MLP(nn.Module):
    """Vectors of values of `dim` dimensions, joined, then layers with ReLU.

    The first layer on joined vectors is a sum over slots and types of vectors times that layer's
    own rows: these products are formed once for each value and not for each scene.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        n_slots: int,
        dim: int,
        widths: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.places = [size for _ in range(n_slots) for size in sizes]
        self.vectors = nn.Parameter(torch.randn(sum(self.places), dim, generator=generator))
        inputs, outputs = [dim * len(self.places), *widths], [*widths, dim]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip(inputs, outputs, strict=True):
            bound = 1 / sqrt(fan_in)
            weight = torch.empty(fan_in, fan_out).uniform_(-bound, bound, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(fan_out)))

    def forward(self, columns: Tensor) -> Tensor:
        """Return embeddings (n, d) of scenes, rows of the tables (n, m C)."""
        first = self.weights[0].view(len(self.places), self.vectors.shape[1], -1)
        parts = zip(torch.split(self.vectors, self.places), first, strict=True)
        x: Tensor = embedding(columns, torch.cat([part @ weight for part, weight in parts])).sum(1)
        x = x + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = torch.relu(x) @ weight + bias
        return x


class PaperMap(nn.Module):
    """The maps of the released code: tables of values by slot before linear layers.

    Vectors are joined (`mlp`), summed (`additive`), or their product stands beside a sum of other
    vectors. Layers with ReLU are for joined vectors; all starts as in torch.
    """

    def __init__(
        self, approximator: Approximator, sizes: Sequence[int], n_slots: int, dim: int, seed: int
    ) -> None:
        super().__init__()
        kind, self.n_slots, rows = approximator.kind, n_slots, n_slots * sum(sizes)
        self.terms = (kind,) if kind in ("mlp", "additive") else (kind, "additive")
        widths = [dim * len(self.terms), dim]
        if kind == "mlp":
            widths = [dim * n_slots * len(sizes), *approximator.widths, dim]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in self.terms)
            layers = [nn.Linear(*pair) for pair in pairwise(widths)]
        self.layers = nn.ModuleList(layers)

    def forward(self, columns: Tensor) -> Tensor:
        """Return embeddings (n, d) of scenes; see `MLP.forward`."""
        parts = zip(self.terms, self.tables, strict=True)
        x = torch.cat([combined(term, table(columns), self.n_slots) for term, table in parts], 1)
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        embeddings: Tensor = self.layers[-1](x)
        return embeddings
