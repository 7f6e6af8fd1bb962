"""A compact pre-norm vision transformer, for the models that the pipeline trains itself.

Architecture: Dosovitskiy et al. 2021 (arXiv 2010.11929), with a [CLS] token, learned position
embeddings, GELU, and a final norm; no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from bindscope.config.training import Architecture
from bindscope.models.images import HALF, Transform, check_input_px

MLP_RATIO = 4
AnyModule = TypeVar("AnyModule", bound=nn.Module)
BESIDE = "objective."  # begins the names of weights that an objective keeps beside the ViT's


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, n_readers: int) -> Tensor:
        """Let the first tokens read all: (B, T, width) to (B, n_readers, width)."""
        parts = (self.query(x[:, :n_readers]), *self.key_value(x).chunk(2, dim=-1))
        query, key, value = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in parts
        )
        read = functional.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """One block: attention and an MLP, each behind a norm and added to the residual stream."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, n_heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, MLP_RATIO * width)
        self.out = nn.Linear(MLP_RATIO * width, width)

    def forward(self, x: Tensor, n_tokens: int | None = None) -> Tensor:
        """Residual stream in and out, (B, T, width); with `n_tokens` of the first ones alone."""
        n_tokens = x.shape[1] if n_tokens is None else n_tokens
        x = x[:, :n_tokens] + self.attention(self.norm1(x), n_tokens)
        added: Tensor = x + self.out(functional.gelu(self.expand(self.norm2(x))))
        return added


class ViT(nn.Module):
    """The transformer of square images; tokens are [CLS], then the patches in raster order."""

    def __init__(self, architecture: Architecture, input_px: int) -> None:
        super().__init__()
        width, patch = architecture.width, architecture.patch_px
        check_input_px(input_px, patch, "architecture.patch_px")
        self.patch_px, self.rows, self.width = patch, input_px // patch, width
        self.embed = nn.Linear(3 * patch**2, width)
        self.cls = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + self.rows**2, width))
        self.blocks = nn.ModuleList(
            Block(width, architecture.n_heads) for _ in range(architecture.n_layers)
        )
        self.norm = nn.LayerNorm(width)

    def squares(self, pixels: Tensor) -> Tensor:
        """Cut images into patches: (B, 3, px, px) to (B, patches, 3 * patch**2)."""
        batch, rows, patch = len(pixels), self.rows, self.patch_px
        squares = pixels.view(batch, 3, rows, patch, rows, patch).permute(0, 2, 4, 1, 3, 5)
        return squares.reshape(batch, rows**2, 3 * patch**2)

    def tokens(self, pixels: Tensor) -> Tensor:
        """Return what enters block 1: (B, 3, px, px) to (B, 1 + patches, width)."""
        embedded = self.embed(self.squares(pixels))
        return torch.cat([self.cls.expand(len(pixels), -1, -1), embedded], dim=1) + self.positions

    def forward(self, pixels: Tensor) -> Tensor:
        """Return all tokens after the final norm: (B, 3, px, px) to (B, 1 + patches, width)."""
        x = self.tokens(pixels)
        for block in self.blocks:
            x = block(x)
        normed: Tensor = self.norm(x)
        return normed

    def final_cls(self, pixels: Tensor) -> Tensor:
        """Return [CLS] after the final norm, (B, width), and leave out what it does not depend on.

        In the last block that is all but keys and values of patches: a fifth of the cost of four
        blocks.
        """
        x = self.tokens(pixels)
        for block in self.blocks[:-1]:
            x = block(x)
        normed: Tensor = self.norm(self.blocks[-1](x, 1)[:, 0])
        return normed


def resized_positions(positions: Tensor, rows: int) -> Tensor:
    """Interpolate positions (1, 1 + r**2, width) to rows**2 patches (bicubic, antialiased).

    They are those of [CLS], then of a square grid in raster order.
    """
    cls, grid = positions[:, :1], positions[:, 1:]
    side = round(grid.shape[1] ** 0.5)
    if side == rows:
        return positions
    plane = grid.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    resized = functional.interpolate(plane, size=(rows, rows), mode="bicubic", antialias=True)
    return torch.cat([cls, resized.flatten(2).transpose(1, 2)], dim=1)


def transform(input_px: int) -> Transform:
    """Return what turns scenes into a controlled model's input: values from -1 to 1."""
    return Transform(input_px, "bicubic", *HALF)


def build(architecture: Architecture, input_px: int, generator: torch.Generator) -> ViT:
    """Return a transformer on the CPU whose initial weights come from a generator alone."""
    with on_cpu():
        vit = ViT(architecture, input_px)
    return initialise(vit, generator, architecture.n_layers)


@contextmanager
def on_cpu() -> Iterator[None]:
    """Let modules be made on the CPU; torch's own random numbers stay as they are.

    Allocating what was made on the meta device would import sympy first, half a second.
    """
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        yield


@torch.no_grad()
def initialise(module: AnyModule, generator: torch.Generator, n_blocks: int = 1) -> AnyModule:
    """Set the parameters of a transformer or of a part of one, and return it.

    Weights are normal with variance 1 / fan-in, so that all widths start at the same scale. Those
    that write to the residual stream (``out``) are also divided by the root of their number, two in
    each of `n_blocks` (Radford et al. 2019). Embeddings have standard deviation 0.02, biases are
    zero, norms the identity.
    """
    for name, parameter in module.named_parameters():
        kind = name.rpartition(".")[2]
        if kind == "bias":
            parameter.zero_()
        elif "norm" in name:
            parameter.fill_(1)
        elif kind == "weight":
            scale = 1 / sqrt(parameter.shape[1])
            if ".out." in name:
                scale /= sqrt(2 * n_blocks)
            parameter.normal_(0, scale, generator=generator)
        else:
            parameter.normal_(0, 0.02, generator=generator)
    return module
