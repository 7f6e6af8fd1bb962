"""Images that are put together from portraits of solids, with exact masks and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.solids.portraits import Portrait
from bindscope.scenes.solids.world import to_srgb


@dataclass(frozen=True, eq=False)
class Drawn:
    """Images, uint8 (n, H, W, 3), RGB, and what their pixels show.

    `masks`, uint8 (n, H, W): 0 = ground, j + 1 = the j-th solid, which covers all or part of the
    pixel. Boxes, int16 (n, k, 4), are the tight ones of each solid's mask: left, top, right and
    bottom, ends exclusive; -1 where there is no j-th solid.
    """

    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    boxes: NDArray[np.int16]


def paint(
    ground: NDArray[np.float64],
    faces: Sequence[Sequence[Portrait]],
    corners: NDArray[np.int64],
    tint: NDArray[np.float64],
) -> Drawn:
    """Put solids on a ground, the later ones over the earlier ones.

    `ground` is linear light of an empty image, (size, size, 3); faces are the portraits of every
    image, up to k, which begin in row and column of `corners` (n, k, 2): what is outside is cut
    off. `tint` is the linear color of each solid, (n, k, 3).
    """
    size, (n, k) = len(ground), tint.shape[:2]
    images = np.repeat(to_srgb(ground)[None], n, axis=0)
    masks, boxes = np.zeros((n, size, size), np.uint8), np.full((n, k, 4), -1, np.int16)
    for row, there in enumerate(faces):
        light = ground.copy()
        for j, face in enumerate(there):
            painted = _put(images[row], light, face, tint[row, j], *corners[row, j].tolist())
            masks[row][painted] = j + 1
            boxes[row, j] = _tight_box(masks[row] == j + 1)
    return Drawn(images, masks, boxes)


def _put(
    image: NDArray[np.uint8],
    light: NDArray[np.float64],
    face: Portrait,
    tint: NDArray[np.float64],
    top: int,
    left: int,
) -> NDArray[np.bool_]:
    """Put a solid where its portrait begins; return which pixels it covers, (H, W).

    `image` shows `light` and is changed with it; what is outside of the image is cut off.
    """
    size, (height, width) = len(light), face.covered.shape
    window = (slice(max(top, 0), top + height), slice(max(left, 0), left + width))
    part = (slice(max(-top, 0), size - top), slice(max(-left, 0), size - left))
    covered, body, shine = face.covered[part], face.body[part], face.shine[part]
    behind = (1 - covered) * (1 - face.shadow[part])
    light[window] = behind[..., None] * light[window] + body[..., None] * tint + shine[..., None]
    image[window] = to_srgb(light[window])
    painted = np.zeros(light.shape[:2], bool)
    painted[window] = covered > 0
    return painted


def in_middle(region: tuple[int, int, int, int], shape: tuple[int, ...]) -> tuple[int, int]:
    """Return row and column where a portrait of a shape begins, in the middle of its region."""
    left, top, right, bottom = region
    return (top + bottom - shape[0]) // 2, (left + right - shape[1]) // 2


def _tight_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of what a mask covers, ends exclusive."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
