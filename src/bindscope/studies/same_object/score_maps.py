"""Score maps: what a fitted probe says of query patches and every patch of a scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.interfaces import Layer, Model
from bindscope.models.base import layer_shapes
from bindscope.scenes.patch_labels import count_pixels
from bindscope.studies.same_object.data import TokenNorm
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.marks import weights_name

QUERIES = 2  # of a scene
Arrays = Mapping[str, NDArray[Any]]


def queries_of(
    masks: NDArray[np.integer[Any]], stuff: NDArray[np.uint8] | None, grid: tuple[int, int]
) -> NDArray[np.int32]:
    """Choose query patches: of the two things with most pixels the patch with most of them.

    Parameters
    ----------
    masks
        (n, H, W): object of each pixel, 0 = none.
    stuff
        (n, M): whether the j-th object is stuff, which is asked about last; None: none is.
    grid
        Rows and columns of patches.

    Returns
    -------
    int32 (n, QUERIES): places in the patch grid; -1 where a scene has fewer objects.
    """
    counts = count_pixels(masks, grid)
    counts[:, :, 0] = 0
    pixels = counts.sum(1)
    if stuff is not None:
        things = np.pad(stuff == 0, ((0, 0), (1, 0)), constant_values=True)
        pixels = np.where(things[:, : pixels.shape[1]], pixels, -1)
    order = np.argsort(-pixels, axis=1, kind="stable")[:, :QUERIES]
    found = np.full((len(masks), QUERIES), -1, np.int32)
    for i, objects in enumerate(order):
        for j, number in enumerate(objects):
            if counts[i, :, number].any():
                found[i, j] = counts[i, :, number].argmax()
    return found


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

    Parameters
    ----------
    scorer
        The fitted probe.
    tokens
        float32 (n, P, d).
    queries
        (n, Q), -1 = none, whose scores are 0.

    Returns
    -------
    float32 (n, Q, P): probabilities that both patches are of one object.
    """
    x, places = scorer.scaled(tokens), torch.from_numpy(np.maximum(queries, 0).astype(np.int64))
    asked = torch.take_along_dim(x, places[:, :, None], 1)
    found: NDArray[np.float32] = scorer.scores(x, asked).sigmoid().numpy()
    found[queries < 0] = 0
    return found


def score_maps(
    model: Model,
    images: NDArray[np.uint8],
    masks: NDArray[np.integer[Any]],
    stuff: NDArray[np.uint8] | None,
    weights: Arrays,
    layers: Sequence[Layer],
    seed: int,
    norm: TokenNorm,
) -> dict[str, NDArray[Any]]:
    """Score query patches of a few scenes against all their patches, layer by layer.

    Parameters
    ----------
    model
        A frozen model.
    images, masks
        uint8 (n, H, W, 3) and (n, H, W).
    stuff
        uint8 (n, M), or None, as `queries_of` takes it.
    weights
        What the fit of a quadratic probe wrote.
    layers, seed, norm
        Of that fit.

    Returns
    -------
    `images`, `masks`, `grid` int32 (2,), `queries` int32 (n, Q), and per layer ``scores-<layer>``
    float32 (n, Q, P).
    """
    tokens = tokens_of(model, images, layers)
    grid = layer_shapes(model)[layers[0]].token_map.grid
    queries = queries_of(masks, stuff, grid)
    scores = {}
    for layer in layers:
        scorer = FittedScorer.read(weights, weights_name(str(layer), seed, 0), norm)
        scores[f"scores-{layer}"] = probabilities(scorer, tokens[str(layer)], queries)
    return {
        "images": images, "masks": masks.astype(np.uint8), "grid": np.array(grid, np.int32),
        "queries": queries, **scores,
    }  # fmt: skip
