"""One solid alone in parallel projection: what its pixels show, apart from its color.

In parallel projection a solid looks the same wherever it stands, so one portrait serves every place
in an image, and an image is put together in milliseconds. Light: a sun from the
left, the front and above, and an even sky.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from bindscope.config.solids import Material
from bindscope.core.array_types import Doubles
from bindscope.scenes.solids.bodies import normal
from bindscope.scenes.solids.description import Solid
from bindscope.scenes.solids.rays import dot, ray_lengths

PITCH = 32.0  # degrees that the eye looks down
TURN = {"cube": 28.0, "prism": 14.0, "pyramid": 28.0, "torus": 25.0}  # degrees about the vertical
SUN = (-0.45, -0.55, 1.0)  # right, back and up, of any length
SKY = 0.55  # light of the sky, over that of the sun
SHADE = 0.5  # share of the ground's light that a shadow takes
FAR = 10.0  # from the eye's plane to the solid
COARSE = 96  # rays along a side that find how large a solid looks


@dataclass(frozen=True, eq=False)
class Portrait:
    """What a solid does to the light of the pixels around it; light is linear, 1 = white.

    A pixel is ``(1 - covered) * (1 - shadow) * ground + body * color + shine``, each float64 (h,
    w), in the pixels of its region and `margin` more on every side. Where `body`, the light of a
    solid of reflectance 1, is covered whole its median is 1, so the median of a solid's pixels is
    its color whatever its shape and material; `shine` has the lamp's color whatever the solid's.
    """

    covered: Doubles
    body: Doubles
    shine: Doubles
    shadow: Doubles
    margin: int


@cache
def portrait(
    shape: str,
    material: Material,
    width: int,
    height: int,
    margin: int,
    samples: int,
) -> Portrait:
    """Draw a solid as large as its region allows.

    It is in the middle of its region in pixels and touches two of its sides; `margin` pixels
    around are drawn too, for the shadow. rubber is dull, with a faint highlight, metal mirrors sky
    and ground.
    """
    towards = np.array(SUN) / np.linalg.norm(SUN)
    solid = Solid(shape, "", material, "", 0.0, 0.0, TURN.get(shape, 0.0), 0)
    left, top, right, bottom = _extent(shape)
    unit = max((right - left) / width, (bottom - top) / height)  # scene units a pixel
    centre, size = ((top + bottom) / 2, (left + right) / 2), (height, width)

    def lines(samples: int) -> Iterator[Doubles]:
        for at, n in zip(centre, size, strict=True):
            steps = (np.arange((n + 2 * margin) * samples) + 0.5) / samples
            yield at + unit * (steps - n / 2 - margin)

    blocks = (height + 2 * margin, samples, width + 2 * margin, samples)
    ray_values = _cast(_unit_solid(solid), towards, *lines(samples))
    covered, body, shine = (part.reshape(blocks).mean(axis=(1, 3)) for part in ray_values)
    shadow = _shadow(_unit_solid(solid), towards, *lines(1))
    median = np.median((body / np.maximum(covered, 1e-9))[covered > 1 - 1e-9])
    return Portrait(covered, body / median, shine, shadow, margin)


class _UnitSolid(Solid):
    """A solid of radius 1 that stands on the ground."""

    @property
    def radius(self) -> float:
        return 1.0


def _unit_solid(solid: Solid) -> Solid:
    return _UnitSolid(**vars(solid))


def _eye() -> tuple[Doubles, Doubles]:
    """Return what is right and down in the image, (2, 3), and forward, (3,)."""
    pitch = np.radians(PITCH)
    down = (0.0, -np.sin(pitch), -np.cos(pitch))
    return np.array([(1.0, 0.0, 0.0), down]), np.array([0.0, np.cos(pitch), -np.sin(pitch)])


@cache
def _extent(shape: str) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a solid of radius 1 in the image, in scene units."""
    solid = _unit_solid(Solid(shape, "", "", "", 0.0, 0.0, TURN.get(shape, 0.0), 0))
    line = np.linspace(-2.6, 2.6, 4 * COARSE)
    rays, forward = _rays(line, line)
    hit = np.isfinite(ray_lengths(solid, rays, np.broadcast_to(forward, rays.shape)))
    rows, columns = np.nonzero(hit.reshape(len(line), len(line)))
    half = (line[1] - line[0]) / 2
    return (
        float(line[columns.min()] - half),
        float(line[rows.min()] - half),
        float(line[columns.max()] + half),
        float(line[rows.max()] + half),
    )


def _rays(rows: Doubles, columns: Doubles) -> tuple[Doubles, Doubles]:
    """Return the starts of parallel rays, (rows * columns, 3), and their direction."""
    (right, down), forward = _eye()
    starts = columns[None, :, None] * right + rows[:, None, None] * down - FAR * forward
    return starts.reshape(-1, 3), forward


def _cast(
    solid: Solid, sun: Doubles, rows: Doubles, columns: Doubles
) -> tuple[Doubles, Doubles, Doubles]:
    """Return whether rays hit the solid, and its light, tinted and not, (rows, columns) each."""
    starts, forward = _rays(rows, columns)
    lengths = ray_lengths(solid, starts, np.broadcast_to(forward, starts.shape))
    hit = np.isfinite(lengths)
    points = starts[hit] + lengths[hit, None] * forward
    local = (points - solid.centre) @ solid.body_axes.T
    normals = normal(solid.shape, solid.radius, local) @ solid.body_axes
    ray_values = np.zeros((3, len(starts)))
    ray_values[0, hit] = 1.0
    ray_values[1:, hit] = _reflected(solid.material, sun, normals, forward)
    covered, body, shine = ray_values.reshape(3, len(rows), len(columns))
    return covered, body, shine


def _shadow(solid: Solid, sun: Doubles, rows: Doubles, columns: Doubles) -> Doubles:
    """Return the share of light that the ground loses, a blurred ray per pixel."""
    starts, forward = _rays(rows, columns)
    ground = starts - starts[:, 2:] / forward[2] * forward
    blocked = np.isfinite(ray_lengths(solid, ground, np.broadcast_to(sun, ground.shape)))
    hard = np.pad(blocked.reshape(len(rows), len(columns)).astype(np.float64), 1)
    spread = hard[:-2] + 2 * hard[1:-1] + hard[2:]
    return SHADE / 16 * (spread[:, :-2] + 2 * spread[:, 1:-1] + spread[:, 2:])


def _reflected(
    material: str, sun: Doubles, normals: Doubles, forward: Doubles
) -> tuple[Doubles, Doubles]:
    """Return the light that leaves a surface: what its color tints, and what it does not."""
    lit = np.maximum(normals @ sun, 0.0)
    sky = SKY * (0.6 + 0.4 * normals[:, 2])
    half = (sun - forward) / np.linalg.norm(sun - forward)
    facing = np.maximum(normals @ half, 0.0)
    if material == "metal":
        turned = 2 * dot(normals, np.broadcast_to(forward, normals.shape))[:, None] * normals
        mirrored = forward - turned
        above = np.clip(0.5 + 2.5 * mirrored[:, 2], 0.0, 1.0)  # the horizon is a soft edge
        windows = np.maximum(np.sin(5 * np.arctan2(mirrored[:, 1], mirrored[:, 0])), 0.0) * above
        rim = (1 - np.abs(normals @ forward)) ** 3
        return 0.2 + 0.4 * above + 0.25 * lit, 1.2 * facing**90 + 0.18 * windows + 0.25 * rim
    return lit + sky, 0.12 * facing**18
