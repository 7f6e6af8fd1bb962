"""Transformers over symbolic tokens, as the paper trains them, for several runs at once.

A scene is ``[start c1 ... cC end]`` for each object and a last token, whose state after the last
block is mapped to the embedding; queries are sequences of that kind. Blocks normalise first, there
is no norm at the end, positions are sinusoids. (arXiv 2605.31503; the specification's section 2.7)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from bindscope.studies.concepts.dual.encoders.base import DualEncoder, Seeded, looked_up
from bindscope.studies.concepts.dual_config import TransformerOptions

START, END, LAST, PADDING = range(4)  # tokens after those of the values
SPECIAL = 4


class TransformerEncoder(DualEncoder):
    """Two transformers, one of scenes and one of queries; see `DualEncoder` for the parameters."""

    def __init__(
        self, sizes: Sequence[int], options: TransformerOptions, seeds: Sequence[int]
    ) -> None:
        super().__init__(sizes, options, seeds)
        n_tokens = sum(self.sizes) + SPECIAL
        self.scene_tower = Tower(self.seeded, n_tokens, options)
        self.query_tower = Tower(self.seeded, n_tokens, options)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return the state of the last token; see `DualEncoder.scenes`."""
        found: Tensor = self.scene_tower(*self.sequences(slots))
        return found

    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings of scenes of one object as queries; see `DualEncoder.objects`."""
        found: Tensor = self.query_tower(*self.sequences(ids[..., None]))
        return found

    def concepts(self) -> Tensor:
        """Return embeddings of a value and the last token; see `DualEncoder.concepts`."""
        n, runs = sum(self.sizes), len(self.seeded.seeds)
        values = torch.arange(n, device=self.tokens.device)
        sequences = torch.stack([values, torch.full_like(values, n + LAST)], 1)
        lengths = torch.full((n,), 2, device=values.device)
        found: Tensor = self.query_tower(sequences.expand(runs, -1, -1), lengths.expand(runs, -1))
        return found

    def sequences(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens of scenes, and how many of them are no padding.

        Parameters
        ----------
        slots
            Objects, int64 (runs, scenes, places), -1 after the last one of a scene.

        Returns
        -------
        int64 (runs, scenes, places * (types + 2) + 1) and (runs, scenes).
        """
        n, types = sum(self.sizes), len(self.sizes)
        values = self.tokens[slots.clamp_min(0)]
        start = torch.full_like(values[..., :1], n + START)
        objects = torch.cat([start, values, torch.full_like(start, n + END)], -1)
        objects = objects.masked_fill((slots < 0)[..., None], n + PADDING).flatten(-2)
        room = torch.full_like(objects[..., :1], n + PADDING)
        tokens = torch.cat([objects, room], -1)
        last = (slots >= 0).sum(-1) * (types + 2)
        return tokens.scatter(-1, last[..., None], n + LAST), last + 1


class Tower(nn.Module):
    """A transformer per run, over sequences of tokens."""

    def __init__(self, seeded: Seeded, n_tokens: int, options: TransformerOptions) -> None:
        super().__init__()
        width = options.width
        self.heads = options.heads
        self.table = _xavier(seeded, n_tokens, width)
        self.blocks = nn.ModuleList(
            [Block(seeded, width, options.hidden) for _ in range(options.layers)]
        )
        self.out = _xavier(seeded, width, options.dim)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return (runs, n, dim) of tokens, int64 (runs, n, length), the first `lengths` of each."""
        runs, n, length = tokens.shape
        states = looked_up(self.table, tokens) + sinusoids(length, self.table.shape[-1]).to(
            self.table
        )
        there = torch.arange(length, device=tokens.device) < lengths[..., None]
        mask = there.reshape(runs * n, 1, 1, length)
        for block in self.blocks:
            states = block(states, mask, self.heads)
        last = (lengths - 1)[..., None, None].expand(-1, -1, 1, states.shape[-1])
        found: Tensor = states.gather(2, last).squeeze(2) @ self.out
        return found


class Block(nn.Module):
    """Attention and a perceptron, each after a norm and beside what it is added to."""

    def __init__(self, seeded: Seeded, width: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ParameterList([_constant(seeded, width, 1.0) for _ in range(2)])
        self.shifts = nn.ParameterList([_constant(seeded, width, 0.0) for _ in range(2)])
        self.attend = _xavier(seeded, width, 3 * width)
        self.attend_offset = _constant(seeded, 3 * width, 0.0)
        self.gather = _xavier(seeded, width, width)
        self.gather_offset = _constant(seeded, width, 0.0)
        self.into = _xavier(seeded, width, hidden)
        self.into_offset = _constant(seeded, hidden, 0.0)
        self.out = _xavier(seeded, hidden, width)
        self.out_offset = _constant(seeded, width, 0.0)

    def forward(self, states: Tensor, mask: Tensor, heads: int) -> Tensor:
        """Return the states (runs, n, length, width) after this block."""
        rows = states.flatten(1, 2)
        rows = rows + self._attended(self._normed(rows, 0), states.shape, mask, heads)
        hidden = gelu(torch.baddbmm(self.into_offset[:, None], self._normed(rows, 1), self.into))
        rows = rows + torch.baddbmm(self.out_offset[:, None], hidden, self.out)
        return rows.view_as(states)

    def _normed(self, rows: Tensor, i: int) -> Tensor:
        normed = layer_norm(rows, rows.shape[-1:])
        return torch.addcmul(self.shifts[i][:, None], normed, self.norms[i][:, None])

    def _attended(self, rows: Tensor, shape: torch.Size, mask: Tensor, heads: int) -> Tensor:
        runs, n, length, width = shape
        mixed = torch.baddbmm(self.attend_offset[:, None], rows, self.attend)
        split = mixed.view(runs * n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(split[0], split[1], split[2], attn_mask=mask)
        together = found.transpose(1, 2).reshape(runs, n * length, width)
        return torch.baddbmm(self.gather_offset[:, None], together, self.gather)


def sinusoids(length: int, width: int) -> Tensor:
    """Return positions (length, width) as sines and cosines of falling frequency, side by side."""
    rates = torch.exp(torch.arange(0, width, 2) * (-log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


def _xavier(seeded: Seeded, rows: int, columns: int) -> nn.Parameter:
    return seeded.normal(rows, columns, deviation=(2 / (rows + columns)) ** 0.5)


def _constant(seeded: Seeded, width: int, value: float) -> nn.Parameter:
    return nn.Parameter(torch.full((len(seeded.seeds), width), value))
