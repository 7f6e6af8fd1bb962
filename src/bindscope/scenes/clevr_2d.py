"""CLEVR-2D: one to three outlined flat shapes in a row, at places that never change.

Geometry and palette were measured in the published preview of these scenes (arXiv 2605.31503) at
224 px, in pixels from the centre of a slot. Squares and their outlines agree with it pixel by
pixel, so do circles; triangles, whose slanted edges were drawn there by another rule, in 96 % of
their pixels. Nothing is smoothed.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.slots import slots_of
from bindscope.config.codes import SceneDistribution
from bindscope.config.slots import Clevr2dRenderer
from bindscope.core.array_types import Doubles, UInt8
from bindscope.core.splits import SplitName
from bindscope.scenes.clevr_2d_palette import BACKGROUND, COLORS, OUTLINE, SHAPES

SIDE = 224  # px of the preview; everything below is in its pixels
MIDDLE = 112  # row of all centres
# Number of slots -> columns of their centres, and size of objects over that in the preview.
ROWS: dict[int, tuple[tuple[int, ...], float]] = {
    1: ((112,), 1.0),
    2: ((70, 154), 1.0),
    3: ((42, 112, 182), 0.75),  # not in the preview: as large as keeps the triangles apart
}
INNER, OUTER = 30, 32  # half the side of a square's fill, and of its outline's outer edge
RADIUS_INNER, RADIUS_OUTER = sqrt(933), sqrt(1050)  # of circles
# Triangles: height of the apex above the centre, of the base below it, and half the widest row.
FILL_TRIANGLE, WHOLE_TRIANGLE = (29.25, 31.0, 40.0), (33.75, 33.0, 37.0)

FILL, EDGE = 1, 2  # of a stamp; 0: outside


def _triangle(x: Doubles, y: Doubles, apex: float, base: float, widest: float) -> NDArray[np.bool_]:
    """Tell which points are in an upright equilateral triangle with cut corners at its base."""
    return (np.abs(x) <= np.minimum((y + apex) / sqrt(3), widest)) & (y <= base)


def _parts(shape: str, x: Doubles, y: Doubles) -> UInt8:
    """Say of points, in the preview's pixels from the centre, what part of a shape they are in."""
    if shape == "square":
        distance = np.maximum(np.abs(x), np.abs(y))
        fill, whole = distance <= INNER, distance <= OUTER
    elif shape == "circle":
        fill, whole = np.hypot(x, y) <= RADIUS_INNER, np.hypot(x, y) <= RADIUS_OUTER
    else:
        fill, whole = _triangle(x, y, *FILL_TRIANGLE), _triangle(x, y, *WHOLE_TRIANGLE)
    return np.where(fill, FILL, np.where(whole, EDGE, 0)).astype(np.uint8)


@cache
def stamps(size_px: int, n_slots: int) -> UInt8:
    """Draw every shape in each of 1, 2 or 3 slots of a square image.

    uint8 (n_slots, 3, size_px, size_px), shapes in the order of `SHAPES`: 0 outside, `FILL`,
    `EDGE`; read-only. A pixel is of the part that its centre is in.
    """
    centres, scale = ROWS[n_slots]
    # At 224 px the centre of pixel i lies at i, as the preview was measured.
    at = (np.arange(size_px) + 0.5) * SIDE / size_px - 0.5
    y, x = np.meshgrid((at - MIDDLE) / scale, at, indexing="ij")
    drawn = np.stack(
        [[_parts(shape, (x - centre) / scale, y) for shape in SHAPES] for centre in centres]
    )
    drawn.flags.writeable = False
    return drawn


def render(
    dataset: SceneDistribution, split: SplitName, start: int, objects: UInt8
) -> dict[str, NDArray[np.generic]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`.

    Object j stands in slot j: `masks` has j + 1 where it is, outline included, `cells` and `boxes`
    (tight) have -1 where a slot is empty.
    """
    config, n_slots = dataset.render, dataset.slots
    assert isinstance(config, Clevr2dRenderer)
    assert n_slots is not None
    slots = slots_of(dataset, split, start, objects)
    n, size, n_shapes = len(slots), config.size_px, dataset.space.groups[1].size
    drawn, palette = stamps(size, n_slots), np.array(list(COLORS.values()), np.uint8)
    images = np.full((n, size, size, 3), BACKGROUND, np.uint8)
    masks = np.zeros((n, size, size), np.uint8)
    boxes = np.full((n, n_slots, 4), -1, np.int16)
    for slot in range(n_slots):
        for cell in np.unique(slots[:, slot]).tolist():
            if cell < 0:
                continue
            scenes = np.flatnonzero(slots[:, slot] == cell)
            color, shape = divmod(cell, n_shapes)
            stamp = drawn[slot, shape]
            rows, columns = np.nonzero(stamp)
            ink = np.where(stamp[rows, columns, None] == FILL, palette[color], OUTLINE)
            images[scenes[:, None], rows, columns] = ink
            masks[scenes[:, None], rows, columns] = slot + 1
            boxes[scenes, slot] = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    return {"images": images, "masks": masks, "boxes": boxes, "cells": slots}
