"""Colored shapes on white: the ColorShape scenes of arXiv 2606.03976.

All shapes have equal areas unless others are configured, whose areas differ: there the number of
pixels of a color names its shape. Edges are hard: smoothed ones would have as many pixels as the
perimeter is long, which names the shape as well.

An object of color c and shape s is a stamp that is drawn once and copied into all scenes. Because
boxes never overlap, a stamp is copied whole, background included. The paper's own shapes
(`area: pillow`) are wider than their boxes and are drawn one over the other (`pillow_shapes`).
"""

from __future__ import annotations

from functools import cache
from math import cos, pi, sin

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.config.codes import Area, SceneDistribution, ShapesRenderer
from bindscope.core.array_types import Doubles, UInt8
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SplitName
from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES
from bindscope.scenes.pillow_shapes import STAR_INNER, draw_scene
from bindscope.scenes.placement import Canvas, Int16, RandomWords, place

CROSS_BAR = 0.25  # width of a cross's bars over its size
EDGE = 1e-9  # a pixel center this close to an edge (in units of the size) is inside


def _ring(n: int, inner: float = 1.0) -> Doubles:
    """Return n points at equal angles around (1/2, 1/2), the first one on top, (n, 2).

    Radii are 1/2 and, at every other point, ``inner / 2``.
    """
    angles = [2 * pi * i / n for i in range(n)]
    radii = [0.5 * (inner if i % 2 else 1.0) for i in range(n)]
    return np.array(
        [(0.5 + r * sin(a), 0.5 - r * cos(a)) for r, a in zip(radii, angles, strict=True)]
    )


_POLYGONS: dict[str, Doubles] = {
    "square": np.array([(0, 0), (1, 0), (1, 1), (0, 1)], float),
    "triangle": np.array([(0.5, 0), (1, 1), (0, 1)], float),
    "diamond": _ring(4),
    "pentagon": _ring(5),
    "hexagon": _ring(6),
    "star": _ring(10, STAR_INNER),
}  # corners in a unit box, y downwards; each is star-shaped about (1/2, 1/2)


def _gauge(shape: str, offset: Doubles) -> Doubles:
    """Return the size of a shape whose edge passes through each point, over that of its box.

    Offsets (..., 2) are from the center, in units of the box; at most 1 is inside the shape. All
    shapes are star-shaped about their center, so this is their Minkowski functional.
    """
    x, y = np.abs(np.moveaxis(offset, -1, 0))
    if shape == "circle":
        return np.asarray(2 * np.hypot(x, y))
    if shape == "cross":
        return np.asarray(np.maximum(2 * np.maximum(x, y), 2 * np.minimum(x, y) / CROSS_BAR))
    corners = _POLYGONS[shape] - 0.5
    gauge = np.full(offset.shape[:-1], np.inf)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # Of the two corners of an edge, the weights that add up to the point: both are at least 0
        # in the triangle that the edge spans with the center.
        weights = offset @ np.linalg.inv(np.array([a, b]))
        inside = (weights >= -EDGE).all(axis=-1)
        gauge = np.where(inside, np.minimum(gauge, weights.sum(axis=-1)), gauge)
    return gauge


@cache
def outlines(size_px: int, area: Area) -> NDArray[np.bool_]:
    """Return the pixels of each shape in a box.

    ``"released"``: the pixels whose centers are inside the shape or on its edge. ``"equal"``: the
    same number of pixels for all shapes, those of smallest gauge, as many as the smallest shape has
    in the box. That number is a multiple of 4, plus 1 where the side is odd, so that shapes can
    stay symmetric. It depends on the box alone, so that scenes of few shapes and of many match.

    Returns
    -------
    numpy.ndarray
        Bool (8, size_px, size_px), in the order of `palette.SHAPES`, read-only.
    """
    centers = (np.arange(size_px) + 0.5) / size_px - 0.5
    offset = np.stack(np.meshgrid(centers, centers), axis=-1)
    gauges = np.stack([_gauge(shape, offset) for shape in SHAPES])
    inside = gauges <= 1 + EDGE
    if area == "equal":
        odd = size_px % 2
        n_pixels = (int(inside.sum(axis=(1, 2)).min()) - odd) // 4 * 4 + odd
        inside = np.stack([_smallest(gauge, offset, n_pixels) for gauge in gauges])
    inside.flags.writeable = False
    return inside


def _smallest(gauge: Doubles, offset: Doubles, n_pixels: int) -> NDArray[np.bool_]:
    """Choose the pixels of smallest gauge; among equal ones those near the center, in pairs."""
    x, y = np.moveaxis(offset, -1, 0)
    keys = [x, y, np.abs(x), np.hypot(x, y), gauge]  # the last one sorts first
    order = np.lexsort([np.round(key, 9).ravel() for key in keys])
    chosen = np.zeros(gauge.size, bool)
    chosen[order[:n_pixels]] = True
    return chosen.reshape(gauge.shape)


