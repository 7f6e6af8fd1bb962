"""Labels of patches: which object has most of a patch's pixels, and how many of them.

Source: arXiv 2510.24709, section 3 (the mode over a patch's pixels). What the paper leaves open is
fixed here: a tie goes to the smallest id, pixels are counted at the mask's own resolution, and a
patch's class is that of its object, so that two patches of one object never differ in class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import InputError

BLOCK = 1 << 21  # pixels that are read, or counts that are made, at a time: about 50 MB

GridShape = tuple[int, int]


@dataclass(frozen=True)
class PatchLabels:
    """Labels of all patches of images; patch r * columns + c is in row r and column c of the grid.

    `instances`, int16 (n, P), are ids in its image of the object with most pixels, 0 = unlabelled;
    `classes`, int16 (n, P), that object's, 0 where it is unlabelled; `stuff`, bool (n, P), whether
    it is stuff; `purity`, float32 (n, P), the share of the patch's pixels that are the object's.
    """

    instances: NDArray[np.int16]
    classes: NDArray[np.int16]
    stuff: NDArray[np.bool_]
    purity: NDArray[np.float32]


def patch_labels(
    masks: NDArray[np.integer[Any]],
    instance_classes: NDArray[np.integer[Any]],
    stuff: NDArray[np.integer[Any]],
    grid: GridShape,
    where: str = "masks",
) -> PatchLabels:
    """Label every patch of a grid.

    Masks (n, H, W) hold the id of the object that each pixel shows, 0 = unlabelled. The object with
    id j has its class, above 0, in column j - 1 of `instance_classes` (n, M), and whether it is
    stuff, 0 or 1, in that of `stuff`. InputError if the grid does not divide the masks, or an id
    has no class.
    """
    check_grid(masks.shape[1:], grid, where)
    if instance_classes.shape != stuff.shape or len(stuff) != len(masks):
        raise InputError(
            where,
            f"masks of {len(masks)} images come with classes of shape {instance_classes.shape} "
            f"and stuff flags of shape {stuff.shape}",
            "give a class and a flag for every object of every image",
        )
    none = np.zeros((len(masks), 1), np.int16)
    classes = np.concatenate([none, instance_classes.astype(np.int16)], axis=1)
    flags = np.concatenate([none, stuff], axis=1) > 0
    n_pixels = masks.shape[1] * masks.shape[2]
    n_patches = grid[0] * grid[1]
    n_counts = n_patches * (int(masks.max(initial=0)) + 1)
    step = max(1, BLOCK // max(n_pixels, n_counts))
    instances = np.empty((len(masks), n_patches), np.int16)
    pixels = np.empty((len(masks), n_patches), np.int64)
    for first in range(0, len(masks), step):
        rows = slice(first, first + step)
        counts = count_pixels(masks[rows], grid)
        _check_ids(counts, classes[rows], where, first)
        instances[rows] = counts.argmax(axis=2)  # of several maxima the first one
        pixels[rows] = counts.max(axis=2)
    image = np.arange(len(masks))[:, None]
    return PatchLabels(
        instances,
        classes[image, instances],
        flags[image, instances],
        (pixels / (n_pixels // n_patches)).astype(np.float32),
    )


def count_pixels(masks: NDArray[np.integer[Any]], grid: GridShape) -> NDArray[np.int64]:
    """Count the pixels of every id in every patch, in one pass: int64 (n, P, largest id + 1).

    Ids of masks (n, H, W) are from 0; the grid divides (H, W).
    """
    (n, height, width), (rows, columns) = masks.shape, grid
    n_ids = int(masks.max(initial=0)) + 1
    patch = np.arange(n * rows * columns).reshape(n, rows, 1, columns, 1)
    pixels = masks.reshape(n, rows, height // rows, columns, width // columns)
    counted = np.bincount((patch * n_ids + pixels).ravel(), minlength=n * rows * columns * n_ids)
    return counted.reshape(n, rows * columns, n_ids)


def check_grid(size: tuple[int, ...], grid: GridShape, where: str) -> None:
    """Refuse a grid of patches that does not divide an image (height, width), with InputError."""
    if any(n < 1 or side < 1 or side % n for side, n in zip(size, grid, strict=True)):
        raise InputError(
            where,
            f"{size[0]} x {size[1]} pixels are not cut into {grid[0]} x {grid[1]} equal patches",
            "choose images whose sides are multiples of the model's patch size",
        )


def _check_ids(
    counts: NDArray[np.int64], classes: NDArray[np.int16], where: str, first: int
) -> None:
    """Refuse ids without a class; `first` is the number of the first image."""
    present: NDArray[np.bool_] = np.asarray(counts.any(axis=1))
    present[:, 0] = False  # unlabelled
    known = np.zeros(present.shape, bool)
    width = min(present.shape[1], classes.shape[1])
    known[:, :width] = classes[:, :width] > 0
    missing = np.argwhere(present & ~known)
    if len(missing):
        image, number = missing[0].tolist()
        raise InputError(
            f"{where}, image {first + image}",
            f"its mask holds id {number}, and no class is known of it",
            "give every object of the mask a class above 0, and unlabelled pixels id 0",
        )
