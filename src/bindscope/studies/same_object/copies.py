"""Four identical objects in one image, and how their tokens differ (IsSameObject paper, Fig. 6).

The largest object of a scene is cut out and put at four places of that scene's most frequent color,
whole patches apart. A patch of a copy and the patch at the same place of the first object show the
same pixels, so that their tokens differ by position and by what the model computes of it. That
paper finds that differences of the second, third and fourth object make three clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.core.array_types import Bools, Doubles, Integers, UInt8
from bindscope.core.interfaces import Layer

COPIES = 4
COMPONENTS = 3
FEWEST = 3  # patches of an object


class Composed(NamedTuple):
    """An image with copies of an object, uint8 (H, W, 3), and places in its patch grid (4, k)."""

    image: UInt8
    patches: Integers


def compose(
    image: UInt8,
    mask: NDArray[np.integer[Any]],
    grid: tuple[int, int],
    stuff: NDArray[np.integer[Any]] | None = None,
) -> Composed | None:
    """Put the largest object that fits at four places; None where that is not possible.

    `image` uint8 (H, W, 3) and `mask` (H, W), 0 = no object; `stuff` (M,): whether object j + 1 is
    stuff, which is no object here. An object fits that is no higher or wider than half of the
    image, and has three patches that are mostly its own. Patches are a whole number of pixels.
    """
    if any(side % n for side, n in zip(mask.shape, grid, strict=True)):
        return None
    counts = np.bincount(mask.ravel().astype(np.int64))
    counts[0] = 0
    if stuff is not None:
        counts[1:][stuff[: len(counts) - 1] > 0] = 0
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    candidates = (_put_four_times(image, mask == number, grid) for number in order)
    return next(filter(None, candidates), None)


def _put_four_times(image: UInt8, object_at: Bools, grid: tuple[int, int]) -> Composed | None:
    """Put the pixels of an object at the upper left corner of each quarter."""
    (height, width), (rows, columns) = object_at.shape, grid
    high, wide = height // rows, width // columns
    of_rows, of_columns = (np.flatnonzero(object_at.any(axis)) for axis in (1, 0))
    cut = np.s_[of_rows[0] : of_rows[-1] + 1, of_columns[0] : of_columns[-1] + 1]
    shape, pixels = object_at[cut], image[cut]
    down, across = rows // 2, columns // 2  # patches between two copies
    if shape.shape[0] > down * high or shape.shape[1] > across * wide:
        return None
    quarter = np.zeros((down * high, across * wide), bool)
    quarter[: shape.shape[0], : shape.shape[1]] = shape
    covered = quarter.reshape(down, high, across, wide).mean((1, 3)) > 0.5
    row, column = covered.nonzero()
    if len(row) < FEWEST:
        return None
    colors, number = np.unique(image[~object_at].reshape(-1, 3), axis=0, return_counts=True)
    canvas = np.broadcast_to(colors[number.argmax()], image.shape).copy()
    for y, x in ((0, 0), (0, across), (down, 0), (down, across)):
        place = canvas[y * high :, x * wide :][: shape.shape[0], : shape.shape[1]]
        place[shape] = pixels[shape]
    offsets = [0, across, down * columns, down * columns + across]
    return Composed(canvas, row * columns + column + np.array(offsets)[:, None])


def residual_components(tokens: Doubles) -> tuple[Doubles, Doubles]:
    """Return the first components of copies minus the first object, and their variance shares.

    `tokens` (4, k, d): of the same patches of four objects. Returns (3, k, 3) and (3,).
    """
    residuals = (tokens[1:] - tokens[:1]).reshape(-1, tokens.shape[-1])
    residuals = residuals - residuals.mean(0)
    u, sizes, _ = np.linalg.svd(residuals, full_matrices=False)
    n = min(COMPONENTS, len(sizes))
    points = np.zeros((len(residuals), COMPONENTS))
    points[:, :n] = (u * sizes)[:, :n]
    shares = np.zeros(COMPONENTS)
    if total := float((sizes**2).sum()):
        shares[:n] = sizes[:n] ** 2 / total
    return points.reshape(COPIES - 1, -1, COMPONENTS), shares


def copies_arrays(
    images: UInt8,
    masks: NDArray[np.integer[Any]],
    stuff: NDArray[np.integer[Any]] | None,
    grid: tuple[int, int],
    tokens_of: Callable[[UInt8], Mapping[str, torch.Tensor]],
    layers: Sequence[Layer],
) -> dict[str, NDArray[Any]]:
    """Return an image of copies and the components of its residuals by layer; none: nothing.

    The first image that can be composed is taken. `tokens_of`: from images to all patch tokens
    (n, P, d) by layer. Returns `copies-image`, and per layer ``copies-<layer>`` float32 (3, k, 3)
    and ``copies-variance-<layer>`` float32 (3,).
    """
    of_images = [None] * len(images) if stuff is None else stuff
    candidates = (
        compose(image, mask, grid, of_image)
        for image, mask, of_image in zip(images, masks, of_images, strict=True)
    )
    composed = next(filter(None, candidates), None)
    if composed is None:
        return {}
    arrays: dict[str, NDArray[Any]] = {"copies-image": composed.image}
    tokens = tokens_of(composed.image[None])
    for layer in layers:
        here = tokens[str(layer)][0].double().numpy()[composed.patches]
        points, shares = residual_components(here)
        arrays[f"copies-{layer}"] = points.astype(np.float32)
        arrays[f"copies-variance-{layer}"] = shares.astype(np.float32)
    return arrays
