"""CLEVR's three solids, edges rounded as there: as a signed distance, and as a mesh.

Both describe the same body, so labels that are cast against the distance agree with what a
renderer makes of the mesh. A solid is given by its half sizes and by the radius of its edges; it is
the set of points no further than that radius from a smaller, sharp one.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.scenes.solids.further_bodies import FURTHER, slope

ROUNDING = 0.12  # radius of the edges of cubes and cylinders, over half their width
TINY = 1e-12
ARC = 5  # vertices along a rounded edge, ends included
SEGMENTS = 64  # around the axis of a cylinder or sphere


class Mesh(NamedTuple):
    """Triangles, counter-clockwise from outside, with a normal per vertex."""

    vertices: Doubles
    normals: Doubles
    faces: NDArray[np.int64]


def half_width(shape: str, radius: float) -> float:
    """Half the width of a solid: its radius, or for a cube half its side."""
    return radius / float(np.sqrt(2.0)) if shape == "cube" else radius


def bounding_radius(shape: str, radius: float) -> float:
    """Radius of a ball around a solid's middle that holds it."""
    corner = {"sphere": 1.0, "cube": 3.0}.get(shape, 2.0)
    return half_width(shape, radius) * float(np.sqrt(corner))


def signed_distance(shape: str, radius: float, points: Doubles) -> Doubles:
    """Return the signed distance of points (..., 3) from a solid's surface, negative inside.

    Shapes are cube, sphere, cylinder (upright), or one of `FURTHER` (there a lower bound outside);
    `radius` is that of the circle on the ground that holds the solid, points are in its own axes.
    Outside the distance is exact, so a ray can step that far without missing anything.
    """
    half = half_width(shape, radius)
    if shape in FURTHER:
        return radius * FURTHER[shape](points / radius)
    if shape == "sphere":
        return np.asarray(np.sqrt((points**2).sum(axis=-1)) - half)
    edge = ROUNDING * half
    if shape == "cube":
        beyond = np.abs(points) - (half - edge)
    else:
        across = np.hypot(points[..., 0], points[..., 1])
        beyond = np.stack([across, np.abs(points[..., 2])], axis=-1) - (half - edge)
    outside = np.sqrt((np.maximum(beyond, 0.0) ** 2).sum(axis=-1))
    return np.asarray(outside + np.minimum(beyond.max(axis=-1), 0.0) - edge)


def normal(shape: str, radius: float, points: Doubles) -> Doubles:
    """Return outward unit normals at points, those of the nearest of the sharp solid."""
    if shape in FURTHER:
        return slope(FURTHER[shape], points / radius)
    if shape == "sphere":
        outward = points
    else:
        inner = half_width(shape, radius) * (1 - ROUNDING)
        core = np.clip(points, -inner, inner)
        if shape == "cylinder":
            across = np.hypot(points[..., 0], points[..., 1])
            shrink = np.minimum(1.0, inner / np.maximum(across, TINY))
            core[..., :2] = points[..., :2] * shrink[..., None]
        outward = points - core
    return np.asarray(outward / np.linalg.norm(outward, axis=-1, keepdims=True))


@cache
def mesh(shape: str) -> Mesh:
    """Return a solid of radius 1 as triangles."""
    if shape == "cube":
        return _rounded_cube(half_width("cube", 1.0))
    angles = np.linspace(0, np.pi / 2, ARC)
    if shape == "sphere":
        angles = np.linspace(0, np.pi, SEGMENTS // 2 + 1)[1:-1]
        normals = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return _turned(normals, normals)
    inner = 1.0 - ROUNDING
    upper = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    normals = np.concatenate([upper, upper[::-1] * (1, -1)])
    centres = np.repeat([(inner, inner), (inner, -inner)], ARC, axis=0)
    return _turned(centres + ROUNDING * normals, normals)


def _turned(profile: Doubles, normals: Doubles) -> Mesh:
    """Turn a profile (distance from the axis, height; from top to bottom) around the axis."""
    turn = np.arange(SEGMENTS) * 2 * np.pi / SEGMENTS
    around = np.stack([np.cos(turn), np.sin(turn)], axis=-1)

    def swept(points: Doubles, ends: Doubles) -> Doubles:
        wide = points[:, None, :1] * around[None]
        high = np.broadcast_to(points[:, None, 1:], (*wide.shape[:2], 1))
        rings = np.concatenate([wide, high], axis=-1).reshape(-1, 3)
        return np.concatenate([rings, ends])

    poles = np.array([(0, 0, 1.0), (0, 0, -1.0)])
    vertices, directions = swept(profile, poles), swept(normals, poles)
    ring = np.arange(SEGMENTS)
    after = (ring + 1) % SEGMENTS
    faces = []
    for i in range(len(profile) - 1):
        a, b = i * SEGMENTS, (i + 1) * SEGMENTS
        faces.append(np.stack([a + ring, b + ring, b + after], axis=-1))
        faces.append(np.stack([a + ring, b + after, a + after], axis=-1))
    last, north = (len(profile) - 1) * SEGMENTS, len(profile) * SEGMENTS
    faces.append(np.stack([np.full(SEGMENTS, north), ring, after], axis=-1))
    faces.append(np.stack([np.full(SEGMENTS, north + 1), last + after, last + ring], axis=-1))
    return Mesh(vertices, directions, np.concatenate(faces))


def _rounded_cube(half: float) -> Mesh:
    """Push the points of a gridded cube onto the rounded one, face by face."""
    edge = ROUNDING * half
    inner = half - edge
    bend = edge * np.tan(np.linspace(0, np.pi / 4, ARC))
    line = np.concatenate([-(inner + bend[::-1]), inner + bend])
    n = len(line)
    u, v = (part.ravel() for part in np.meshgrid(line, line, indexing="ij"))
    at = np.arange(n * n).reshape(n, n)
    corners = [at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]]
    a, b, c, d = (corner.ravel() for corner in corners)
    quads = np.concatenate([np.stack([a, b, c], axis=-1), np.stack([a, c, d], axis=-1)])
    vertices: list[Doubles] = []
    faces: list[NDArray[np.int64]] = []
    for axis in range(3):
        for side in (1.0, -1.0):
            points = np.empty((n * n, 3))
            points[:, axis] = side * half
            points[:, (axis + 1) % 3], points[:, (axis + 2) % 3] = u, v
            faces.append((quads if side > 0 else quads[:, ::-1]) + len(vertices) * n * n)
            vertices.append(points)
    points = np.concatenate(vertices)
    core = np.clip(points, -inner, inner)
    normals = points - core
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return Mesh(core + edge * normals, normals, np.concatenate(faces))
