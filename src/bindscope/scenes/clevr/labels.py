"""Masks, depth, boxes and visible fractions: rays against the solids, whatever draws the image.

Each object is cast alone first, so that what it would show without the others is known exactly;
the nearest of all then gives the mask. No backend is asked, so all give the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.clevr.camera import Camera
from bindscope.scenes.clevr.description import Scene, Solid
from bindscope.scenes.clevr.solids import distance, half_width

STEPS = 64  # along a ray; only rays that graze an edge need more than a dozen
TOUCH = 1e-5  # a ray this close to a surface has hit it, in scene units
DEPTH_UNIT = 0.001  # of stored depths, in scene units
DEEPEST = 65535  # ground that is further away counts as background

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """What the pixels of a scene show.

    Attributes
    ----------
    mask
        uint8 (H, W): 0 = ground or background, j = the j-th object.
    depth
        uint16 (H, W): depth in thousandths of a scene unit, the ground's included; 0 = beyond.
    boxes
        int16 (m, 4): x0 y0 x1 y1 of each object's outline, hidden parts included, ends exclusive.
    alone
        int64 (m,): pixels that each object would show without the others.
    visible
        int64 (m,): pixels that it does show.
    """

    mask: NDArray[np.uint8]
    depth: NDArray[np.uint16]
    boxes: NDArray[np.int16]
    alone: NDArray[np.int64]
    visible: NDArray[np.int64]


def cast(scene: Scene) -> Labels:
    """Cast a ray through the centre of every pixel.

    Parameters
    ----------
    scene
        At most 255 objects.
    """
    size = scene.size_px
    rays = scene.camera.rays(size)
    with np.errstate(divide="ignore"):
        depth = -scene.camera.position[2] / rays[..., 2]  # of the ground; negative above horizon
    depth[depth <= 0] = np.inf
    mask = np.zeros((size, size), np.uint8)
    boxes = np.full((len(scene.objects), 4), -1, np.int16)
    alone = np.zeros(len(scene.objects), np.int64)
    for j, solid in enumerate(scene.objects):
        rows, columns = window(scene.camera, solid, size)
        found = hits(scene.camera, solid, rays[rows, columns])
        shown = np.isfinite(found)
        alone[j] = shown.sum()
        if not alone[j]:
            continue
        y, x = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
        corner = (columns.start, rows.start, columns.start, rows.start)
        boxes[j] = np.add((x[0], y[0], x[-1] + 1, y[-1] + 1), corner)
        nearer = found < depth[rows, columns]
        depth[rows, columns][nearer] = found[nearer]
        mask[rows, columns][nearer] = j + 1
    visible = np.bincount(mask.ravel(), minlength=len(scene.objects) + 1)[1:]
    steps = np.rint(depth / DEPTH_UNIT)
    stored = np.where(steps <= DEEPEST, steps, 0).astype(np.uint16)
    return Labels(mask, stored, boxes, alone, visible)


def window(camera: Camera, solid: Solid, size: int) -> tuple[slice, slice]:
    """Return rows and columns outside of which an object cannot show."""
    half = half_width(solid.shape, solid.radius)
    signs = np.stack(np.meshgrid(*[(-1, 1)] * 3), axis=-1).reshape(-1, 3)
    corners = solid.centre + half * signs @ solid.turned
    seen = camera.project(corners, size)[:, :2]
    low = np.clip(np.floor(seen.min(axis=0)).astype(int), 0, size)
    high = np.clip(np.ceil(seen.max(axis=0)).astype(int), 0, size)
    return slice(low[1], high[1]), slice(low[0], high[0])


def hits(camera: Camera, solid: Solid, rays: Floats) -> Floats:
    """Return the depth at which rays meet an object.

    Parameters
    ----------
    camera
        Where rays start.
    solid
        The object.
    rays
        float64 (..., 3): see `Camera.rays`.

    Returns
    -------
    float64 (...); infinite where a ray misses.
    """
    origin = solid.turned @ (np.array(camera.position) - solid.centre)
    directions = rays.reshape(-1, 3) @ solid.turned.T
    lengths = np.linalg.norm(directions, axis=1)
    directions /= lengths[:, None]
    # Between these two lengths a ray is inside the ball that holds the solid.
    middle = -(directions @ origin)
    reach = np.sqrt(3.0) * solid.radius
    inside = middle**2 - (origin @ origin - reach**2)
    found = np.full(len(directions), np.inf)
    rest = np.flatnonzero(inside > 0)
    end = middle[rest] + np.sqrt(inside[rest])
    at = middle[rest] - np.sqrt(inside[rest])
    for _ in range(STEPS):
        gap = distance(solid.shape, solid.radius, origin + at[:, None] * directions[rest])
        close = gap < TOUCH
        found[rest[close]] = at[close]
        going = ~close & (at + gap < end)
        rest, at, end, gap = rest[going], at[going], end[going], gap[going]
        if not len(rest):
            break
        at = at + gap
    return (found / lengths).reshape(rays.shape[:-1])
