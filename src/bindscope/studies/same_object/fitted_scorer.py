"""A fitted quadratic probe, read back from its file, and what it predicts of whole scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.interfaces import Layer, Model
from bindscope.fitting.standardise import Standardiser
from bindscope.models.base import layer_shapes
from bindscope.scenes.patch_labels import count_pixels
from bindscope.studies.same_object.copies import copies_arrays
from bindscope.studies.same_object.data import PairBlock
from bindscope.studies.same_object.quantities import weights_name
from bindscope.studies.same_object.scorers.base import Scorer


@dataclass(frozen=True)
class FittedScorer(Scorer):
    """g = x' W y + a.x + a.y + b of tokens x and y, standardised."""

    # W (d, d), a (d,) and b (1,), float32.
    matrix: Tensor
    linear: Tensor
    bias: Tensor
    scaling: Standardiser  # how tokens are read
    eigenrows: Tensor | None = None  # of W, by falling eigenvalue (`scorers.convex.eigen`), (d, d)

    @classmethod
    def read(cls, weights: Mapping[str, NDArray[Any]], name: str) -> FittedScorer:
        """Read the arrays that a fit wrote under a name (`quantities.weights_name`)."""
        named = ("matrix", "linear", "bias", "eigenrows", "mean", "scale")
        *form, mean, scale = (np.asarray(weights[f"{name}.{key}"], np.float32) for key in named)
        matrix, linear, bias, eigenrows = map(torch.from_numpy, form)
        return cls(matrix, linear, bias, Standardiser(mean, scale), eigenrows)

    def directions(self, k: int) -> Tensor:
        """Return what the probe reads most, in the space of raw tokens; float64 (k, d), or all.

        Tokens are standardised before they are read, so that a row r reads r * scale of a raw one.
        """
        assert self.eigenrows is not None
        return self.eigenrows[:k].double() * torch.from_numpy(self.scaling.scale).double()

    @property
    def mean(self) -> Tensor:
        """Mean token of train, (d,)."""
        return torch.from_numpy(self.scaling.mean)

    def scores(self, x: Tensor, of: Tensor | None = None) -> Tensor:
        """Return logits (B, Q, M) of scaled tokens (B, Q, d), all if left out, and (B, M, d)."""
        of = x if of is None else of
        matrix, linear, bias = (part.to(x) for part in (self.matrix, self.linear, self.bias))
        first, second = of @ linear, x @ linear
        products = torch.bmm(of @ matrix, x.mT) + second[:, None, :] + first[:, :, None]
        return products + bias

    def scaled(self, tokens: Tensor) -> Tensor:
        """Return raw tokens (B, M, d) as the form reads them."""
        return self.scaling.scaled(tokens.clone())

    def logits(self, block: PairBlock) -> Tensor:
        """Return logits (P,) of a block whose tokens are raw."""
        return block.packed(self.scores(self.scaled(block.x)))


QUERIES = 2  # of a scene


def queries_of(
    masks: NDArray[np.integer[Any]], stuff: NDArray[np.uint8] | None, grid: tuple[int, int]
) -> NDArray[np.int32]:
    """Choose query patches: of the two things with most pixels the patch with most of them.

    `masks` (n, H, W): object of each pixel, 0 = none. `stuff` (n, M): whether the j-th object is
    stuff, which is asked about last; None: none is. Returns: int32 (n, QUERIES): places in the
    patch grid; -1 where a scene has fewer objects.
    """
    counts = count_pixels(masks, grid)
    counts[:, :, 0] = 0
    pixels = counts.sum(1)
    if stuff is not None:
        things = np.pad(stuff == 0, ((0, 0), (1, 0)), constant_values=True)
        pixels = np.where(things[:, : pixels.shape[1]], pixels, -1)
    order = np.argsort(-pixels, axis=1, kind="stable")[:, :QUERIES]
    queries = np.full((len(masks), QUERIES), -1, np.int32)
    for i, objects in enumerate(order):
        for j, number in enumerate(objects):
            if counts[i, :, number].any():
                queries[i, j] = counts[i, :, number].argmax()
    return queries


def tokens_of(
    model: Model, images: NDArray[np.uint8], layers: Sequence[Layer]
) -> dict[str, torch.Tensor]:
    """Return all patch tokens of a few images, float32 (n, P, d) by layer."""
    shapes = layer_shapes(model)
    with torch.inference_mode():
        pixels = model.preprocess(images)
        return {
            str(layer): tokens[:, shapes[layer].token_map.patches].float().cpu().clone()
            for layer, tokens in model.residual_stream(pixels, layers)
        }


def probabilities(
    scorer: FittedScorer, tokens: torch.Tensor, queries: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return what a probe gives the pairs of query patches and all patches.

    `tokens` float32 (n, P, d). `queries` (n, Q), -1 = none, whose scores are 0. Returns: float32
    (n, Q, P): probabilities that both patches are of one object.
    """
    x, places = scorer.scaled(tokens), torch.from_numpy(np.maximum(queries, 0).astype(np.int64))
    query_tokens = torch.take_along_dim(x, places[:, :, None], 1)
    scores: NDArray[np.float32] = scorer.scores(x, query_tokens).sigmoid().numpy()
    scores[queries < 0] = 0
    return scores


def score_maps(
    model: Model,
    images: NDArray[np.uint8],
    masks: NDArray[np.integer[Any]],
    stuff: NDArray[np.uint8] | None,
    weights: Mapping[str, NDArray[Any]],
    layers: Sequence[Layer],
) -> dict[str, NDArray[Any]]:
    """Score query patches of a few scenes against all their patches, layer by layer.

    `images`, `masks` uint8 (n, H, W, 3) and (n, H, W). `stuff` uint8 (n, M), or None, as
    `queries_of` takes it. `weights`: what the fit of a quadratic probe wrote. Returns: `images`,
    `masks`, `grid` int32 (2,), `queries` int32 (n, Q), and per layer ``scores-<layer>`` float32 (n,
    Q, P); and what `copies_arrays` returns.
    """
    tokens = tokens_of(model, images, layers)
    grid = layer_shapes(model)[layers[0]].token_map.grid
    queries = queries_of(masks, stuff, grid)
    scores = {}
    for layer in layers:
        scorer = FittedScorer.read(weights, weights_name(str(layer), 0, 0))
        scores[f"scores-{layer}"] = probabilities(scorer, tokens[str(layer)], queries)
    copies = copies_arrays(
        images, masks, stuff, grid, lambda composed: tokens_of(model, composed, layers), layers
    )
    return {
        **copies,
        "images": images,
        "masks": masks.astype(np.uint8),
        "grid": np.array(grid, np.int32),
        "queries": queries,
        **scores,
    }
