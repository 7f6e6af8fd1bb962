"""Intersections of rays with the solids of a scene, for labels and for the raycast backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.scenes.solids.bodies import bounding_radius, half_width, signed_distance
from bindscope.scenes.solids.camera import Camera
from bindscope.scenes.solids.description import Solid, SolidScene

STEPS = 64  # along a ray; only rays that graze an edge need more than a dozen
TOUCH = 1e-5  # a ray this close to a surface has hit it, in scene units


def ray_lengths(solid: Solid, origins: Doubles, directions: Doubles) -> Doubles:
    """Return rays' lengths to a surface, (N,) in lengths of `directions`; inf: missed.

    A ray steps by its distance from the object, which can never carry it through the surface.
    Origins are (N, 3), or (3,) where all rays start at one point, outside the object.
    """
    offset = solid.centre - origins
    lengths = np.sqrt(dot(directions, directions))
    # Between two lengths a ray is inside the ball that holds the object; most rays never are.
    middle = dot(directions, offset) / lengths
    inside = middle**2 - (dot(offset, offset) - bounding_radius(solid.shape, solid.radius) ** 2)
    rest = np.flatnonzero((inside > 0) & ((middle > 0) | (inside > middle**2)))
    nearest_hit = np.full(len(lengths), np.inf)
    half = np.sqrt(inside[rest])
    at, end = np.maximum(middle[rest] - half, 0.0), middle[rest] + half
    along = directions[rest] @ solid.body_axes.T / lengths[rest, None]
    start = -(offset[rest] if offset.ndim > 1 else offset) @ solid.body_axes.T
    points = start + at[:, None] * along
    for _ in range(STEPS):
        gap = signed_distance(solid.shape, solid.radius, points)
        close = gap < TOUCH
        nearest_hit[rest[close]] = at[close]
        at = at + gap
        going = np.flatnonzero(~close & (at < end))
        if not len(going):
            break
        rest, at, end, along = rest[going], at[going], end[going], along[going]
        points = points[going] + gap[going, None] * along
    return nearest_hit / lengths


def dot(a: Doubles, b: Doubles) -> Doubles:
    """Return the inner products of 3-vectors, (..., 3) and (..., 3) -> (...)."""
    x, y, z = (a[..., axis] * b[..., axis] for axis in range(3))
    return np.asarray(x + y + z)


@dataclass(frozen=True)
class Outline:
    """The pixels that one object would cover alone, and their depth; infinite beside it."""

    rows: slice
    columns: slice
    depth: Doubles

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Pixels that it covers, bool (rows, columns)."""
        return np.isfinite(self.depth)


def outlines(scene: SolidScene, size: int) -> Iterator[Outline]:
    """Cast a ray through every pixel's centre, against each object alone."""
    rays = scene.camera.rays(size)
    position = np.array(scene.camera.position)
    for solid in scene.objects:
        rows, columns = bounding_window(scene.camera, solid, size)
        part = rays[rows, columns]
        depth = ray_lengths(solid, position, part.reshape(-1, 3)).reshape(part.shape[:2])
        yield Outline(rows, columns, depth)


def nearest(
    scene: SolidScene, size: int, object_outlines: list[Outline]
) -> tuple[NDArray[np.uint8], Doubles]:
    """Find the nearest surface in every pixel, of `object_outlines` or the ground.

    `mask` is uint8 (size, size): 0 = ground or background, j = the j-th object; `depth` float64
    (size, size), infinite where nothing is.
    """
    rays = scene.camera.rays(size)
    with np.errstate(divide="ignore"):
        depth = -scene.camera.position[2] / rays[..., 2]  # of the ground; negative above horizon
    depth[depth <= 0] = np.inf
    mask = np.zeros((size, size), np.uint8)
    for j, outline in enumerate(object_outlines):
        behind = depth[outline.rows, outline.columns]
        nearer = outline.depth < behind
        behind[nearer] = outline.depth[nearer]
        mask[outline.rows, outline.columns][nearer] = j + 1
    return mask, depth


def bounding_window(camera: Camera, solid: Solid, size: int) -> tuple[slice, slice]:
    """Return rows and columns of the image that hold all of an object."""
    half = half_width(solid.shape, solid.radius)
    signs = np.stack(np.meshgrid(*[(-1, 1)] * 3), axis=-1).reshape(-1, 3)
    corners = solid.centre + half * signs @ solid.body_axes
    pixels = camera.project(corners, size)[:, :2]
    low = np.clip(np.floor(pixels.min(axis=0)).astype(int), 0, size)
    high = np.clip(np.ceil(pixels.max(axis=0)).astype(int), 0, size)
    return slice(low[1], high[1]), slice(low[0], high[0])
