"""Colored shapes as the binding problem paper's code draws them, with Pillow.

Pillow includes both ends of a range, so a shape is a pixel wider than its box, and of two boxes
that touch the later object covers the edge of the earlier one. Polygons are regular: their corners
are on the circle in the box. Source: arXiv 2606.03976 and its released code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import cos, pi, sin

import numpy as np
from PIL import Image
from PIL.ImageDraw import Draw, ImageDraw

from bindscope.core.array_types import UInt8
from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES

Box = tuple[int, int, int, int]

STAR_INNER = 0.45  # radius of a star's inner points over that of its outer points


def _polygon(n_points: int, inner: float, draw: ImageDraw, box: Box, fill: int) -> None:
    """Draw corners at equal angles, the first one on top, every other at `inner` of the radius."""
    x, y, radius = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, (box[2] - box[0]) / 2
    radii = [radius * (inner if i % 2 else 1.0) for i in range(n_points)]
    angles = [2.0 * pi * i / n_points - pi / 2.0 for i in range(n_points)]
    corners = [(x + r * cos(a), y + r * sin(a)) for r, a in zip(radii, angles, strict=True)]
    draw.polygon(corners, fill=fill)


def _diamond(draw: ImageDraw, box: Box, fill: int) -> None:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    draw.polygon([(x, box[1]), (box[2], y), (x, box[3]), (box[0], y)], fill=fill)


def _cross(draw: ImageDraw, box: Box, fill: int) -> None:
    """Draw two bars, a quarter of the box wide and at least 2 pixels."""
    bar = max(2, (box[2] - box[0]) // 4)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    draw.rectangle([int(x - bar / 2), box[1], int(x + bar / 2), box[3]], fill=fill)
    draw.rectangle([box[0], int(y - bar / 2), box[2], int(y + bar / 2)], fill=fill)


_DRAW: Mapping[str, Callable[[ImageDraw, Box, int], None]] = {
    "circle": ImageDraw.ellipse,
    "square": ImageDraw.rectangle,
    "triangle": partial(_polygon, 3, 1.0),
    "diamond": _diamond,
    "pentagon": partial(_polygon, 5, 1.0),
    "hexagon": partial(_polygon, 6, 1.0),
    "cross": _cross,
    "star": partial(_polygon, 10, STAR_INNER),
}


def draw_scene(
    size_px: int, boxes: Sequence[Box], cells: Sequence[int], n_shapes: int
) -> tuple[UInt8, UInt8]:
    """Draw the objects of a scene, one over the other.

    Parameters
    ----------
    size_px
        Side of the image.
    boxes
        Left, top, right and bottom edge of each object's box, pixels.
    cells
        Object-code index of each object, color times `n_shapes` plus shape.

    Returns
    -------
    image, mask
        uint8 (size_px, size_px, 3) and uint8 (size_px, size_px): 0 the background, j the j-th
        object.
    """
    mask, palette = Image.new("L", (size_px, size_px)), list(COLORS.values())
    paint = [(BACKGROUND,) * 3]
    for number, (box, cell) in enumerate(zip(boxes, cells, strict=True), start=1):
        color, shape = divmod(cell, n_shapes)
        _DRAW[SHAPES[shape]](Draw(mask), box, number)
        paint.append(palette[color])
    numbers = np.asarray(mask)
    return np.array(paint, np.uint8)[numbers], numbers
