"""Masks, depth, boxes and visible fractions of a scene, found by casting rays.

Each object is cast alone first, so that what it would show without the others is known exactly;
the nearest of all then gives the mask. Labels do not depend on the backend that draws the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.solids.description import SolidScene
from bindscope.scenes.solids.rays import Outline, nearest, outlines

DEPTH_UNIT = 0.001  # of stored depths, in scene units
DEEPEST = 65535  # ground that is further away counts as background


@dataclass(frozen=True)
class PixelLabels:
    """What the pixels of a scene show.

    `mask`, uint8 (H, W): 0 = ground or background, j = the j-th object; `depth`, uint16 (H, W), in
    thousandths of a scene unit, the ground's included; 0 = beyond. Boxes, int16 (m, 4), are x0 y0
    x1 y1 of each object's outline, hidden parts included, ends exclusive; -1 for one outside the
    image. `alone` and `visible`, int64 (m,), are pixels that each object would show without the
    others, and those that it does show.
    """

    mask: NDArray[np.uint8]
    depth: NDArray[np.uint16]
    boxes: NDArray[np.int16]
    alone: NDArray[np.int64]
    visible: NDArray[np.int64]


def cast(scene: SolidScene) -> PixelLabels:
    """Cast a ray through the centre of every pixel of a scene of at most 255 objects."""
    object_outlines = list(outlines(scene, scene.size_px))
    mask, depth = nearest(scene, scene.size_px, object_outlines)
    steps = np.rint(depth / DEPTH_UNIT)
    return PixelLabels(
        mask=mask,
        depth=np.where(steps <= DEEPEST, steps, 0).astype(np.uint16),
        boxes=np.array([_box(outline) for outline in object_outlines], np.int16).reshape(-1, 4),
        alone=np.array([outline.visible.sum() for outline in object_outlines], np.int64),
        visible=np.bincount(mask.ravel(), minlength=len(object_outlines) + 1)[1:],
    )


def _box(outline: Outline) -> tuple[int, int, int, int]:
    y, x = (np.flatnonzero(outline.visible.any(axis=axis)) for axis in (1, 0))
    if not len(y):
        return -1, -1, -1, -1
    first_row, first_column = outline.rows.start, outline.columns.start
    return first_column + x[0], first_row + y[0], first_column + x[-1] + 1, first_row + y[-1] + 1
