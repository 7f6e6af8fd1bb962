"""Quadratic family: logit_k = <W1_k x, W2_k x> / sqrt(dim x) + b_k, x = [z; masked bits]."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bindscope.config.probes import AttentionProbe, MultilinearReuseProbe, QuadraticProbe
from bindscope.config.probes import QuadraticReuseProbe as ReuseProbe
from bindscope.probes.base import Heads
from bindscope.probes.module import Family, Inputs, InputShape, Projection

Ranked = QuadraticProbe | ReuseProbe | MultilinearReuseProbe | AttentionProbe


class Quadratic(Family):
    """A quadratic form of rank r per head; its second factor starts at zero if anchored."""

    def __init__(
        self, config: Ranked, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        self.factor = self.scale(shape.dim)
        self.left = Projection(shape.dim, heads, config.rank, config.conditioned, generator)
        self.right = Projection(shape.dim, heads, config.rank, config.conditioned, generator)
        self.bias = nn.Parameter(torch.zeros(heads.count))
        if heads.anchored:
            for parameter in self.right.parameters():
                nn.init.zeros_(parameter)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        x = self.read(inputs, bits)
        return (self.left(x) * self.right(x)).sum(2) * self.factor + self.bias
