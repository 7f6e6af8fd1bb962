"""A model whose subspace is known exactly, its scenes, and the probe that reads it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cases_same_object_edits as planted
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bindscope.core.interfaces import Edit
from bindscope.models.attention import BlockAttention
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.effects.job import editor_of, interventions, measured_edits
from bindscope.studies.same_object.effects.passes import Measuring, SampledScenes, Unedited
from bindscope.studies.same_object.estimates import Bootstrap
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import CORRELATIONS

N, OBJECTS, DIM = 24, 3, 64
# Deviations of what is not read: as little as a copy's, much, as much as what is read, little.
ELSEWHERE = torch.tensor([0.05] * OBJECTS + [1.0] * 6 + [0.47] * 15 + [0.2] * 37)


class Toy(planted.PlantedToy):
    """A planted model whose two heads compare the first directions, one of them less sharply."""

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Let both heads compare the objects."""
        read = self._edited(pixels, edits or {})[:, None, :, :OBJECTS]
        heads = torch.cat([read, read / 4], 1), torch.cat([read, read], 1)
        yield blocks[0], BlockAttention(*heads, 4.0)


def draw_scenes(seed: int) -> SampledScenes:
    """Draw scenes whose patches are of objects at random."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(1, OBJECTS + 1, (N, planted.PATCHES))
    order = np.tile(np.arange(planted.PATCHES), (N, 1))
    chosen = np.sort(generator.permuted(order, axis=1)[:, :12], 1)
    sample = {
        "patches": chosen,
        "instances": np.take_along_axis(ids, chosen, 1),
        "classes": np.ones((N, 12)),
    }
    labels = PairData.from_arrays(sample, None, planted.GRID)
    return SampledScenes(np.arange(N), labels, torch.from_numpy(chosen), torch.from_numpy(ids))


def draw_tokens(scenes: SampledScenes, noise: float, copies: int, seed: int) -> Tensor:
    """Return tokens that hold their object in the first directions, one-hot and noisy.

    Elsewhere they hold noise; with a copy the directions after the first ones hold the object, too.
    """
    # A seed by which noise makes no direction that differs by position.
    generator = torch.Generator().manual_seed(100 + seed)
    tokens = torch.randn(N, planted.PATCHES + 1, DIM, generator=generator)
    tokens *= torch.cat([torch.full((OBJECTS,), noise), ELSEWHERE])
    for i in range(copies):
        tokens[:, 1:, i * OBJECTS : (i + 1) * OBJECTS] += one_hot(scenes.instances - 1, OBJECTS)
    return tokens


def exact_weights() -> dict[str, Any]:
    """Return a probe that compares the objects exactly, in both layers."""
    mean = np.zeros(DIM, np.float32)
    mean[:OBJECTS] = 1 / OBJECTS
    form = np.diag([4.0] * OBJECTS + [0.0] * (DIM - OBJECTS)).astype(np.float32)
    # Two tokens of one object have the product 2/3, of two objects -1/3; removed, 0.
    arrays = {
        "matrix": form,
        "linear": np.zeros(DIM),
        "bias": np.full(1, -4 / 6),
        "mean": mean,
        "scale": np.ones(DIM),
        "eigenrows": np.eye(DIM),
    }
    return {
        f"{layer}/0/0.{name}": np.asarray(value, np.float32)
        for layer in (1, 2)
        for name, value in arrays.items()
    }


def on_toy(noise: float, copies: int = 1, seed: int = 0) -> tuple[Measuring, Unedited]:
    """Return a toy with the editor of what the exact probe reads of it, and what it is like."""
    weights = exact_weights()
    scorers = {layer: FittedScorer.read(weights, f"{layer}/0/0") for layer in (1, 2)}
    scenes = draw_scenes(seed)
    toy = Toy(draw_tokens(scenes, noise, copies, seed), "binding", dim=DIM)
    measuring = Measuring(toy, 1, scorers, scenes, torch.float32, "toy")
    plain = measuring.unedited()
    return measuring.edit(editor_of(scorers[1], plain, scenes, OBJECTS), scenes), plain


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
    edits = interventions()
    return measured_edits({"test": measuring}, plain, edits, "it has no heads", [], Bootstrap(200))
