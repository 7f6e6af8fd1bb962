"""Planted models whose attention and tokens are known: cases for the claims about edits.

Tokens hold parts of known size (`planted_patches.planted_tokens`); the block after them attends by
one of the parts, by distance, by the cosine of the tokens or alike to all; a loss reads one of the
parts. All else is as in a run: the probe is fitted, edited and judged by the functions of the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from cases import Case
from numpy.typing import NDArray
from planted_patches import Planted, planted_tokens
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from bindscope.core.array_types import Doubles
from bindscope.core.interfaces import Edit
from bindscope.core.splits import SPLITS
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.generators import rng
from bindscope.fitting.rows import as_rows
from bindscope.models.attention import BlockAttention
from bindscope.models.base import TokenMap
from bindscope.statistics.claims import Effect
from bindscope.studies.same_object.claims import EDIT_CLAIMS, edit_effects
from bindscope.studies.same_object.config import DiagonalScorer, QuadraticScorer
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.effects.job import (
    PLAIN,
    editor_of,
    interventions,
    measured_edits,
)
from bindscope.studies.same_object.effects.passes import Measuring, SampledScenes, Unedited
from bindscope.studies.same_object.effects.subspace import (
    EditName,
    Editor,
    SubspaceEdit,
)
from bindscope.studies.same_object.estimates import Bootstrap, row
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import CONTROLS, JUDGED, weights_name

GRID, SAMPLED, OBJECTS, CLASSES = (5, 5), 16, 5, 2
PATCHES = GRID[0] * GRID[1]
N_IMAGES = {"train": 40, "val": 16, "test": 30}
RANK, CLASS_DIMS, PLACE_DIMS, DIM = 6, 3, 4, 22
# Part of the tokens -> its dimensions; `copy` is where no probe was fitted.
PARTS = {
    "binding": slice(0, 6),
    "class": slice(6, 9),
    "position": slice(9, 13),
    "copy": slice(16, 22),
}
LAYER, BATCH, BY = 1, 6, Bootstrap(200)
TOKENS = TokenMap(1, 0, GRID, 1, True)
SHARPNESS = {"binding": 0.6, "class": 1.0, "position": 0.5, "distance": 0.5, "cosine": 5.0}
DIRECTIONS = RANK + CLASS_DIMS
PROBE = QuadraticScorer(name="quadratic", family="quadratic", l2=(0.1,), steps=20)
READER = DiagonalScorer(name="diagonal", family="diagonal", l2=(0.1,), steps=10)
Attends = Literal["binding", "class", "position", "distance", "cosine", "nothing"]


BOUND = Planted(
    dim=DIM,
    rank=RANK,
    class_dims=CLASS_DIMS,
    place_dims=PLACE_DIMS,
    rotated=False,
    position=1.0,
    nuisance=1.0,
    noise=0.2,
)
CLASS, POSITION, BOTH = (
    replace(BOUND, binding=0.0, classes=c, position=p)
    for c, p in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
)
# Each image has a vector of its own (`draw_tokens`).
IMAGE = replace(BOUND, binding=0.0, classes=0.0, position=0.0, image=1.0)


@dataclass(frozen=True)
class PlantedToy:
    """A model of one layer of given tokens (n, P + 1, d), which later layers repeat."""

    tokens: Tensor
    attends: Attends
    n_layers: int = 2
    dim: int = DIM
    token_map: TokenMap = TOKENS
    blocks: tuple[Any, ...] = ()

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Return the numbers of the images, which stand in their pixels."""
        return torch.from_numpy(images).long()

    def _edited(self, pixels: Tensor, edits: Mapping[int, Edit]) -> Tensor:
        tokens = self.tokens[pixels]
        for layer in (0, LAYER):
            tokens = edits[layer](tokens) if layer in edits else tokens
        return tokens

    def edited_stream(
        self,
        pixels: Tensor,
        layers: Sequence[int],
        edits: Mapping[int, Edit],
        *,
        gradients: bool = False,
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield the same tokens for all layers."""
        tokens = self._edited(pixels, edits)
        yield from ((layer, tokens) for layer in layers)

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, BlockAttention]]:
        """Yield two heads, of which the second is half as sharp."""
        tokens = self._edited(pixels, edits or {})
        queries, keys = _attended(tokens, self.attends)
        both = torch.stack([queries, queries / 2], 1)
        scale = SHARPNESS.get(self.attends, 1.0)
        yield blocks[0], BlockAttention(both, torch.stack([keys, keys], 1), scale)


def _attended(tokens: Tensor, attends: Attends) -> tuple[Tensor, Tensor]:
    if attends == "nothing":
        return torch.zeros_like(tokens), tokens
    if attends == "cosine":
        unit = normalize(tokens, dim=-1)
        return unit, unit
    if attends != "distance":
        part = tokens[..., PARTS[attends]]
        return part, part
    places = torch.cat([torch.zeros(1, 2), torch.tensor(list(np.ndindex(GRID))).float()])
    ones, squares = torch.ones(len(places), 1), places.square().sum(1, keepdim=True)
    queries, keys = torch.cat([2 * places, ones], 1), torch.cat([places, -squares], 1)
    return queries.expand(len(tokens), -1, -1), keys.expand(len(tokens), -1, -1)


def draw_scenes(n: int, seed: int, split: str) -> tuple[SampledScenes, NDArray[np.int16]]:
    """Draw images in which each patch is of the nearest of a few centers; two objects of a class.

    Returns: the scenes, and the class of every patch (n, P).
    """
    draw = rng(seed, SPLITS.index(split))
    cells = np.array(list(np.ndindex(GRID)), float)
    centers = draw.uniform(0, GRID[0], (n, OBJECTS, 1, 2))
    instances = ((cells - centers) ** 2).sum(-1).argmin(1) + 1
    of_object = draw.integers(1, CLASSES + 1, (n, OBJECTS))
    classes = np.take_along_axis(of_object, instances - 1, 1).astype(np.int16)
    order = draw.permuted(np.tile(np.arange(PATCHES), (n, 1)), axis=1)
    patches = np.sort(order[:, :SAMPLED], axis=1)
    sample = {
        "patches": patches,
        "instances": np.take_along_axis(instances, patches, 1),
        "classes": np.take_along_axis(classes, patches, 1),
    }
    labels = PairData.from_arrays(sample, None, GRID)
    images: Any = np.arange(n)  # they are their numbers
    return SampledScenes(
        images, labels, torch.from_numpy(patches), torch.from_numpy(instances)
    ), classes


def draw_tokens(
    scenes: SampledScenes, classes: NDArray[np.int16], content: Planted, seed: int, split: str
) -> Tensor:
    """Return tokens (n, P + 1, d) of all patches; the first one is of no patch."""
    n = len(scenes)
    places = np.broadcast_to(np.array(list(np.ndindex(GRID))), (n, PATCHES, 2))
    tokens = planted_tokens(
        scenes.instances.numpy(),
        classes,
        places,
        GRID,
        replace(content, seed=seed),
        SPLITS.index(split) * 10_000,
    )
    if content.image:
        counts = one_hot(scenes.instances).amax(1).sum(1, keepdim=True).numpy()
        shares = [(classes == c).mean(1, keepdims=True) for c in range(1, CLASSES + 1)]
        vector = np.concatenate([counts - OBJECTS + 1, *shares], axis=1)
        tokens[..., :3] += 3 * vector[:, None]
    return torch.cat([torch.zeros(n, 1, DIM), torch.from_numpy(tokens)], 1)


class Planting:
    """Scenes, tokens and the probe that was fitted to them, for one seed and content.

    With `copied`, tokens hold the binding once more, where the probe did not see it.
    """

    def __init__(self, content: Planted, seed: int, copied: bool = False) -> None:
        self.scenes: dict[str, SampledScenes] = {}
        self.tokens: dict[str, Tensor] = {}
        fitted: list[PairData] = []
        for split, n in N_IMAGES.items():
            scenes, classes = draw_scenes(n, seed, split)
            self.scenes[split] = scenes
            tokens = self.tokens[split] = draw_tokens(scenes, classes, content, seed, split)
            sampled = torch.take_along_dim(tokens[:, 1:], scenes.patches[..., None], 1)
            fitted.append(replace(scenes.labels, tokens=as_rows(sampled.numpy())))
            if copied:
                tokens[:, 1:, PARTS["copy"]] = tokens[:, 1:, PARTS["binding"]]
        weights = fit_probe(PROBE, *fitted, bootstrap_samples=2)[-1].weights
        self.weights = {
            f"{layer}/0/0.{name}": value
            for layer in (LAYER, LAYER + 1)
            for name, value in weights.items()
        }

    def measuring(self, split: str, attends: Attends, last: int = LAYER + 1) -> Measuring:
        """Return the model of one split, and the probes that read it."""
        scorers = {
            layer: FittedScorer.read(self.weights, weights_name(str(layer), 0, 0))
            for layer in range(LAYER, last + 1)
        }
        toy = PlantedToy(self.tokens[split], attends)
        return Measuring(toy, LAYER, scorers, self.scenes[split], torch.float32, "planted")

    def edited(
        self,
        attends: Attends,
        last: int = LAYER + 1,
        basis: Tensor | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> tuple[dict[str, Measuring], Unedited]:
        """Return the models of all splits with their editors, and what test is like unedited.

        `basis`: rows that are edited instead of those that the probe reads.
        """
        measuring = self.measuring("test", attends, last)
        plain, scorer = measuring.unedited(checkpoints), measuring.scorers[LAYER]
        scorer = scorer if basis is None else replace(scorer, eigenrows=basis)
        editor = editor_of(scorer, plain, measuring.scenes, DIRECTIONS)
        splits = {"test": measuring.edit(editor, measuring.scenes)}
        for split in ("train", "val"):
            of_split = self.measuring(split, attends, last)
            splits[split] = of_split.edit(editor, self.scenes[split])
        return splits, plain


planting = lru_cache(maxsize=64)(Planting)
ALL, FEWER = (JUDGED, *CONTROLS), (JUDGED, "matched", "variance")


def strongest_edits(
    edits: Sequence[EditName], subspaces: Sequence[str] = ALL
) -> list[SubspaceEdit]:
    """Return edits of some subspaces at full strength."""
    return [
        what
        for what in interventions()
        if what.strength == 1 and what.edit in edits and what.subspace in subspaces
    ]


PlantedPart = Literal["binding", "class", "position", ""]


def effects_of(
    seed: int,
    content: Planted,
    attends: Attends,
    loss: PlantedPart = "",
    *,
    edits: Sequence[EditName] = ("remove", "shuffle"),
    emptied: bool = False,
    of_class: bool = False,
    refitted: bool = False,
    copied: bool = False,
) -> list[Effect]:
    """Return the effects of the claims about one planted model.

    `content`, `attends`, `loss`: what tokens hold, what attention goes by, and which part of the
    tokens the loss needs. `emptied`: whether the judged subspace has no direction. `of_class`:
    whether directions of the class are edited instead of the probe's. `copied`: as in `Planting`.
    """
    setup, basis = planting(content, seed, copied), torch.zeros(CLASS_DIMS, DIM)
    basis[:, PARTS["class"]] = torch.eye(CLASS_DIMS)
    last = LAYER if refitted else LAYER + 1
    splits, plain = setup.edited(attends, last, basis if of_class else None)
    editor = splits["test"].editor
    assert editor is not None
    if emptied:
        none = torch.zeros(DIM, 0, dtype=torch.float64)
        editor = replace(editor, bases=dict.fromkeys(editor.bases, none))
        splits["test"] = replace(splits["test"], editor=editor)
    whats = strongest_edits(edits, FEWER if refitted else ALL)
    losses = _losses(setup.tokens["test"], loss, editor, whats) if loss else "it has no loss"
    rows = [PLAIN | row("val_loss_bits", 0.5)]
    probes = [READER] if refitted else []
    rows += measured_edits(splits, plain, whats, losses, probes, BY)
    return edit_effects(pd.DataFrame([line | _NAMES for line in rows]))


_NAMES = {"dataset": "planted", "model": "planted", "layer": str(LAYER), "probe": "diagonal"}


def _losses(
    tokens: Tensor, part: PlantedPart, editor: Editor, whats: Sequence[SubspaceEdit]
) -> dict[SubspaceEdit | None, Doubles]:
    """Return how far a part of the edited tokens is from what it was, of batches of images."""
    n = len(tokens)
    patches = torch.arange(-1, PATCHES).expand(n, -1)
    losses: dict[SubspaceEdit | None, Doubles] = {None: np.zeros(n // BATCH)}
    for what in whats:
        edited = editor.edited(tokens, what, torch.arange(n), patches)
        away = (edited - tokens)[..., PARTS[part]].square().sum(-1).mean(1)
        losses[what] = away.view(-1, BATCH).mean(1).double().numpy()
    return losses


def _case(
    name: str, *args: Any, genuine: Sequence[str] = (), impostor: Sequence[str] = (), **options: Any
) -> Case:
    return Case(
        name, lambda seed: effects_of(seed, *args, **options), tuple(genuine), tuple(impostor)
    )


_ALL = [claim.name for claim in EDIT_CLAIMS]
_ATTENTION = [name for name in _ALL if name.startswith("attention")]
_RIVALS, _REFITTED, _LOSS = (
    "attention-beyond-rivals",
    "refitted-probe-without-subspace",
    "loss-after-shuffle",
)
_MADE = [name for name in _ALL if name != _REFITTED]
_EDITS = [name for name in _MADE if name != _RIVALS]

EDIT_CASES: tuple[Case, ...] = (
    _case("bound, attention by binding", BOUND, "binding", "binding", genuine=_MADE),
    _case("attention by class", BOUND, "class", "class", impostor=[*_ATTENTION, _LOSS]),
    _case("attention by distance", BOUND, "distance", edits=["remove"], impostor=_ATTENTION),
    _case("attention to all alike", BOUND, "nothing", edits=["remove"], impostor=_ATTENTION),
    _case("attention by cosine", BOUND, "cosine", edits=(), impostor=[_RIVALS]),
    _case("class only, edited", CLASS, "class", "class", impostor=_MADE),
    _case("position only, edited", POSITION, "position", "position", impostor=_MADE),
    _case("class and position, edited", BOTH, "class", "class", impostor=_MADE),
    _case("image-level vector, edited", IMAGE, "cosine", impostor=_MADE),
    _case("edit of class directions", BOUND, "class", "class", of_class=True, impostor=_EDITS),
    _case("empty edit", BOUND, "binding", "binding", emptied=True, impostor=_EDITS),
    _case(
        "bound, refitted", BOUND, "binding", edits=["remove"], refitted=True, genuine=[_REFITTED]
    ),
    _case(
        "copied, refitted",
        BOUND,
        "binding",
        edits=["remove"],
        refitted=True,
        copied=True,
        impostor=[_REFITTED],
    ),
    _case(
        "class only, refitted",
        CLASS,
        "class",
        edits=["remove"],
        refitted=True,
        impostor=[_REFITTED],
    ),
)
