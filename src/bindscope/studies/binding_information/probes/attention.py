"""Attention family: each head reads the patch tokens with its own query, then a quadratic form.

q_k = Wq (base_k + sum_{i<k} (o_i - 1/2) Q_i), no key or value projection; a_k = softmax over the
patch tokens of q_k.s_i / sqrt(d); pooled s_k = sum_i a_ki s_i; logit_k = quadratic readout of
[CLS; s_k; masked bits], without [CLS] if the model has none.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from bindscope.studies.binding_information.families import AttentionProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    PatchInputs,
    ProbeInputs,
    Projection,
    initial_parameter,
    initial_rows,
    initial_weights,
    visible,
)

BLOCK = 2**21  # floats of the tokens of a block of scenes


class _Scores(torch.autograd.Function):
    """Scores (B, heads, T) of tokens for the queries of all heads, from what queries see.

    Queries are seen (B, heads, length) times `revealed` (length, d), plus `base` (heads, d), scaled
    for the softmax. Tokens are given as (B, T, d) and as (B, d, T), and have no gradient: products
    whose second factor lies transposed in memory take up to three times as long. Queries and their
    gradients are made for a block of scenes at a time, so that none of the whole batch is held.
    """

    @staticmethod
    def forward(
        ctx: Any,
        known_bits: Tensor,
        revealed: Tensor,
        base: Tensor,
        tokens: Tensor,
        transposed: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(known_bits, revealed, base, tokens)
        scores = tokens.new_empty(len(tokens), len(base), tokens.shape[1])
        for block in _blocks(tokens):
            queries = base.expand(len(tokens[block]), *base.shape)
            by_bits = revealed.expand(len(queries), *revealed.shape)
            queries = torch.baddbmm(queries, known_bits[block], by_bits)
            torch.bmm(queries, transposed[block], out=scores[block])
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        known_bits, revealed, base, tokens = ctx.saved_tensors
        blocks = _blocks(tokens)
        ones = base.new_ones(1, len(tokens[blocks[0]]))
        by_base, by_revealed = torch.zeros_like(base), torch.zeros_like(revealed)
        by_seen = torch.empty_like(known_bits) if ctx.needs_input_grad[0] else None
        for block in blocks:
            by_queries = torch.bmm(gradient[block], tokens[block])
            n = len(by_queries)
            by_base.view(1, -1).addmm_(ones[:, :n], by_queries.flatten(1))
            by_revealed.addmm_(known_bits[block].flatten(0, 1).t(), by_queries.flatten(0, 1))
            if by_seen is not None:
                by_seen[block] = by_queries @ revealed.t()
        return by_seen, by_revealed, by_base, None, None


def _blocks(scenes: Tensor) -> list[slice]:
    """Return blocks of an array's scenes; on a graphics card one."""
    n = len(scenes)
    step = max(1, BLOCK // scenes[0].numel()) if scenes.device.type == "cpu" else n
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


class AttentionQuadratic(Family):
    """Attention over patch tokens and a quadratic readout.

    The query is linear in the bits, so Wq is folded into base and Q once per step and the queries
    of all heads are one product of the masked bits with Wq Q. In the readout [CLS] and bits are one
    product for all heads and both factors; s_k, the head's own, a batched one.
    """

    mask: Tensor

    def __init__(
        self, config: AttentionProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        k, d = heads.count, shape.dim
        self.temperature = 1 / sqrt(d)
        self.factor = self.scale(2 * d if shape.cls else d)
        self.query = initial_parameter(generator, d, d)
        self.base = initial_parameter(generator, k, d)
        self.revealed = initial_parameter(generator, heads.length, d)
        pooled, rest = [], []
        for _ in range(2):  # the factors
            pooled.append(initial_weights(generator, k, d, config.rank))
            rest.append(initial_rows(d if shape.cls else 0, heads, config.rank, generator))
        if self.starts_at_zero:
            pooled[-1].zero_()
            rest[-1].zero_()
        self.pooled = nn.Parameter(torch.cat(pooled, dim=2))
        self.rest = Projection(torch.cat(rest, dim=2), heads)
        self.bias = nn.Parameter(torch.zeros(k))
        self.register_buffer("mask", visible(heads).t().contiguous(), persistent=False)

    def _folded(self, bits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what queries are made of: masked bits (B, heads, length), Wq Q and Wq base.

        The scale of the softmax is in the latter.
        """
        parts = torch.cat([self.base, self.revealed]) @ self.query.t() * self.temperature
        k = len(self.base)
        return bits[:, None] * self.mask, parts[k:], parts[:k]

    def attention(self, inputs: PatchInputs, bits: Tensor) -> Tensor:
        """Return the attention weights (B, heads, T); `bits` (B, length) are centred."""
        scores: Tensor = _Scores.apply(  # type: ignore[no-untyped-call]
            *self._folded(bits), inputs.patches, inputs.transposed
        )
        return torch.softmax(scores, 2)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, PatchInputs)
        pooled = torch.bmm(self.attention(inputs, bits), inputs.patches).transpose(0, 1)
        read = bits if inputs.cls is None else self.read(inputs.cls, bits)
        rest = self.rest(read).transpose(0, 1)
        first, second = torch.baddbmm(rest, pooled, self.pooled).chunk(2, dim=2)
        products = (first * second).sum(2)
        return products.t() * self.factor + self.bias
