"""Attention family: each head reads the patch tokens with its own query, then a quadratic form.

q_k = Wq (base_k + sum_{i<k} (o_i - 1/2) Q_i), no key or value projection; a_k = softmax over the
patch tokens of q_k.s_i / sqrt(d); pooled s_k = sum_i a_ki s_i; logit_k = quadratic readout of
[CLS; s_k; masked bits], without [CLS] if the model has none (spec 1, section 2).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from bindscope.config.probes import AttentionProbe
from bindscope.probes.base import Heads
from bindscope.probes.module import (
    Family,
    Inputs,
    InputShape,
    Projection,
    Tokens,
    drawn,
    drawn_rows,
    normal,
    visible,
)


class _Pool(torch.autograd.Function):
    """Pooled tokens (B, heads, d) from what queries see, and what they are made of.

    Queries are seen (B, heads, length) times `revealed` (length, d), plus `base` (heads, d). Tokens
    are given as (B, T, d) and as (B, d, T), and have no gradient: products whose second factor lies
    transposed in memory take up to three times as long.
    """

    @staticmethod
    def forward(
        ctx: Any,
        seen: Tensor | None,
        revealed: Tensor | None,
        base: Tensor,
        tokens: Tensor,
        transposed: Tensor,
        temperature: float,
    ) -> Tensor:
        queries = _queries(seen, revealed, base, len(tokens))
        attention = torch.bmm(queries, transposed).mul_(temperature).softmax(2)
        ctx.save_for_backward(seen, revealed, attention, tokens, transposed)
        ctx.temperature = temperature
        return torch.bmm(attention, tokens)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        seen, revealed, attention, tokens, transposed = ctx.saved_tensors
        by_attention = torch.bmm(gradient, transposed)
        by_scores = torch._softmax_backward_data(by_attention, attention, 2, attention.dtype)
        by_scores.mul_(ctx.temperature)
        by_queries = torch.bmm(by_scores, tokens)
        by_seen = by_revealed = None
        if seen is not None:
            if ctx.needs_input_grad[0]:
                by_seen = by_queries @ revealed.t()
            by_revealed = seen.flatten(0, 1).t() @ by_queries.flatten(0, 1)
        return by_seen, by_revealed, by_queries.sum(0), None, None, None


def _queries(seen: Tensor | None, revealed: Tensor | None, base: Tensor, batch: int) -> Tensor:
    """Return (B, heads, d)."""
    if seen is None or revealed is None:
        return base.expand(batch, *base.shape)
    return (seen.flatten(0, 1) @ revealed).view(batch, *base.shape).add_(base)


class AttentionQuadratic(Family):
    """Attention over patch tokens and a quadratic readout.

    The query is linear in the bits, so Wq is folded into base and Q once per step and the queries
    of all heads are one product of the masked bits with Wq Q; no sample passes through Wq. In the
    readout [CLS] and bits are one product for all heads and both factors; s_k, which is the head's
    own, a batched one per factor.
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
        pooled, rest = [], []
        for _ in range(2):  # the factors
            pooled.append(drawn(generator, k, d, config.rank))
            if shape.cls or config.conditioned:
                dim = d if shape.cls else 0
                rest.append(drawn_rows(dim, heads, config.rank, config.conditioned, generator))
        if heads.anchored:
            for last in (*pooled[-1:], *rest[-1:]):
                last.zero_()
        self.pooled = nn.ParameterList(pooled)
        self.rest = Projection(torch.cat(rest, dim=2), heads, config.conditioned) if rest else None
        self.bias = nn.Parameter(torch.zeros(k))
        self.register_buffer("mask", visible(heads).t().contiguous(), persistent=False)

    def _folded(self, bits: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return what queries are made of: masked bits (B, heads, length), Wq Q and Wq base."""
        if self.revealed is None:
            return None, None, self.base @ self.query.t()
        return bits[:, None] * self.mask, self.revealed @ self.query.t(), self.base @ self.query.t()

    def attention(self, inputs: Tokens, bits: Tensor) -> Tensor:
        """Return the attention weights (B, heads, T); `bits` (B, length) are centred."""
        queries = _queries(*self._folded(bits), len(inputs.patches))
        return (torch.bmm(queries, inputs.transposed) * self.temperature).softmax(2)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tokens)
        pooled = _Pool.apply(  # type: ignore[no-untyped-call]
            *self._folded(bits), inputs.patches, inputs.transposed, self.temperature
        ).transpose(0, 1)
        if self.rest is None:
            left, right = (torch.bmm(pooled, weight) for weight in self.pooled)
        else:
            parts = [inputs.cls] if inputs.cls is not None else []
            parts += [bits] if self.conditioned else []
            rest = self.rest(torch.cat(parts, dim=1)).transpose(0, 1)
            left, right = (
                torch.baddbmm(own, pooled, weight)
                for own, weight in zip(rest.chunk(2, dim=2), self.pooled, strict=True)
            )
        return (left * right).sum(2).t() * self.factor + self.bias
