"""Contrast with captions (Radford et al. 2021): which words belong to which image.

A caption names each object of a scene by its values. The two objectives read the same words and
differ in one thing: whether the text tower receives which of them belong to one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional

from bindscope.models.objectives.base import Objective, Setting
from bindscope.models.vit import ViT, initialise, on_cpu

WORD, SHARED = 64, 64  # widths of a word, and of the space where images and texts meet
FIRST_SCALE, LARGEST_SCALE = 10.0, 100.0  # inverse temperature


class PairedCaptions(Objective):
    """Captions that pair the words: those of an object go through an MLP, objects are summed."""

    pairs = True

    def __init__(self, vit: ViT, setting: Setting) -> None:
        super().__init__(vit)
        with on_cpu():
            tower = _Text(setting.sizes, self.pairs)
            image = nn.Linear(vit.width, SHARED, bias=False)
        self.text = initialise(tower, setting.generator)
        self.image = initialise(image, setting.generator)
        self.log_scale = nn.Parameter(torch.tensor(log(FIRST_SCALE)))
        values = torch.cartesian_prod(*(torch.arange(size) for size in setting.sizes))
        self.register_buffer("values", values, persistent=False)

    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return InfoNCE: to find the caption of an image and the image of a caption, the mean."""
        texts = functional.normalize(self.text(objects, self.values), dim=-1)
        images = functional.normalize(self.image(self.vit.final_cls(pixels)), dim=-1)
        scores = self.log_scale.clamp(max=log(LARGEST_SCALE)).exp() * images @ texts.T
        targets = torch.arange(len(pixels), device=pixels.device)
        nats = functional.cross_entropy(scores, targets) + functional.cross_entropy(
            scores.T, targets
        )
        return nats / (2 * log(2))


class CaptionsUnpaired(PairedCaptions):
    """The same words as a bag: what goes with what is not in the caption."""

    pairs = False


class _Text(nn.Module):
    """From the words of a caption to a vector; the order of objects has no effect."""

    def __init__(self, sizes: Sequence[int], pairs: bool) -> None:
        super().__init__()
        self.words = nn.ModuleList(nn.Embedding(size, WORD) for size in sizes)
        self.pair: nn.Module | None = None
        if pairs:
            self.pair = nn.Sequential(
                nn.Linear(len(sizes) * WORD, 2 * WORD), nn.GELU(), nn.Linear(2 * WORD, WORD)
            )
        self.norm = nn.LayerNorm(WORD)
        self.project = nn.Sequential(
            nn.Linear(WORD, 2 * WORD), nn.GELU(), nn.Linear(2 * WORD, SHARED)
        )

    def forward(self, objects: Tensor, values: Tensor) -> Tensor:
        """(B, K) object codes and the values of each cell (K, groups) to (B, SHARED)."""
        words = [embed(values[:, i]) for i, embed in enumerate(self.words)]
        cells = self.pair(torch.cat(words, -1)) if self.pair else torch.stack(words).sum(0)
        text: Tensor = self.project(self.norm(objects @ cells))
        return text
