"""Solids beside CLEVR's three, as signed distances.

All stand upright in a circle of radius 1 with their middle at the origin, from -1 to 1 along z; the
torus stands on its rim, its axis along y, the octahedron on a corner. Edges are sharp: a distance
is that from the farthest face's plane, near an edge less than from the body itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bindscope.core.array_types import Doubles

TUBE = 0.32  # radius of the torus's tube


def _tapered(across: Doubles, z: Doubles, base: float, top: float) -> Doubles:
    """Distance of points `across` from the axis from what narrows from `base` to `top`."""
    side = (2.0 * (across - base) + (base - top) * (z + 1.0)) / np.hypot(2.0, base - top)
    return np.asarray(np.maximum(side, np.abs(z) - 1.0))


def _cone(points: Doubles) -> Doubles:
    return _tapered(np.hypot(points[..., 0], points[..., 1]), points[..., 2], 1.0, 0.0)


def _frustum(points: Doubles) -> Doubles:
    return _tapered(np.hypot(points[..., 0], points[..., 1]), points[..., 2], 1.0, 0.5)


def _pyramid(points: Doubles) -> Doubles:
    across = np.maximum(np.abs(points[..., 0]), np.abs(points[..., 1]))
    return _tapered(across, points[..., 2], float(np.sqrt(0.5)), 0.0)


def _prism(points: Doubles) -> Doubles:
    """A triangle in the circle, raised; one side faces the front, away from y."""
    x, y, z = (points[..., axis] for axis in range(3))
    behind = np.sqrt(0.75) * np.abs(x) + 0.5 * y
    return np.asarray(np.maximum(np.maximum(behind, -y) - 0.5, np.abs(z) - 1.0))


def _torus(points: Doubles) -> Doubles:
    ring = np.hypot(points[..., 0], points[..., 2]) - (1 - TUBE)
    return np.asarray(np.hypot(ring, points[..., 1]) - TUBE)


def _capsule(points: Doubles) -> Doubles:
    """A ball of half the radius, drawn out along z."""
    x, y, z = (points[..., axis] for axis in range(3))
    return np.asarray(np.sqrt(x**2 + y**2 + np.maximum(np.abs(z) - 0.5, 0.0) ** 2) - 0.5)


def _hourglass(points: Doubles) -> Doubles:
    """Two cones, tip to tip."""
    across, z = np.hypot(points[..., 0], points[..., 1]), np.abs(points[..., 2])
    return np.asarray(np.maximum((across - z) / np.sqrt(2.0), z - 1.0))


def _octahedron(points: Doubles) -> Doubles:
    return np.asarray((np.abs(points).sum(axis=-1) - 1.0) / np.sqrt(3.0))


FURTHER: dict[str, Callable[[Doubles], Doubles]] = {
    "cone": _cone,
    "frustum": _frustum,
    "prism": _prism,
    "pyramid": _pyramid,
    "torus": _torus,
    "capsule": _capsule,
    "hourglass": _hourglass,
    "octahedron": _octahedron,
}
"""Name -> signed distance of points (..., 3), negative inside; outside it is never more than the
distance from the surface, so a ray may step that far."""


def slope(distance: Callable[[Doubles], Doubles], points: Doubles) -> Doubles:
    """Return the unit vectors along which a distance grows fastest, by central differences."""
    shifts = 1e-4 * np.eye(3)
    differences = np.stack([distance(points + s) - distance(points - s) for s in shifts], axis=-1)
    return np.asarray(differences / np.linalg.norm(differences, axis=-1, keepdims=True))
