"""Attention family: each head reads the patch tokens with its own query, then a quadratic form.

q_k = Wq (base_k + sum_{i<k} (o_i - 1/2) Q_i), no key or value projection; a_k = softmax over the
patch tokens of q_k.s_i / sqrt(d); pooled s_k = sum_i a_ki s_i; logit_k = quadratic readout of
[CLS; s_k; masked bits], without [CLS] if the model has none (spec 1, section 2).
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from bindscope.config.probes import AttentionProbe
from bindscope.probes.base import Heads
from bindscope.probes.module import (
    Family,
    Inputs,
    InputShape,
    Part,
    Projection,
    Tokens,
    normal,
    visible,
)


class Readout(Part):
    """One factor of the readout: W_k [CLS; s_k; masked bits].

    [CLS] and bits are one product for all heads; s_k, which is the head's own, a batched one.
    """

    def __init__(
        self, shape: InputShape, heads: Heads, config: AttentionProbe, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.pooled = normal(generator, heads.count, shape.dim, config.rank)
        dim = shape.dim if shape.cls else 0
        self.rest = (
            Projection(dim, heads, config.rank, config.conditioned, generator)
            if dim or config.conditioned
            else None
        )

    def forward(self, pooled: Tensor, rest: Tensor) -> Tensor:
        """Return (heads, B, rank) from s (B, heads, d) and [CLS; bits] (B, .)."""
        own = pooled.transpose(0, 1)
        if self.rest is None:
            return torch.bmm(own, self.pooled)
        return torch.baddbmm(self.rest(rest).transpose(0, 1), own, self.pooled)


class AttentionQuadratic(Family):
    """Attention over patch tokens and a quadratic readout.

    The query is linear in the bits, so Wq is folded into base and Q once per step and the queries
    of all heads are one product of the masked bits with Wq Q; no sample passes through Wq.
    """

    patches = True
    mask: Tensor

    def __init__(
        self, config: AttentionProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        k, d = heads.count, shape.dim
        self.temperature = 1 / sqrt(d)
        self.factor = self.scale(2 * d if shape.cls else d)
        self.query = normal(generator, d, d)
        self.base = normal(generator, k, d)
        self.revealed = normal(generator, heads.length, d) if config.conditioned else None
        self.left = Readout(shape, heads, config, generator)
        self.right = Readout(shape, heads, config, generator)
        self.bias = nn.Parameter(torch.zeros(k))
        self.register_buffer("mask", visible(heads).t().contiguous(), persistent=False)
        if heads.anchored:
            for parameter in self.right.parameters():
                nn.init.zeros_(parameter)

    def attention(self, inputs: Tokens, bits: Tensor) -> Tensor:
        """Return the attention weights (B, heads, T); `bits` (B, length) are centred."""
        base = self.base @ self.query.t()
        if self.revealed is None:
            scores = base @ inputs.patches.transpose(1, 2)
        else:
            seen = (bits[:, None] * self.mask).flatten(0, 1)  # (B heads, bits)
            queries = (seen @ (self.revealed @ self.query.t())).view(len(bits), *base.shape)
            scores = torch.bmm(queries + base, inputs.patches.transpose(1, 2))
        return (scores * self.temperature).softmax(2)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tokens)
        pooled = torch.bmm(self.attention(inputs, bits), inputs.patches)
        parts = [inputs.cls] if inputs.cls is not None else []
        parts += [bits] if self.conditioned else []
        rest = torch.cat(parts, dim=1) if parts else bits
        readout = (self.left(pooled, rest) * self.right(pooled, rest)).sum(2).t()
        return readout * self.factor + self.bias
