"""Families that share the projections of z between objects with a feature in common.

logit_k = sum_r prod_g (W_g,k x)_r / sqrt(dim x) + b_k, where the z part of W_g,k belongs to the
value of feature group g that object k has, and the bit part to the head.
"""

from __future__ import annotations

from math import prod
from typing import Any

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


class _Shared(torch.autograd.Function):
    """The factors of all objects: a z part per feature and a bit part per head.

    z (B, d) and its weight (values, rank, d), values those of all groups one after the other; bits
    (B, length), their weight (groups, heads, rank, length) and mask. Returns (groups, heads, rank,
    B).
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        bits: Tensor,
        by_value: Tensor,
        by_head: Tensor,
        mask: Tensor,
        sizes: tuple[int, ...],
    ) -> Tensor:
        bits = bits.t().contiguous()  # a product with few columns is a third slower
        ctx.save_for_backward(z, bits, by_value, by_head, mask)
        ctx.sizes = sizes
        shared = (by_value.flatten(0, 1) @ z.t()).view(*by_value.shape[:2], -1)
        shape = (len(sizes), prod(sizes), *shared.shape[1:])
        factors = (by_head.flatten(0, 2) @ bits).view(shape)
        for g, values in enumerate(torch.split(shared, list(sizes))):
            grid = [n if h == g else 1 for h, n in enumerate(sizes)]
            factors[g].view(*sizes, *shape[2:]).add_(values.view(*grid, *shape[2:]))
        return factors

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        z, bits, by_value, by_head, mask = ctx.saved_tensors
        sizes, groups = ctx.sizes, range(len(ctx.sizes))
        grid = gradient.view(len(sizes), *sizes, *gradient.shape[2:])
        sums = []
        for g in groups:
            others = [h for h in groups if h != g]
            sums.append(grid[g].sum(others) if others else grid[g])
        shared = torch.cat(sums).flatten(0, 1)
        by_z = shared.t() @ by_value.flatten(0, 1) if ctx.needs_input_grad[0] else None
        by_by_value = (shared @ z).view_as(by_value)
        rows = gradient.flatten(0, 2)
        by_bits = rows.t() @ by_head.flatten(0, 2) if ctx.needs_input_grad[1] else None
        by_by_head = (rows @ bits.t()).view_as(by_head).mul_(mask)
        return by_z, by_bits, by_by_value, by_by_head, None, None


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
        """Return the factors of all objects, (groups, heads, rank, B)."""
        factors: Tensor = _Shared.apply(  # type: ignore[no-untyped-call]
            z, bits, self.values, self.bits.weight, self.bits.mask, self.sizes
        )
        return factors

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        return sum_of_products(self.factors(inputs, bits)) * self.factor + self.bias
