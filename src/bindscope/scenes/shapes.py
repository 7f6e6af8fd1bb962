"""Colored shapes on white: the ColorShape scenes of arXiv 2606.03976.

An object of color c and shape s is a stamp that is drawn once and copied into all scenes. Because
boxes never overlap, a stamp is copied whole, background included.
"""

from __future__ import annotations

from functools import cache
from math import cos, pi, sin

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.config.codes import SceneDistribution, ShapesRenderer
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SplitName
from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES
from bindscope.scenes.placement import Canvas, RandomWords, place

STAR_INNER = 0.45  # radius of a star's inner points over that of its outer points
CROSS_BAR = 0.25  # width of a cross's bars over its size
EDGE = 1e-9  # a pixel centre this close to an edge (in units of the size) is inside

UInt8 = NDArray[np.uint8]
Floats = NDArray[np.float64]


def _ring(n: int, inner: float = 1.0) -> Floats:
    """Return n points at equal angles around (1/2, 1/2), the first one on top, (n, 2).

    Radii are 1/2 and, at every other point, ``inner / 2``.
    """
    angles = [2 * pi * i / n for i in range(n)]
    radii = [0.5 * (inner if i % 2 else 1.0) for i in range(n)]
    return np.array(
        [(0.5 + r * sin(a), 0.5 - r * cos(a)) for r, a in zip(radii, angles, strict=True)]
    )


_POLYGONS: dict[str, Floats] = {
    "square": np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float),
    "triangle": np.array([(0.5, 0), (1, 1), (0, 1)], float),
    "diamond": _ring(4),
    "pentagon": _ring(5),
    "hexagon": _ring(6),
    "star": _ring(10, STAR_INNER),
}  # corners in a unit box, y downwards; each is star-shaped about (1/2, 1/2)


def _inside(shape: str, points: Floats) -> NDArray[np.bool_]:
    """Tell which points (..., 2) of the unit box are inside a shape, edges included."""
    offset = points - 0.5
    if shape == "circle":
        return np.asarray((offset**2).sum(axis=-1) <= (0.5 + EDGE) ** 2)
    if shape == "cross":
        return np.asarray((np.abs(offset) <= CROSS_BAR / 2 + EDGE).any(axis=-1))
    corners = _POLYGONS[shape] - 0.5
    inside = np.zeros(points.shape[:-1], bool)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        triangle = np.array([a, b, (0.0, 0.0)])
        edges = np.roll(triangle, -1, axis=0) - triangle
        sides = [
            e[0] * (offset[..., 1] - p[1]) - e[1] * (offset[..., 0] - p[0])
            for p, e in zip(triangle, edges, strict=True)
        ]
        inside |= np.min(sides, axis=0) >= -EDGE
    return inside


@cache
def coverage(size_px: int, antialias: int = 1) -> Floats:
    """Return how much of each pixel each shape covers, float64 (8, size_px, size_px).

    A pixel is sampled at the centres of ``antialias^2`` equal squares; shapes are in the order of
    `palette.SHAPES`; read-only.
    """
    fine = size_px * antialias
    centres = (np.arange(fine) + 0.5) / fine
    points = np.stack(np.meshgrid(centres, centres), axis=-1)
    samples = np.stack([_inside(shape, points) for shape in SHAPES])
    blocks = samples.reshape(len(SHAPES), size_px, antialias, size_px, antialias)
    covered: Floats = blocks.mean(axis=(2, 4))
    covered.flags.writeable = False
    return covered


@cache
def stamps(object_px: int, antialias: int, n_colors: int, n_shapes: int) -> tuple[UInt8, UInt8]:
    """Draw every object of a dataset once, with so many of the palette's colors and shapes.

    Colors on the background are uint8 (n_colors * n_shapes, box, box, 3), in order of object-code
    index; masks uint8 (n_shapes, box, box), 1 where at least half of a pixel is covered. Both are
    read-only.
    """
    covered = coverage(object_px, antialias)[:n_shapes]
    colors = np.array(list(COLORS.values())[:n_colors], float)
    ink = covered[None, ..., None] * (colors[:, None, None, None] - BACKGROUND)
    drawn = np.rint(BACKGROUND + ink).astype(np.uint8)
    drawn, masks = drawn.reshape(-1, *drawn.shape[2:]), (covered >= 0.5).astype(np.uint8)
    drawn.flags.writeable = masks.flags.writeable = False
    return drawn, masks


def render(
    dataset: SceneDistribution, split: SplitName, start: int, objects: UInt8
) -> dict[str, NDArray[np.generic]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`."""
    config = dataset.render
    assert isinstance(config, ShapesRenderer)
    n_colors, n_shapes = palette_sizes(dataset, config.object_px, config.antialias)
    box, largest = config.object_px, largest_scene(dataset.space)
    scene, cell = np.nonzero(objects)
    counts = np.bincount(scene, minlength=len(objects))
    rank = np.arange(len(scene)) - np.repeat(np.cumsum(counts) - counts, counts)
    canvas = Canvas(config.size_px, box, config.margin_px, largest)
    words = RandomWords(dataset.seed, split, start)
    corners = place(config.placement, canvas, words, counts, f"dataset {dataset.name!r}, {split}")
    x, y = corners[scene, rank].astype(np.intp).T

    drawn, covered = stamps(box, config.antialias, n_colors, n_shapes)
    images = np.full((len(objects), config.size_px, config.size_px * 3), BACKGROUND, np.uint8)
    _windows(images, box, box * 3)[scene, y, x * 3] = drawn.reshape(-1, box, box * 3)[cell]
    masks = np.zeros((len(objects), config.size_px, config.size_px), np.uint8)
    _windows(masks, box, box)[scene, y, x] = (
        covered[cell % n_shapes] * (rank + 1).astype(np.uint8)[:, None, None]
    )
    boxes = np.full((len(objects), largest, 4), -1, np.int16)
    boxes[scene, rank] = np.stack([x, y, x + box, y + box], axis=-1)
    cells = np.full((len(objects), largest), -1, np.int16)
    cells[scene, rank] = cell
    shape = (len(objects), config.size_px, config.size_px, 3)
    return {"images": images.reshape(shape), "masks": masks, "boxes": boxes, "cells": cells}


def _windows(canvas: UInt8, height: int, width: int) -> UInt8:
    """View (n, H, W) as all its windows, (n, y, x, height, width), for writing."""
    return sliding_window_view(canvas, (height, width), axis=(1, 2), writeable=True)


def palette_sizes(
    dataset: SceneDistribution, object_px: int, antialias: int = 1
) -> tuple[int, int]:
    """Return the number of colors and of shapes of a dataset's two groups, in this order.

    ConfigError if the palette has fewer, or two shapes look alike in the smallest object's box.
    """
    n_colors, n_shapes = (group.size for group in dataset.space.groups)
    assert dataset.render is not None
    for group, known in zip(dataset.space.groups, (tuple(COLORS), SHAPES), strict=True):
        if group.size > len(known):
            raise ConfigError(
                f"dataset {dataset.name!r}, space.groups, {group.name!r}",
                f"has {group.size} values, and the {dataset.render.kind} renderer knows "
                f"{len(known)} ({', '.join(known)})",
                f"lower the group's size to {len(known)} or less",
            )
    masks = coverage(object_px, antialias)[:n_shapes] >= 0.5
    if len(np.unique(masks.reshape(n_shapes, -1), axis=0)) < n_shapes:
        raise ConfigError(
            f"dataset {dataset.name!r}, render.object_px",
            f"{object_px} px are too few to tell the {n_shapes} shapes apart",
            "draw larger objects",
        )
    return n_colors, n_shapes
