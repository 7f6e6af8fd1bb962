"""Passes of a model over images whose tokens are edited at a layer: probes and attention there.

A model runs on edited tokens from the layer on, and what reads it is as it was fitted
(`job.refitted_rows` fits it again). Images are read in batches and each is run under all edits; of
an image, logits of its pairs and a few sums are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bindscope.activations.images import Images, JoinedImages, StoreImages
from bindscope.core.array_types import Doubles
from bindscope.core.interfaces import Edit, Layer
from bindscope.core.progress import Progress
from bindscope.core.store.reader import Store, open_store
from bindscope.fitting.checkpoint import Checkpoints, SavedState, each
from bindscope.fitting.rows import as_rows
from bindscope.models.attention import attentive
from bindscope.models.base import TokenMap, layer_shapes
from bindscope.models.edits import editable
from bindscope.scenes.patch_labels import GridShape, count_pixels
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.effects.attention import (
    beyond_rivals,
    correlate,
    head_weights,
    share_of_object,
)
from bindscope.studies.same_object.effects.subspace import Editor, LabelMeans, SubspaceEdit
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import CORRELATIONS

MASKS = 16  # that are read at a time
BATCH, WEIGHTS = 64, 2**24  # images of a batch, and attention weights of a head, at most
LEAST = 5  # patches of an image whose correlations count: of fewer, those given others are +-1


@dataclass(frozen=True)
class SampledScenes:
    """The first scenes of a split, and their sampled patches."""

    images: Images
    labels: PairData  # their sampled patches, without tokens
    patches: Tensor  # int64 (n, M): those patches, -1 = none
    instances: Tensor  # int64 (n, P): object of every patch of the grid; -1 where none is

    @classmethod
    def open(cls, stores: Sequence[str], samples: str, n: int) -> SampledScenes:
        """Open the stores of the first n scenes and the store of samples; read masks."""
        sample, opened = open_store(samples), [open_store(path) for path in stores]
        names = ("patches", "instances", "classes")
        arrays = {name: sample.read(name, slice(0, n)) for name in names}
        rows, columns = map(int, sample.attributes["grid"])
        labels = PairData.from_arrays(arrays, None, (rows, columns))
        patches = torch.from_numpy(arrays["patches"].astype(np.int64))
        images = JoinedImages([StoreImages(store) for store in opened])
        return cls(images, labels, patches, objects_of_patches(opened, labels.grid, n))

    def __len__(self) -> int:
        return len(self.patches)


def objects_of_patches(stores: Sequence[Store], grid: GridShape, n: int) -> Tensor:
    """Return the object of every patch of the first n scenes, int64 (n, P); -1 where none is.

    Masks are read a few at a time: counts of a whole shard would be gigabytes, one per image, patch
    and object.
    """
    parts, remaining = [], n
    for store in stores:
        rows = min(remaining, store.layout("masks").n_rows)
        for start in range(0, rows, MASKS):
            masks = store.read("masks", slice(start, min(start + MASKS, rows)))
            parts.append(count_pixels(masks, grid).argmax(-1))
        remaining -= rows
    instances = torch.from_numpy(np.concatenate(parts).astype(np.int64))
    return instances.masked_fill(instances == 0, -1)


def logits_name(layer: int) -> str:
    """Return what the logits of a layer's probe are called in a `Reading`."""
    return f"logits.{layer}"


# What is kept of the images under one edit, or under none; images are in the last dimension.
# `logits_name(layer)` of the pairs of successive images; `share` (heads, n): attention on the same
# object; `summary` (d, n): what the model ends with, where it has a last norm; `change` (2, n):
# squared length of the change of the tokens, and of the tokens less their mean.
Reading = Mapping[str, Doubles]


