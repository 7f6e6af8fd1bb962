"""A model whose subspace is known exactly, its scenes, and the probe that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bindscope.core.interfaces import Edit
from bindscope.models.attention import BlockAttention
from bindscope.models.base import TokenMap
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.effects.job import (
    editor_of,
    interventions,
    measured_edits,
)
from bindscope.studies.same_object.effects.passes import Measuring, Scenes, Unedited
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import CORRELATIONS

N, SIDE, OBJECTS, DIM = 24, 4, 3, 64
PATCHES = SIDE * SIDE
# Deviations of what is not read: as little as a copy's, much, as much as what is read, little.
ELSEWHERE = torch.tensor([0.05] * OBJECTS + [1.0] * 6 + [0.47] * 15 + [0.2] * 37)


TOKENS = TokenMap(1, 0, (SIDE, SIDE), 1, True)


@dataclass(frozen=True)
class Toy:
    """Tokens hold their object in the first directions, one-hot and noisy, and noise elsewhere.

    With a copy the directions after those hold it, too.

    Block 2 attends by those directions and writes nothing: layer 2 is layer 1. The red channel of a
    patch, which is a pixel, is its object, the green one the number of the image.
    """

    noise: float
    copies: int = 1
    n_layers: int = 2
    dim: int = DIM
    token_map: TokenMap = TOKENS
    blocks: tuple[Any, ...] = ()

    def preprocess(self, images: Any) -> Tensor:
        """Return the images as they are."""
        return torch.from_numpy(images)

    def _tokens(self, pixels: Tensor, edits: Mapping[int, Edit]) -> Tensor:
        objects = pixels[..., 0].flatten(1).long()
        rows = []
        for image, ids in zip(pixels[:, 0, 0, 1], objects, strict=True):
            generator = torch.Generator().manual_seed(int(image))
            noise = torch.randn(PATCHES + 1, DIM, generator=generator)
            noise *= torch.cat([torch.full((OBJECTS,), self.noise), ELSEWHERE])
            for i in range(self.copies):
                block = slice(i * OBJECTS, (i + 1) * OBJECTS)
                noise[1:, block] += torch.nn.functional.one_hot(ids - 1, OBJECTS)
            rows.append(noise)
        tokens = torch.stack(rows)
        for layer in (0, 1):
            tokens = edits[layer](tokens) if layer in edits else tokens
        return tokens

    def edited_stream(
        self, pixels: Tensor, layers: Sequence[int], edits: Mapping[int, Edit], *,
        gradients: bool = False,
    ) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
        """Give the same tokens for all layers."""
        tokens = self._tokens(pixels, edits)
        yield from ((layer, tokens) for layer in layers)

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Let both heads compare the objects, one of them less sharply."""
        read = self._tokens(pixels, edits or {})[:, None, :, :OBJECTS]
        yield (
            blocks[0],
            BlockAttention(torch.cat([read, read / 4], 1), torch.cat([read, read], 1), 4.0),
        )


@dataclass(frozen=True)
class Drawn(Scenes):
    """Scenes that are in memory."""

    pixels: Any = None

    def batches(self, size: int) -> Iterator[tuple[int, Any]]:
        """Give them in batches."""
        yield from ((i, self.pixels[i : i + size]) for i in range(0, N, size))


def drawn(seed: int) -> Drawn:
    """Draw scenes whose patches are of objects at random."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(1, OBJECTS + 1, (N, PATCHES))
    images = np.zeros((N, SIDE, SIDE, 3), np.uint8)
    images[..., 0] = ids.reshape(N, SIDE, SIDE)
    images[..., 1] = np.arange(N)[:, None, None] + N * seed
    chosen = np.sort(generator.permuted(np.tile(np.arange(PATCHES), (N, 1)), axis=1)[:, :12], 1)
    sample = {
        "patches": chosen.astype(np.int16),
        "instances": np.take_along_axis(ids, chosen, 1).astype(np.int16),
        "classes": np.ones((N, 12), np.int16),
    }
    labels = PairData.from_arrays(sample, None, (SIDE, SIDE))
    return Drawn((), labels, torch.from_numpy(chosen), torch.from_numpy(ids), images)


def exact_weights() -> dict[str, Any]:
    """Return a probe that compares the objects exactly, in both layers."""
    mean = np.zeros(DIM, np.float32)
    mean[:OBJECTS] = 1 / OBJECTS
    form = np.diag([4.0] * OBJECTS + [0.0] * (DIM - OBJECTS)).astype(np.float32)
    # Two tokens of one object have the product 2/3, of two objects -1/3; removed, 0.
    arrays = {
        "matrix": form, "linear": np.zeros(DIM), "bias": np.full(1, -4 / 6), "mean": mean,
        "scale": np.ones(DIM), "eigenrows": np.eye(DIM),
    }  # fmt: skip
    return {
        f"{layer}/0/0.{name}": np.asarray(value, np.float32)
        for layer in (1, 2) for name, value in arrays.items()
    }  # fmt: skip


def on_toy(noise: float, copies: int = 1, seed: int = 0) -> tuple[Measuring, Unedited]:
    """Return a toy with the editor of what the exact probe reads of it, and what it is like."""
    weights = exact_weights()
    scorers = {layer: FittedScorer.read(weights, f"{layer}/0/0") for layer in (1, 2)}
    scenes = drawn(seed)
    measuring = Measuring(Toy(noise, copies), 1, scorers, scenes, torch.float32, "toy")
    plain = measuring.unedited()
    return measuring.edit(editor_of(scorers[1], plain, scenes, OBJECTS)), plain


RowsByEdit = dict[tuple[str, float, str, str], dict[str, Any]]


def index_rows(rows: list[dict[str, Any]], probe: str = "") -> RowsByEdit:
    """Return rows by edit, strength, subspace and quantity: of the mean of heads, of one probe."""
    heads = {*CORRELATIONS, "object_share"}
    return {
        (row["edit"], row["strength"], row["subspace"], row["quantity"]): row
        for row in rows
        if (row["quantity"] not in heads or row["at"] == "mean")
        and ("refitted" not in row["quantity"] or row["at"] == probe)
    }


def measured(noise: float) -> list[dict[str, Any]]:
    """Run all edits on the toy, read by a probe that compares its objects exactly."""
    measuring, plain = on_toy(noise)
    spec = {"retrained": None, "intervals": {"bootstrap_samples": 200, "bootstrap_seed": 0}}
    return measured_edits({"test": measuring}, plain, interventions(), "it has no heads", spec)
