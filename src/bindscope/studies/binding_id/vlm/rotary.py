"""Turning keys as if their tokens stood elsewhere (rotary position embeddings).

A key of a token at position p is R(p) k, and R(a) R(b) = R(a + b), so that a key in a cache is
moved by d positions by R(d) alone. Channel c of the first half of a head and channel c of the
second half make one pair, which turns by d times its frequency. With M-RoPE (Qwen2-VL) a position
has three parts (time, height, width), and each part turns its own section of the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """The rotations of one layer: radians per position of each pair, float32 (d_head / 2,).

    `sections` are pairs that each part of a position turns; None: positions have one part.
    """

    frequencies: Tensor
    sections: tuple[int, ...] | None = None

    def angles(self, delta: Tensor) -> Tensor:
        """Return radians (n, t, d_head / 2) for moves by `delta`, (parts, n, t)."""
        turns = delta.to(torch.float32)[..., None] * self.frequencies.float()
        if self.sections is None:
            return turns[0]
        pieces = turns.split(list(self.sections), dim=-1)  # type: ignore[no-untyped-call]
        return torch.cat([piece[i % len(turns)] for i, piece in enumerate(pieces)], dim=-1)


def rotate_keys(keys: Tensor, delta: Tensor, rotary: Rotary) -> Tensor:
    """Return rotated keys (n, heads, t, d_head) moved by `delta` positions, computed in float32.

    Moves are whole numbers (1, n, t), or (3, n, t) where positions have parts.
    """
    angles = rotary.angles(delta)[:, None]
    cos, sin = angles.cos(), angles.sin()
    first, second = keys.float().chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(keys.dtype)
