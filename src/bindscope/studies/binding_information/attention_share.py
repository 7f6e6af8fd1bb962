"""How much of an object's query falls on the object: numbers only, no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def attention_share(
    maps: Array, masks: Array, grid: Sequence[int], patch_px: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the share of each query's attention on patches that its own object touches.

    Parameters
    ----------
    maps
        float (S, M, T): attention of the query of the j-th object of scene s over the T patches,
        in rows; whatever stands for an absent object is not read.
    masks
        uint8 (S, H, W): 0 is background, j + 1 the j-th object.
    grid
        Rows and columns of patches; T is their product.
    patch_px
        Side of a patch in the model's pixels. Where `grid` times `patch_px` is the masks' size the
        patches lie on the masks' pixels; where it is not, the model resized the image, and the
        masks' pixels are mapped to patches in proportion.

    Returns
    -------
    share, baseline
        float64 (S, M), NaN for absent objects. `baseline` is what a uniform query would have: the
        share of patches that the object touches.
    """
    rows, columns = int(grid[0]), int(grid[1])
    n_scenes, n_objects, n_patches = maps.shape
    if rows * columns != n_patches or len(masks) != n_scenes:
        raise ValueError(
            f"maps {maps.shape} do not match masks {masks.shape} and a {rows} x {columns} grid"
        )
    vertical = _overlap(rows, masks.shape[1], patch_px)
    horizontal = _overlap(columns, masks.shape[2], patch_px)
    share = np.full((n_scenes, n_objects), np.nan)
    baseline = share.copy()
    for j in range(n_objects):
        own = (masks == j + 1).astype(np.float32)
        touched = (vertical @ own @ horizontal.T > 0).reshape(n_scenes, n_patches)
        present = touched.any(axis=1)
        weights = maps[:, j].astype(np.float64)
        inside = np.where(touched, weights, 0.0).sum(axis=1)
        share[present, j] = inside[present] / weights[present].sum(axis=1)
        baseline[present, j] = touched[present].mean(axis=1)
    return share, baseline


def _overlap(n_patches: int, n_pixels: int, patch_px: int) -> npt.NDArray[np.float32]:
    """Say which pixels of one axis each patch touches: float32 (n_patches, n_pixels) of 0 and 1.

    A border that is narrower than a patch belongs to none (the model cuts it off).
    """
    covered = n_patches * patch_px
    extent = covered if covered <= n_pixels < covered + patch_px else n_pixels
    pixel = np.arange(n_pixels)
    patch = np.arange(n_patches)[:, None]
    # pixel [p, p + 1) meets patch [q e / n, (q + 1) e / n): compare in integers
    starts_before_end = pixel * n_patches < (patch + 1) * extent
    ends_after_start = (pixel + 1) * n_patches > patch * extent
    return (starts_before_end & ends_after_start).astype(np.float32)
