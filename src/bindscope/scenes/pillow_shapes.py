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
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bindscope.scenes.palette import BACKGROUND, COLORS, SHAPES

Box = tuple[int, int, int, int]
Fill = int | tuple[int, int, int]
UInt8 = NDArray[np.uint8]

STAR_INNER = 0.45  # radius of a star's inner points over that of its outer points


def _polygon(n_points: int, inner: float, draw: ImageDraw.ImageDraw, box: Box, fill: Fill) -> None:
    """Draw corners at equal angles, the first one on top, every other at `inner` of the radius."""
    x, y, radius = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, (box[2] - box[0]) / 2
    radii = [radius * (inner if i % 2 else 1.0) for i in range(n_points)]
    angles = [2.0 * pi * i / n_points - pi / 2.0 for i in range(n_points)]
    corners = [(x + r * cos(a), y + r * sin(a)) for r, a in zip(radii, angles, strict=True)]
    draw.polygon(corners, fill=fill)


def _diamond(draw: ImageDraw.ImageDraw, box: Box, fill: Fill) -> None:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    draw.polygon([(x, box[1]), (box[2], y), (x, box[3]), (box[0], y)], fill=fill)


def _cross(draw: ImageDraw.ImageDraw, box: Box, fill: Fill) -> None:
    """Draw two bars, a quarter of the box wide and at least 2 pixels."""
    bar = max(2, (box[2] - box[0]) // 4)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    draw.rectangle([int(x - bar / 2), box[1], int(x + bar / 2), box[3]], fill=fill)
    draw.rectangle([box[0], int(y - bar / 2), box[2], int(y + bar / 2)], fill=fill)


_DRAW: Mapping[str, Callable[[ImageDraw.ImageDraw, Box, Fill], None]] = {
    "circle": lambda draw, box, fill: draw.ellipse(box, fill=fill),
    "square": lambda draw, box, fill: draw.rectangle(box, fill=fill),
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
    image = Image.new("RGB", (size_px, size_px), (BACKGROUND,) * 3)
    mask = Image.new("L", (size_px, size_px))
    on_image, on_mask = ImageDraw.Draw(image), ImageDraw.Draw(mask)
    colors = list(COLORS.values())
    for number, (box, cell) in enumerate(zip(boxes, cells, strict=True), start=1):
        color, shape = divmod(cell, n_shapes)
        _DRAW[SHAPES[shape]](on_image, box, colors[color])
        _DRAW[SHAPES[shape]](on_mask, box, number)
    return np.asarray(image), np.asarray(mask)
