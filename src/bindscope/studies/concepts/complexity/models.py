"""Learners of the map from the values of a scene's objects to its embedding, several at once.

Each holds `copies` learners of one shape (seeds, say) in tensors with a leading axis; a pass takes
scenes of their own for each.

- `additive`: a vector per value and slot, summed. Least squares gives its optimum (`one_hot_fit`);
  here it is a term of the next two.
- `per_object`: in addition, the product over the types of an object's vectors, summed over slots.
- `global`: in addition, the product over the types of all slots.
- `mlp`: a vector per value and slot, joined, then layers with ReLU.

Here products pass a linear map, for an embedding need not have them along its axes; without one,
dimensions are fits of their own (`complexity.coordinates`).
Source: specification, section 2.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor, nn

TERMS = ("additive", "per_object", "global")
# Of the first numbers in tables of values. At 1, as in the released code, what was never trained on
# is foretold as a product of them: noise several times as large as the embedding.
FIRST = 0.2


class Structured(nn.Module):
    """Sums and products of vectors of values.

    Parameters
    ----------
    sizes
        Values of each concept type.
    n_slots, dim, copies
        Slots of a scene, dimensions of the embedding, learners.
    terms
        Of `TERMS`.
    rank
        Dimensions of the products before their linear map.
    generator
        Of the first numbers: normal, and a map that keeps their size.
    """

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
        """Return embeddings (copies, n, d) of scenes.

        Parameters
        ----------
        columns
            Row of the table of one learner for each slot and type, slots first, (copies, n, m C).
        """
        copies, n, places = columns.shape
        flat = columns + self.rows * torch.arange(copies, device=columns.device)[:, None, None]
        out: Tensor = self.bias
        for term, table in self.tables.items():
            found = table.index_select(0, flat.reshape(-1)).view(copies * n, places, -1)
            part = combined(term, found, self.n_slots).view(copies, n, -1)
            out = out + (part @ self.heads[term] if term in self.heads else part)
        return out


def combined(term: str, vectors: Tensor, n_slots: int) -> Tensor:
    """Add up or multiply the vectors of a scene's values.

    Parameters
    ----------
    term
        Of `TERMS`.
    vectors
        (n, m C, width), slots first.
    n_slots
        Slots of a scene, m.

    Returns
    -------
    (n, width).
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


class Perceptron(nn.Module):
    """Vectors of values, joined, then layers with ReLU.

    The first layer on joined vectors is a sum over slots and types of vectors times that layer's
    own rows: these products are formed once for each value and not for each scene.

    Parameters
    ----------
    sizes, n_slots, dim, copies, generator
        As in `Structured`; vectors of values have `dim` dimensions.
    widths
        Of the hidden layers.
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
        inputs = [dim * len(self.places), *widths]
        outputs = [*widths, dim]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip(inputs, outputs, strict=True):
            bound = 1 / sqrt(fan_in)
            weight = torch.empty(copies, fan_in, fan_out).uniform_(
                -bound, bound, generator=generator
            )
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(copies, 1, fan_out)))

    def forward(self, columns: Tensor) -> Tensor:
        """Return embeddings (copies, n, d); see `Structured.forward`."""
        copies, n, places = columns.shape
        dim = self.vectors.shape[2]
        first = self.weights[0].view(copies, places, dim, -1)
        parts = torch.split(self.vectors, self.places, dim=1)
        table = torch.cat([part @ first[:, i] for i, part in enumerate(parts)], dim=1)
        own = torch.arange(copies, device=columns.device)[:, None, None]
        flat = (columns + self.rows * own).reshape(-1)
        rows = table.flatten(0, 1).index_select(0, flat)
        x: Tensor = rows.view(copies, n, places, -1).sum(2) + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = torch.relu(x) @ weight + bias
        return x
