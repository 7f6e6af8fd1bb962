"""The raycast backend: NumPy alone, the rays of the labels with shading.

Lambert's law for rubber and ground, Blinn-Phong highlights, hard shadows, an even sky; metal
mirrors the sky, the ground and the other objects once. Units and lamps are those of the path
tracers, so images of all backends are about equally bright. An image is a function of its scene.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import RaycastBackend
from bindscope.core.array_types import Doubles
from bindscope.scenes.solids.bodies import bounding_radius, normal
from bindscope.scenes.solids.description import Light, SolidScene
from bindscope.scenes.solids.rays import dot, nearest, outlines, ray_lengths
from bindscope.scenes.solids.world import GROUND, SKY, reflectance, to_srgb

GLOSS = {"rubber": (0.06, 16.0), "metal": (0.9, 160.0)}  # strength and sharpness of highlights
SLACK = 1e-6  # of a cosine, so that rounding never decides what is in a shadow's cone
LIFT = 1e-4  # above a surface, where a shadow's or a mirrored ray starts


def draw(config: RaycastBackend, scenes: Sequence[SolidScene]) -> Iterator[NDArray[np.uint8]]:
    """Draw scenes of one size; see `bindscope.scenes.solids.render.draw`."""
    return (_image(scene, config.antialias) for scene in scenes)


def _image(scene: SolidScene, antialias: int) -> NDArray[np.uint8]:
    size = scene.size_px * antialias
    mask, depth = nearest(scene, size, list(outlines(scene, size)))
    rays = scene.camera.rays(size).reshape(-1, 3)
    hits = np.isfinite(depth.ravel())
    points = np.array(scene.camera.position) + depth.ravel()[hits, None] * rays[hits]
    light = np.full((size * size, 3), SKY)
    light[hits] = _shade(scene, points, mask.ravel()[hits], rays[hits])
    samples = light.reshape(scene.size_px, antialias, scene.size_px, antialias, 3)
    return to_srgb(samples.mean(axis=(1, 3)))


def _shade(scene: SolidScene, points: Doubles, ids: NDArray[np.uint8], rays: Doubles) -> Doubles:
    """Return the radiance that leaves points on surfaces towards the eye, float64 (N, 3).

    `ids` (N,): 0 = the ground, j = the j-th object; rays (N, 3) are from the eye to the points.
    """
    normals = _normals(scene, points, ids)
    eye = -_unit(rays)
    albedo = _albedo(scene)[ids]
    gloss = np.array([(0.0, 1.0), *(GLOSS[s.material] for s in scene.objects)])[ids]
    metal = np.array([False, *(s.material == "metal" for s in scene.objects)])[ids]
    diffuse = np.where(metal[:, None], 0.0, albedo)
    mirror = np.where(metal[:, None], albedo, 1.0)  # rubber's highlights have the lamps' color
    light = diffuse * _ambient(normals)[:, None]
    for lamp in scene.lights:
        towards, irradiance = _arriving(lamp, points, normals)
        lit = np.flatnonzero(irradiance > 0)
        lit = lit[~_shadowed(scene, points[lit] + LIFT * normals[lit], ids[lit], lamp)]
        half = _unit(towards[lit] + eye[lit])
        facing = np.maximum(dot(half, normals[lit]), 0.0)
        strength, sharpness = gloss[lit].T
        shine = strength * facing**sharpness * (sharpness + 8) / 8
        light[lit] += (diffuse[lit] + mirror[lit] * shine[:, None]) * (
            irradiance[lit, None] / np.pi
        )
    where = np.flatnonzero(metal)
    along = 2 * dot(eye[where], normals[where])[:, None] * normals[where]
    light[where] += albedo[where] * _mirrored(
        scene, points[where] + LIFT * normals[where], along - eye[where], ids[where]
    )
    return light


def _mirrored(
    scene: SolidScene, points: Doubles, directions: Doubles, ids: NDArray[np.uint8]
) -> Doubles:
    """Return what a mirror at points of objects `ids` would show, without further reflections."""
    down = directions[:, 2] < 0
    depth = np.where(down, -points[:, 2] / np.where(down, directions[:, 2], -1.0), np.inf)
    hit = np.zeros(len(points), np.uint8)
    for j, solid in enumerate(scene.objects):
        others = np.flatnonzero(ids != j + 1)
        lengths = ray_lengths(solid, points[others], directions[others])
        nearer = lengths < depth[others]
        depth[others[nearer]] = lengths[nearer]
        hit[others[nearer]] = j + 1
    finite = np.isfinite(depth)
    light = np.full(points.shape, SKY)
    at = points[finite] + depth[finite, None] * directions[finite]
    normals = _normals(scene, at, hit[finite])
    irradiance = np.pi * _ambient(normals)
    for lamp in scene.lights:
        irradiance += np.maximum(_arriving(lamp, at, normals)[1], 0.0)
    light[finite] = _albedo(scene)[hit[finite]] * (irradiance / np.pi)[:, None]
    return light


def _albedo(scene: SolidScene) -> Doubles:
    """Reflectances of the ground and of every object, float64 (1 + m, 3)."""
    return np.array([[GROUND] * 3, *(reflectance(solid.color) for solid in scene.objects)])


def _normals(scene: SolidScene, points: Doubles, ids: NDArray[np.uint8]) -> Doubles:
    normals = np.tile((0.0, 0.0, 1.0), (len(points), 1))
    for j, solid in enumerate(scene.objects):
        hits = np.flatnonzero(ids == j + 1)
        local = (points[hits] - solid.centre) @ solid.body_axes.T
        normals[hits] = normal(solid.shape, solid.radius, local) @ solid.body_axes
    return normals


def _ambient(normals: Doubles) -> Doubles:
    """Radiance of a white surface under the sky and over the ground that it lights, (N,)."""
    up = (1 + normals[:, 2]) / 2
    return np.asarray(SKY * (up + GROUND * (1 - up)))


def _arriving(lamp: Light, points: Doubles, normals: Doubles) -> tuple[Doubles, Doubles]:
    """Return unit vectors to a lamp, (N, 3), and its irradiance, (N,); not positive: unlit."""
    position = np.array(lamp.position)
    offset = position - points
    squared = dot(offset, offset)
    towards = offset / np.sqrt(squared)[:, None]
    leaving = np.maximum(towards @ (position / np.linalg.norm(position)), 0.0)
    arriving = dot(towards, normals)
    return towards, lamp.watts / np.pi * leaving * arriving / squared


def _shadowed(
    scene: SolidScene, points: Doubles, ids: NDArray[np.uint8], lamp: Light
) -> NDArray[np.bool_]:
    """Tell which points another object hides from a lamp's centre; solids are convex."""
    hidden = np.zeros(len(points), bool)
    offset = np.array(lamp.position) - points
    towards = _unit(offset)
    for j, solid in enumerate(scene.objects):
        # Seen from the lamp, what a ball hides lies within a cone; few points do.
        axis = np.array(lamp.position) - solid.centre
        away = np.sqrt(dot(axis, axis))
        sine = np.minimum(1.0, bounding_radius(solid.shape, solid.radius) / away)
        cone = towards @ (axis / away) > np.sqrt(1.0 - sine * sine) - SLACK
        rest = np.flatnonzero(cone & ~hidden & (ids != j + 1))
        hidden[rest] = ray_lengths(solid, points[rest], offset[rest]) < 1
    return hidden


def _unit(vectors: Doubles) -> Doubles:
    return np.asarray(vectors / np.sqrt(dot(vectors, vectors))[:, None])