@cache
def stamps(object_px: int, area: Area, n_colors: int, n_shapes: int) -> tuple[UInt8, UInt8]:
    """Draw every object of a dataset once, with so many of the palette's colors and shapes.

    Colors on the background are uint8 (n_colors * n_shapes, box, box, 3), in order of object-code
    index; masks uint8 (n_shapes, box, box), 1 inside. Both are read-only.
    """
    inside = outlines(object_px, area)[:n_shapes]
    colors = np.array(list(COLORS.values())[:n_colors], np.uint8)
    drawn = np.where(inside[None, ..., None], colors[:, None, None, None], np.uint8(BACKGROUND))
    drawn, masks = drawn.reshape(-1, *drawn.shape[2:]), inside.astype(np.uint8)
    drawn.flags.writeable = masks.flags.writeable = False
    return drawn, masks


def render(
    dataset: SceneDistribution, split: SplitName, start: int, objects: UInt8
) -> dict[str, NDArray[np.generic]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`."""
    config = dataset.render
    assert isinstance(config, ShapesRenderer)
    n_colors, n_shapes = palette_sizes(dataset, config.object_px, config.area)
    box, largest = config.object_px, largest_scene(dataset.space)
    scene, cell = np.nonzero(objects)
    counts = np.bincount(scene, minlength=len(objects))
    rank = np.arange(len(scene)) - np.repeat(np.cumsum(counts) - counts, counts)
    canvas = Canvas(config.size_px, box, config.margin_px, largest, config.gap_px)
    words = RandomWords(dataset.seed, split, start)
    corners = place(config.placement, canvas, words, counts, f"dataset {dataset.name!r}, {split}")
    x, y = corners[scene, rank].astype(np.intp).T

    boxes = np.full((len(objects), largest, 4), -1, np.int16)
    boxes[scene, rank] = np.stack([x, y, x + box, y + box], axis=-1)
    cells = np.full((len(objects), largest), -1, np.int16)
    cells[scene, rank] = cell
    if config.area == "pillow":
        images, masks = _draw_with_pillow(config.size_px, boxes, cells, counts, n_shapes)
        return {"images": images, "masks": masks, "boxes": boxes, "cells": cells}
    drawn, covered = stamps(box, config.area, n_colors, n_shapes)
    images = np.full((len(objects), config.size_px, config.size_px * 3), BACKGROUND, np.uint8)
    _windows(images, box, box * 3)[scene, y, x * 3] = drawn.reshape(-1, box, box * 3)[cell]
    masks = np.zeros((len(objects), config.size_px, config.size_px), np.uint8)
    _windows(masks, box, box)[scene, y, x] = (
        covered[cell % n_shapes] * (rank + 1).astype(np.uint8)[:, None, None]
    )
    shape = (len(objects), config.size_px, config.size_px, 3)
    return {"images": images.reshape(shape), "masks": masks, "boxes": boxes, "cells": cells}


def _draw_with_pillow(
    size_px: int, boxes: Int16, cells: Int16, counts: NDArray[np.intp], n_shapes: int
) -> tuple[UInt8, UInt8]:
    """Draw scenes one by one; see `pillow_shapes`."""
    images = np.empty((len(boxes), size_px, size_px, 3), np.uint8)
    masks = np.empty((len(boxes), size_px, size_px), np.uint8)
    for i, n_objects in enumerate(counts.tolist()):
        corners = [(a, b, c, d) for a, b, c, d in boxes[i, :n_objects].tolist()]
        images[i], masks[i] = draw_scene(size_px, corners, cells[i, :n_objects].tolist(), n_shapes)
    return images, masks


def _windows(canvas: UInt8, height: int, width: int) -> UInt8:
    """View (n, H, W) as all its windows, (n, y, x, height, width), for writing."""
    return sliding_window_view(canvas, (height, width), axis=(1, 2), writeable=True)


def palette_sizes(dataset: SceneDistribution, object_px: int, area: Area) -> tuple[int, int]:
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
    masks = outlines(object_px, "equal" if area == "equal" else "released")[:n_shapes]
    if len(np.unique(masks.reshape(n_shapes, -1), axis=0)) < n_shapes:
        raise ConfigError(
            f"dataset {dataset.name!r}, render.object_px",
            f"{object_px} px are too few to tell the {n_shapes} shapes apart",
            "draw larger objects" + (", or set area: released" if area == "equal" else ""),
        )
    return n_colors, n_shapes
