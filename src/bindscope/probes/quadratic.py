"""Quadratic family: logit_k = <W1_k x, W2_k x> / sqrt(dim x) + b_k, x = [z; masked bits]."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bindscope.config.probes import AttentionProbe, MultilinearReuseProbe, QuadraticProbe
from bindscope.config.probes import QuadraticReuseProbe as ReuseProbe
from bindscope.probes.base import Target
from bindscope.probes.module import Family, Heads, Inputs, InputShape, Part, Projection

Ranked = QuadraticProbe | ReuseProbe | MultilinearReuseProbe | AttentionProbe


class QuadraticHeads(Part):
    """The two factors of a range of heads; the second is zero at the start if anchored.

    Parameters
    ----------
    dim
        Dimension of z.
    heads
        The heads.
    config
        Rank and conditioning.
    anchored
        Whether the learned term starts at zero.
    generator
        Draws the initial weights from N(0, 0.02^2).
    """

    def __init__(
        self, dim: int, heads: Heads, config: Ranked, anchored: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.left = Projection(dim, heads, config.rank, config.conditioned, generator)
        self.right = Projection(dim, heads, config.rank, config.conditioned, generator)
        self.bias = nn.Parameter(torch.zeros(heads.count))
        if anchored:
            for parameter in self.right.parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor, scale: float) -> Tensor:
        """Return (B, heads) from x = [z; bits - 1/2], with 1 / sqrt(dim x) as `scale`."""
        return (self.left(x) * self.right(x)).sum(2) * scale + self.bias


class Quadratic(Family):
    """A quadratic form of rank r per head."""

    def __init__(
        self, config: Ranked, target: Target, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, target, shape, generator)
        self.factor = self.scale(shape.dim)
        heads = Heads(0, target.n_heads, target.n_heads)
        self.heads = QuadraticHeads(shape.dim, heads, config, target.anchored, generator)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        return self.heads(self.read(inputs, bits), self.factor)
