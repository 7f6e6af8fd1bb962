"""Masked reconstruction (He et al. 2022): draw the hidden half of an image from the other half."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional

from bindscope.models.objectives.base import Objective, Setting, TokenSources
from bindscope.models.vit import Block, ViT, initialise, on_cpu

HIDDEN = 0.5  # share of the patches
DECODER_WIDTH, DECODER_HEADS = 64, 4
SPREAD = 0.5  # standard deviation of the Gaussian that gives the loss its unit; pixels: -1 to 1


class Masked(Objective):
    """The encoder sees half of the patches; one block draws the others' pixels.

    The loss is the description length of a hidden value (a pixel's red, say) under a Gaussian of
    standard deviation `SPREAD` around what was drawn, in bits above that of a perfect drawing.
    """

    def __init__(self, vit: ViT, setting: Setting) -> None:
        super().__init__(vit)
        with on_cpu():
            decoder = _Decoder(vit)
        self.decoder = initialise(decoder, setting.generator)

    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return the loss in bits per hidden value."""
        visible, hidden = self._halves(pixels, generator)
        tokens = self.vit.tokens(pixels)
        tokens = torch.cat([tokens[:, :1], _pick(tokens[:, 1:], visible)], 1)
        for block in self.vit.blocks:
            tokens = block(tokens)
        drawn = self.decoder(self.vit.norm(tokens), visible, hidden)
        error = drawn - _pick(self.vit.squares(pixels), hidden)
        loss: Tensor = error.square().mean() / (2 * SPREAD**2 * log(2))
        return loss

    def visible_tokens(self, pixels: Tensor, generator: torch.Generator) -> TokenSources:
        """Return the patches that are not hidden, in the order of their tokens."""
        visible, _ = self._halves(pixels, generator)
        scenes = torch.arange(len(pixels), device=pixels.device)
        return TokenSources(scenes, functional.pad(visible, (1, 0), value=-1))

    def _halves(self, pixels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the patches of each image that are seen, and those that are hidden."""
        n_patches = self.vit.rows**2
        order = torch.rand(len(pixels), n_patches, generator=generator).argsort(1)
        order = order.to(pixels.device)
        n_visible = n_patches - round(HIDDEN * n_patches)
        return order[:, :n_visible], order[:, n_visible:]


class _Decoder(nn.Module):
    """Puts a mask's embedding where patches are hidden, and draws them."""

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        self.enter = nn.Linear(vit.width, DECODER_WIDTH)
        self.mask = nn.Parameter(torch.empty(1, 1, DECODER_WIDTH))
        self.positions = nn.Parameter(torch.empty(1, 1 + vit.rows**2, DECODER_WIDTH))
        self.block = Block(DECODER_WIDTH, DECODER_HEADS)
        self.norm = nn.LayerNorm(DECODER_WIDTH)
        self.draw = nn.Linear(DECODER_WIDTH, 3 * vit.patch_px**2)

    def forward(self, tokens: Tensor, visible: Tensor, hidden: Tensor) -> Tensor:
        """(B, 1 + seen, width) to the hidden patches' pixels (B, hidden, 3 * patch**2)."""
        entered = self.enter(tokens)
        batch, n_patches = len(tokens), visible.shape[1] + hidden.shape[1]
        places = visible[:, :, None].expand(-1, -1, DECODER_WIDTH)
        patches = self.mask.expand(batch, n_patches, -1).scatter(1, places, entered[:, 1:])
        x = self.block(torch.cat([entered[:, :1], patches], 1) + self.positions)
        drawn: Tensor = self.draw(self.norm(_pick(x[:, 1:], hidden)))
        return drawn


def _pick(patches: Tensor, which: Tensor) -> Tensor:
    """Return some patches of each image: (B, T, d) and indices (B, t) to (B, t, d)."""
    return patches.gather(1, which[:, :, None].expand(-1, -1, patches.shape[2]))
