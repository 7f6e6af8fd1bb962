"""Passes of a model over images whose tokens are edited at a layer: probes and attention there.

A model runs on edited tokens from the layer on, and what reads it is as it was fitted
(`rows.refitted_rows` fits it again). Images are read in batches and each is run under all edits; of
an image, logits of its pairs and a few sums are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.activations.images import StoreImages
from bindscope.core.interfaces import Edit
from bindscope.core.progress import Progress
from bindscope.core.store.reader import Store, open_store
from bindscope.fitting.checkpoint import Checkpoints, State, each
from bindscope.fitting.rows import as_rows
from bindscope.models.attention import attentive
from bindscope.models.base import TokenMap, layer_shapes
from bindscope.models.edits import editable
from bindscope.scenes.patch_labels import count_pixels
from bindscope.studies.same_object.data import Block, PairData, Pairs
from bindscope.studies.same_object.effects.attention import (
    beyond_rivals,
    correlate,
    head_weights,
    share_of_object,
)
from bindscope.studies.same_object.effects.subspace import Editor, Intervention, LabelMeans
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import CORRELATIONS

MASKS = 16  # that are read at a time
BATCH, WEIGHTS = 64, 2**24  # images of a batch, and attention weights of a head, at most
LEAST = 5  # patches of an image whose correlations count: of fewer, those given others are +-1
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scenes:
    """The first scenes of a split, and their sampled patches."""

    stores: Sequence[Store]  # scenes, in order
    labels: PairData  # their sampled patches, without tokens
    patches: Tensor  # int64 (n, M): those patches, -1 = none
    instances: Tensor  # int64 (n, P): object of every patch of the grid; -1 where none is

    @classmethod
    def open(cls, stores: Sequence[str], samples: str, n: int) -> Scenes:
        """Open the stores of scenes and the store of samples; read masks of the first n scenes."""
        sample = open_store(samples)
        names = ("patches", "instances", "classes")
        arrays = {name: sample.read(name, slice(0, n)) for name in names}
        rows, columns = map(int, sample.attributes["grid"])
        return cls.from_stores([open_store(path) for path in stores], arrays, (rows, columns))

    @classmethod
    def from_stores(
        cls, stores: Sequence[Store], sample: Mapping[str, NDArray[Any]], grid: tuple[int, int]
    ) -> Scenes:
        """Read masks; `sample` holds `patches`, `instances` and `classes` of these scenes."""
        # Counts of a whole shard would be gigabytes: one per image, patch and object.
        parts = (
            store.read("masks", slice(start, min(start + MASKS, rows)))
            for store, rows in used_rows(stores, len(sample["patches"]))
            for start in range(0, rows, MASKS)
        )
        numbers = [count_pixels(masks, grid).argmax(-1) for masks in parts]
        instances = torch.from_numpy(np.concatenate(numbers).astype(np.int64))
        instances[instances == 0] = -1
        patches = torch.from_numpy(sample["patches"].astype(np.int64))
        return cls(stores, PairData.from_arrays(sample, None, grid), patches, instances)

    def __len__(self) -> int:
        return len(self.patches)

    def images(self) -> NDArray[np.uint8]:
        """Return all images, uint8 (n, H, W, 3)."""
        return np.concatenate([images for _, images in self.batches(len(self))])

    def batches(self, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Give the number of a batch's first image, and its images."""
        done = 0
        for store, rows in used_rows(self.stores, len(self)):
            images = StoreImages(store, rows)
            for start in range(0, rows, size):
                yield done + start, images[start : start + size]
            done += rows


def used_rows(stores: Sequence[Store], n: int) -> Iterator[tuple[Store, int]]:
    """Give the stores that hold the first n scenes, and how many of each are among them."""
    for store in stores:
        rows = min(n, store.layout("masks").n_rows)
        if rows > 0:
            yield store, rows
        n -= rows


# What is kept of the images under one edit, or under none; images are in the last dimension.
# `logits.<layer>` of the pairs of successive images; `share` (heads, n): attention on the same
# object; `change` (2, n): squared length of the change of the tokens, and of the tokens less their
# mean.
Reading = Mapping[str, Floats]


@dataclass
class Unedited:
    """What is kept of the images as they are."""

    # By measure, (heads + 1, n); the last row is of the mean over heads.
    correlations: dict[str, Floats]
    shares: Floats  # (heads, n): share of attention on the same object
    uniform: Floats  # (n,): that of attention to all other patches alike
    covariance: Tensor  # float64 (d, d): of the sampled patches, about the mean of train
    # Orthonormal (d, r): subspaces in which sampled patches differ by class, and by position.
    classes: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Pass:
    """What a batch of images gives under one edit."""

    tokens: Tensor  # of the edited layer, (B, T, d)
    block: Block  # its sampled patches, as a block of pairs
    logits: dict[int, Tensor]  # of these pairs, by layer
    among: Tensor  # attention of the sampled patches on all patches in the next block, (H, B, M, P)


