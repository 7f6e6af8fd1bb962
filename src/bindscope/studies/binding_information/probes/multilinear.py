"""Families that share the projections of z between objects with a feature in common.

logit_k = sum_r prod_g (W_g,k x)_r / sqrt(dim x) + b_k, where the z part of W_g,k belongs to the
value of feature group g that object k has, and the bit part to the head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bindscope.studies.binding_information.families import RankedProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    ProbeInputs,
    Projection,
    initial_rows,
    initial_weights,
    sum_of_products,
)
from bindscope.studies.binding_information.probes.quadratic import Quadratic


class MultilinearReuse(Family):
    """Multilinear objects (of two groups: `quadratic_reuse`); feature heads are quadratic."""

    feature_family = Quadratic
    feature_probe = "quadratic"

    def __init__(
        self, config: RankedProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        self.factor = self.scale(shape.dim)
        self.sizes, values, rows = heads.sizes, [], []
        for size in heads.sizes:
            values.append(initial_weights(generator, shape.dim, size, config.rank))
            rows.append(initial_rows(0, heads, config.rank, generator))
        if self.starts_at_zero:
            values[-1].zero_()
            rows[-1].zero_()
        self.values = nn.Parameter(torch.cat(values, dim=1).movedim(0, -1).contiguous())
        self.bits = Projection(torch.stack(rows, dim=1), heads)
        self.bias = nn.Parameter(torch.zeros(heads.count))

    def factors(self, z: Tensor, bits: Tensor) -> Tensor:
        """Return the factors of all objects, (groups, heads, rank, B).

        Each is the sum of what z says of the object's value in the group, the same for all objects
        with that value, and of what the bits say that its head may see.
        """
        rank = self.values.shape[1]
        of_values = (self.values.flatten(0, 1) @ z.t()).view(-1, rank, len(z))
        of_objects = []
        for g, values in enumerate(torch.split(of_values, list(self.sizes))):
            grid = [n if h == g else 1 for h, n in enumerate(self.sizes)]
            grid_values = values.view(*grid, rank, len(z)).expand(*self.sizes, -1, -1)
            of_objects.append(grid_values.flatten(0, len(self.sizes) - 1))
        visible_rows = (self.bits.weight * self.bits.mask).flatten(0, 2)
        # A product with few columns is a third slower.
        of_bits = (visible_rows @ bits.t().contiguous()).view(len(self.sizes), -1, rank, len(z))
        return of_bits + torch.stack(of_objects)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        return sum_of_products(self.factors(inputs, bits)) * self.factor + self.bias
