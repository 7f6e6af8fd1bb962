"""Quadratic family: logit_k = <W1_k x, W2_k x> / sqrt(dim x) + b_k, x = [z; masked bits]."""

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
    sum_of_products,
)


class Quadratic(Family):
    """A quadratic form of rank r per head, whose second factor starts at zero if the term does."""

    def __init__(
        self, config: RankedProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        self.factor = self.scale(shape.dim)
        first, second = (initial_rows(shape.dim, heads, config.rank, generator) for _ in range(2))
        if self.starts_at_zero:
            second.zero_()
        rows = torch.stack([first, second], dim=1)
        self.factors = Projection(rows, heads, batch_last=True)
        self.bias = nn.Parameter(torch.zeros(heads.count))

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        factors = self.factors(self.read(inputs, bits))  # (2, heads, rank, B)
        return sum_of_products(factors) * self.factor + self.bias