@dataclass(frozen=True)
class Measuring:
    """A model that is edited at a layer, the scenes that it sees, and what reads it."""

    model: Any  # a frozen model that can be edited, and whose attention can be read
    layer: int  # the layer; attention is that of the block after it
    # Fitted probes by layer: of the layer itself, and of later ones.
    scorers: Mapping[int, FittedScorer]
    scenes: Scenes  # the images
    # What tokens are rounded to before probes read them, as when these were fitted.
    dtype: torch.dtype
    where: str  # the model in words
    device: torch.device | str = "cpu"  # where it is
    editor: Editor | None = None  # of these scenes; None before they were looked at unedited

    def edit(self, editor: Editor, scenes: Scenes | None = None) -> Measuring:
        """Return the model with an editor, perhaps of other scenes."""
        if scenes is None:
            return replace(self, editor=editor)
        return replace(self, scenes=scenes, editor=editor.of_scenes(scenes.instances))

    @property
    def tokens(self) -> TokenMap:
        """Which token is what."""
        token_map: TokenMap = layer_shapes(self.model)[self.layer].token_map
        return token_map

    def batches(self) -> Iterator[tuple[int, Tensor]]:
        """Give the number of a batch's first image, and its pixels."""
        size = max(1, min(BATCH, WEIGHTS // self.tokens.n_tokens**2))
        progress = Progress(len(self.scenes), "images")
        for start, images in self.scenes.batches(size):
            yield start, self.model.preprocess(images)
            progress.advance(len(images))

    def _edits(self, start: int, what: Intervention | None) -> dict[int, Edit]:
        """Return the edit, or none, of a batch from the image `start` on, by layer."""
        if what is None:
            return {}

        def edit(tokens: Tensor) -> Tensor:
            assert self.editor is not None
            scenes = torch.arange(start, start + len(tokens), device=tokens.device)
            patches = torch.full((len(tokens), tokens.shape[1]), -1, device=tokens.device)
            numbers = torch.arange(self.tokens.n_patches, device=tokens.device)
            patches[:, self.tokens.patches] = numbers
            return self.editor.edited(tokens, what, scenes, patches)

        return {self.layer: edit}

    def _read(self, pixels: Tensor, edits: Mapping[int, Edit]) -> dict[int, Tensor]:
        """Return all tokens (B, T, d) of the layers that probes read."""
        model = editable(self.model, self.where)
        stream = dict(model.edited_stream(pixels, sorted(self.scorers), edits))
        return {layer: tokens for layer, tokens in stream.items() if layer != "final"}

    def _sampled(self, start: int, tokens: Tensor) -> Tensor:
        """Return the sampled patches (B, M, d) of all tokens (B, T, d), rounded as for fits."""
        places = self.scenes.patches[start : start + len(tokens)].clamp_min(0).to(tokens.device)
        patches = torch.take_along_dim(tokens[:, self.tokens.patches], places[..., None], 1)
        return patches.to(self.dtype).float().cpu()

    def _block(self, start: int, tokens: Tensor) -> Block:
        """Return the sampled patches of all tokens (B, T, d) as a block of pairs."""
        rows = slice(start, start + len(tokens))
        data = self.scenes.labels.take(rows, as_rows(self._sampled(start, tokens).numpy()))
        return Pairs(data, device=str(self.device)).read(0, len(tokens))

    def _run(self, start: int, pixels: Tensor, what: Intervention | None = None) -> Pass:
        """Run over a batch."""
        edits = self._edits(start, what)
        streams = self._read(pixels, edits)
        blocks = {layer: self._block(start, tokens) for layer, tokens in streams.items()}
        logits = {layer: self.scorers[layer].logits(block).cpu() for layer, block in blocks.items()}
        reading = attentive(self.model, self.where)
        ((_, attention),) = reading.attention(pixels, [self.layer + 1], edits)
        places = self.scenes.patches[start : start + len(pixels)].clamp_min(0) + self.tokens.prefix
        weights = head_weights(attention, places.to(attention.queries.device))
        among = weights[..., self.tokens.patches].double().cpu()
        return Pass(streams[self.layer], blocks[self.layer], logits, among)

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

    def _look(self, batch: tuple[int, Tensor]) -> State:
        """Return what is kept of a batch as it is."""
        start, pixels = batch
        outcome = self._run(start, pixels)
        block, valid = outcome.block, outcome.block.valid.cpu()
        share, alike = self._shares(start, outcome.among)
        places = _places(block, self.tokens)
        return {
            **_correlated(block, outcome.logits[self.layer], outcome.among, places),
            "share": share, "uniform": alike, "tokens": block.x[block.valid].cpu(),
            "half": ((start + torch.arange(len(valid))) % 2)[:, None].expand_as(valid)[valid],
            "classes": block.classes.cpu()[valid], "places": places[valid],
        }, {}  # fmt: skip

    def unedited(self, checkpoints: Checkpoints | None = None) -> Unedited:
        """Run over the images as they are."""
        scorer, labels = self.scorers[self.layer], self.scenes.labels
        mean, dim = scorer.mean.double(), len(scorer.mean)
        total, n = torch.zeros(dim, dim, dtype=torch.float64), 0
        by_class = LabelMeans(int(labels.classes.max()) + 1, dim)
        by_place = LabelMeans(self.tokens.n_patches, dim)
        names, looked = (*CORRELATIONS, "share", "uniform"), []
        for batch, _ in each(checkpoints, self.batches(), self._look):
            looked.append({name: batch[name] for name in names})
            tokens, half, classes = batch["tokens"].double(), batch["half"], batch["classes"]
            total, n = total + (tokens - mean).t() @ (tokens - mean), n + len(tokens)
            by_class.add(tokens[classes > 0], classes[classes > 0], half[classes > 0])
            by_place.add(tokens, batch["places"], half)
        arrays = _joined(looked)
        return Unedited(
            {name: arrays[name] for name in CORRELATIONS}, arrays["share"], arrays["uniform"],
            total / max(n, 1), by_class.subspace(), by_place.subspace(),
        )  # fmt: skip

    def under(
        self, edits: Sequence[Intervention], checkpoints: Checkpoints | None = None
    ) -> dict[Intervention | None, Reading]:
        """Run over the images without an edit (None) and under each."""
        batches: dict[Intervention | None, list[dict[str, Tensor]]] = {
            what: [] for what in (None, *edits)
        }
        passes = ((*batch, what) for batch in self.batches() for what in batches)
        plains: dict[int, Pass] = {}  # that of the last batch

        def run(which: tuple[int, Tensor, Intervention | None]) -> State:
            start, pixels, what = which
            if start not in plains:
                plains.clear()
                plains[start] = self._run(start, pixels)
            edited = plains[start] if what is None else self._run(start, pixels, what)
            return self._compare(start, edited, plains[start]), {}

        states = each(checkpoints, passes, run)
        for (batch, _), what in zip(states, cycle(batches), strict=False):
            batches[what].append(batch)
        return {what: _joined(parts) for what, parts in batches.items()}

    def _compare(self, start: int, edited: Pass, plain: Pass) -> dict[str, Tensor]:
        """Return what is compared of a batch under an edit."""
        patches, mean = plain.tokens[:, self.tokens.patches], self.scorers[self.layer].mean
        whole = (patches - mean.to(patches)).double().square().sum((1, 2))
        moved = (edited.tokens[:, self.tokens.patches] - patches).double().square()
        return {
            **{f"logits.{layer}": logits for layer, logits in edited.logits.items()},
            "share": self._shares(start, edited.among)[0],
            "change": torch.stack([moved.sum((1, 2)), whole]).cpu(),
        }

    def sampled_under(
        self, what: Intervention | None, checkpoints: Checkpoints | None = None
    ) -> dict[int, PairData]:
        """Return the sampled patches of the layers that are read, under an edit or None."""

        def read(batch: tuple[int, Tensor]) -> State:
            start, pixels = batch
            streams = self._read(pixels, self._edits(start, what))
            return {str(at): self._sampled(start, x) for at, x in streams.items()}, {}

        batches = [tensors for tensors, _ in each(checkpoints, self.batches(), read)]
        return {
            layer: replace(
                self.scenes.labels,
                tokens=as_rows(torch.cat([batch[str(layer)] for batch in batches]).numpy()),
            )
            for layer in self.scorers
        }


def _joined(batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Floats]:
    """Put what is kept of successive batches together."""
    return {name: torch.cat([b[name] for b in batches], -1).numpy() for name in batches[0]}


def _places(block: Block, tokens: TokenMap) -> Tensor:
    """Return the number in the grid of each patch of a block, int64 (B, M)."""
    places = block.positions.double().cpu()
    return (places[..., 0] * tokens.grid[1] + places[..., 1]).long()


def _correlated(block: Block, logits: Tensor, among: Tensor, places: Tensor) -> dict[str, Tensor]:
    """Return correlations of a batch, (heads + 1, B) by measure."""
    upper = block.unpacked(logits.to(block.x.device)), block.unpacked(block.same.double())
    scores, same = ((half + half.mT).double().cpu().numpy() for half in upper)
    classes, positions, x = (
        part.cpu().double().numpy() for part in (block.classes, block.positions, block.x)
    )
    per_image: dict[str, list[Floats]] = {name: [] for name in CORRELATIONS}
    for i, valid in enumerate(block.valid.cpu().numpy()):
        measures = dict.fromkeys(CORRELATIONS, np.full(len(among) + 1, np.nan))
        if valid.sum() >= LEAST:
            inside = np.ix_(valid, valid)
            weights = among[:, i][:, :, places[i]].numpy()[:, valid][:, :, valid]
            both = np.concatenate([weights, weights.mean(0, keepdims=True)])
            measures = {
                "pearson": correlate(both, scores[i][inside]),
                "beyond_rivals": beyond_rivals(
                    weights, same[i][inside] > 0, classes[i][valid], positions[i][valid],
                    x[i][valid],
                ),
            }  # fmt: skip
        for name, values in measures.items():
            per_image[name].append(values)
    return {name: torch.from_numpy(np.stack(parts, 1)) for name, parts in per_image.items()}