@dataclass(frozen=True)
class Unedited:
    """What is kept of the images as they are."""

    # Also by correlation (heads + 1, n), the last row of the mean over heads, and `uniform` (n,):
    # the share on the same object of attention to all other patches alike.
    reading: Reading
    covariance: Tensor  # float64 (d, d): of the sampled patches, about the mean of train
    # Orthonormal (d, r): subspaces in which sampled patches differ by class, and by position.
    classes: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Measuring:
    """A model that is edited at a layer, the scenes that it sees, and what reads it."""

    model: Any  # a frozen model that can be edited, and whose attention can be read
    layer: int  # the layer; attention is that of the block after it
    # Fitted probes by layer: of the layer itself, and of later ones.
    scorers: Mapping[int, FittedScorer]
    scenes: SampledScenes  # the images
    # What tokens are rounded to before probes read them, as when these were fitted.
    dtype: torch.dtype
    where: str  # the model in words
    device: torch.device | str = "cpu"  # where it is
    editor: Editor | None = None  # of these scenes; None before they were looked at unedited

    def edit(self, editor: Editor, scenes: SampledScenes) -> Measuring:
        """Return the model with the edits of an editor, of some scenes."""
        editor = replace(editor, instances=scenes.instances)
        return replace(self, scenes=scenes, editor=editor)

    @property
    def tokens(self) -> TokenMap:
        """Which token is what."""
        token_map: TokenMap = layer_shapes(self.model)[self.layer].token_map
        return token_map

    def batches(self) -> Iterator[tuple[int, Tensor]]:
        """Give the number of a batch's first image, and its pixels."""
        size = max(1, min(BATCH, WEIGHTS // self.tokens.n_tokens**2))
        progress = Progress(len(self.scenes), "images")
        for start in range(0, len(self.scenes), size):
            images = self.scenes.images[start : min(start + size, len(self.scenes))]
            yield start, self.model.preprocess(images)
            progress.advance(len(images))

    def _edits(
        self, start: int, what: SubspaceEdit | None, changes: list[Tensor] | None = None
    ) -> dict[int, Edit]:
        """Return the edit, or none, of a batch from the image `start` on, by layer.

        It appends to `changes` the squared lengths of the change, and of the tokens less their
        mean, (2, B).
        """

        def edit(tokens: Tensor) -> Tensor:
            edited = tokens
            if what is not None:
                assert self.editor is not None
                scenes = torch.arange(start, start + len(tokens), device=tokens.device)
                patches = torch.full((len(tokens), tokens.shape[1]), -1, device=tokens.device)
                numbers = torch.arange(self.tokens.n_patches, device=tokens.device)
                patches[:, self.tokens.patches] = numbers
                edited = self.editor.edited(tokens, what, scenes, patches)
            if changes is not None:
                mean = self.scorers[self.layer].mean.to(tokens)
                parts = (edited - tokens, tokens - mean)
                lengths = [x[:, self.tokens.patches].double().square().sum((1, 2)) for x in parts]
                changes.append(torch.stack(lengths).cpu())
            return edited

        return {self.layer: edit}

    def _read(
        self, pixels: Tensor, edits: Mapping[int, Edit], *, to_end: bool = False
    ) -> dict[Layer, Tensor]:
        """Return all tokens (B, T, d) of the layers that probes read, and of the last norm."""
        layers: list[Layer] = sorted(self.scorers)
        if to_end and "final" in layer_shapes(self.model):
            layers.append("final")
        return dict(editable(self.model, self.where).edited_stream(pixels, layers, edits))

    def _summary(self, tokens: Tensor) -> Tensor:
        """Return what the model ends with, (d, B): [CLS], or the mean patch where there is none."""
        places = layer_shapes(self.model)["final"].token_map
        summary = tokens[:, 0] if places.has_cls else tokens[:, places.patches].mean(1)
        return summary.double().cpu().mT.contiguous()

    def _sampled(self, start: int, tokens: Tensor) -> Tensor:
        """Return the sampled patches (B, M, d) of all tokens (B, T, d), rounded as for fits."""
        places = self.scenes.patches[start : start + len(tokens)].clamp_min(0).to(tokens.device)
        patches = torch.take_along_dim(tokens[:, self.tokens.patches], places[..., None], 1)
        return patches.to(self.dtype).float().cpu()

    def _run(
        self, start: int, pixels: Tensor, what: SubspaceEdit | None = None
    ) -> tuple[dict[str, Tensor], PairBlock, Tensor]:
        """Run over a batch.

        Returns what a `Reading` keeps of it, its sampled patches in the edited layer as a block of
        pairs, and their attention on all patches in the next block, (heads, B, M, P).
        """
        changes: list[Tensor] = []
        edits, rows = self._edits(start, what, changes), slice(start, start + len(pixels))
        streams, numbers = self._read(pixels, edits, to_end=True), dict[str, Tensor]()
        if "final" in streams:
            numbers["summary"] = self._summary(streams["final"])
        blocks = {}
        for layer in self.scorers:
            tokens = streams[layer]
            data = self.scenes.labels.take(rows, as_rows(self._sampled(start, tokens).numpy()))
            blocks[layer] = PatchPairs(data, device=str(self.device)).read(0, len(pixels))
            numbers[logits_name(layer)] = self.scorers[layer].logits(blocks[layer]).cpu()
        reading = attentive(self.model, self.where)
        ((_, attention),) = reading.attention(pixels, [self.layer + 1], edits)
        places = self.scenes.patches[rows].clamp_min(0) + self.tokens.prefix
        weights = head_weights(attention, places.to(attention.queries.device))
        among = weights[..., self.tokens.patches].double().cpu()
        share, uniform = self._shares(start, among)
        numbers |= {"share": share, "uniform": uniform, "change": changes[0]}
        return numbers, blocks[self.layer], among

    def _shares(self, start: int, among: Tensor) -> tuple[Tensor, Tensor]:
        """Return shares on the same object (heads, B), and of uniform attention (B,)."""
        part = slice(start, start + among.shape[1])
        patches, every = self.scenes.patches[part], self.scenes.instances[part]
        labels = self.scenes.labels.take(part)
        itself = patches[..., None] == torch.arange(every.shape[1])
        instances = torch.from_numpy(labels.instances.astype(np.int64))
        same = (instances[..., None] == every[:, None]) & ~itself
        queried = (torch.from_numpy(labels.valid) & same.any(-1)).double()
        uniform = (same.sum(-1) / (every.shape[1] - 1)).double()
        shares = (share_of_object(among, same, itself), uniform)
        mean, alike = ((each * queried).sum(-1) / queried.sum(-1) for each in shares)
        return mean, alike

    def _look(self, batch: tuple[int, Tensor]) -> SavedState:
        """Return what is kept of a batch as it is."""
        start, pixels = batch
        numbers, block, among = self._run(start, pixels)
        valid, places = block.valid.cpu(), self.scenes.patches[start : start + len(pixels)]
        correlated = _correlated(block, numbers[logits_name(self.layer)], among, places)
        return {
            **numbers,
            **correlated,
            "tokens": block.x[block.valid].cpu(),
            "half": ((start + torch.arange(len(valid))) % 2)[:, None].expand_as(valid)[valid],
            "classes": block.classes.cpu()[valid],
            "places": places[valid],
        }, {}

    def unedited(self, checkpoints: Checkpoints | None = None) -> Unedited:
        """Run over the images as they are."""
        scorer, labels = self.scorers[self.layer], self.scenes.labels
        mean, dim = scorer.mean.double(), len(scorer.mean)
        total, n = torch.zeros(dim, dim, dtype=torch.float64), 0
        by_class = LabelMeans(int(labels.classes.max()) + 1, dim)
        by_place = LabelMeans(self.tokens.n_patches, dim)
        looked, names = [], ("tokens", "half", "classes", "places")
        for batch, _ in each(checkpoints, self.batches(), self._look):
            looked.append({name: part for name, part in batch.items() if name not in names})
            tokens, half, classes, places = (batch[name] for name in names)
            tokens = tokens.double()
            total, n = total + (tokens - mean).t() @ (tokens - mean), n + len(tokens)
            by_class.add(tokens[classes > 0], classes[classes > 0], half[classes > 0])
            by_place.add(tokens, places, half)
        covariance = total / max(n, 1)
        return Unedited(_joined(looked), covariance, by_class.subspace(), by_place.subspace())

    def under(
        self, edits: Sequence[SubspaceEdit], checkpoints: Checkpoints | None = None
    ) -> dict[SubspaceEdit | None, Reading]:
        """Run over the images under each edit."""
        batches: dict[SubspaceEdit, list[dict[str, Tensor]]] = {what: [] for what in edits}
        passes = ((*batch, what) for batch in self.batches() for what in edits)
        states = each(checkpoints, passes, lambda part: (self._run(*part)[0], {}))
        for (batch, _), what in zip(states, cycle(edits), strict=False):
            batches[what].append(batch)
        return {what: _joined(parts) for what, parts in batches.items()}

    def sampled_under(
        self, what: SubspaceEdit | None, checkpoints: Checkpoints | None = None
    ) -> dict[int, PairData]:
        """Return the sampled patches of the layers that are read, under an edit or None."""

        def read(batch: tuple[int, Tensor]) -> SavedState:
            start, pixels = batch
            streams = self._read(pixels, self._edits(start, what))
            return {str(at): self._sampled(start, streams[at]) for at in self.scorers}, {}

        batches = [tensors for tensors, _ in each(checkpoints, self.batches(), read)]
        return {
            layer: replace(
                self.scenes.labels,
                tokens=as_rows(torch.cat([batch[str(layer)] for batch in batches]).numpy()),
            )
            for layer in self.scorers
        }


def _joined(batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Doubles]:
    """Put what is kept of successive batches together."""
    return {name: torch.cat([b[name] for b in batches], -1).numpy() for name in batches[0]}


def _correlated(
    block: PairBlock, logits: Tensor, among: Tensor, places: Tensor
) -> dict[str, Tensor]:
    """Return correlations of a batch, (heads + 1, B) by measure."""
    upper = block.unpacked(logits.to(block.x.device)), block.unpacked(block.same.double())
    scores, same = ((half + half.mT).double().cpu().numpy() for half in upper)
    classes, positions, x = (
        part.cpu().double().numpy() for part in (block.classes, block.positions, block.x)
    )
    per_image: dict[str, list[Doubles]] = {name: [] for name in CORRELATIONS}
    for i, valid in enumerate(block.valid.cpu().numpy()):
        measures = dict.fromkeys(CORRELATIONS, np.full(len(among) + 1, np.nan))
        if valid.sum() >= LEAST:
            inside = np.ix_(valid, valid)
            weights = among[:, i][:, :, places[i]].numpy()[:, valid][:, :, valid]
            both = np.concatenate([weights, weights.mean(0, keepdims=True)])
            measures = {
                "pearson": correlate(both, scores[i][inside]),
                "beyond_rivals": beyond_rivals(
                    weights,
                    same[i][inside] > 0,
                    classes[i][valid],
                    positions[i][valid],
                    x[i][valid],
                ),
            }
        for name, values in measures.items():
            per_image[name].append(values)
    return {name: torch.from_numpy(np.stack(parts, 1)) for name, parts in per_image.items()}
