"""What things and stuff look like: stamps, textures, colors.

A stamp is the outline of a thing in the middle of a square canvas, the same for all. A texture is a
bit per pixel of that canvas, so that two things of one look are the same pixel by pixel: where it
is 1 the color is darker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bindscope.config.clutter import ClutterRenderer
from bindscope.core.array_types import Bits, Indices
from bindscope.scenes.shapes import outlines

TEXTURES = ("plain", "stripes", "dots", "checks")
DARKER = 0.45  # a texture's dark parts over the object's color
OVERHANG = 4  # pixels that a bar sticks out on both sides of what it hides

# Stuff: pattern, and the colors of its bits 0 and 1. Paler than the palette's objects.
STUFF: tuple[tuple[str, tuple[int, int, int], tuple[int, int, int]], ...] = (
    ("rows", (196, 214, 186), (166, 190, 156)),
    ("bricks", (222, 196, 178), (240, 224, 212)),
    ("columns", (190, 206, 228), (206, 220, 238)),
    ("grains", (226, 214, 184), (196, 182, 150)),
    ("weave", (206, 192, 214), (188, 172, 198)),
    ("waves", (182, 208, 208), (206, 226, 226)),
)
UNLABELLED = ("columns", (232, 232, 232), (240, 240, 240))


def sizes_of(config: ClutterRenderer) -> tuple[int, ...]:
    """Return the sides of all boxes that occur; that of small objects is the last one."""
    return (*config.object_px, config.small_px) if config.small else config.object_px


def texture(name: str, side: int) -> Bits:
    """Draw a texture on a canvas of `side` pixels; uint8 (side, side) of 0 and 1."""
    y, x = np.indices((side, side))
    bits: NDArray[np.bool_] = {
        "plain": np.zeros((side, side), bool),
        "stripes": y % 6 < 3,
        "dots": (y % 6 < 3) & (x % 6 < 3),
        "checks": y // 4 % 2 == x // 4 % 2,
    }[name]
    return bits.astype(np.uint8)


@cache
def texture_pairs(side: int) -> Bits:
    """Return textures of the upper and the lower half of a thing, uint8 (16, side, side), 0 or 1.

    Number ``4 u + l``: the upper half has texture u of `TEXTURES`, the lower texture l.
    """
    drawn = np.stack([texture(name, side) for name in TEXTURES])
    pairs = np.repeat(drawn, len(TEXTURES), axis=0)
    pairs[:, side // 2 :] = np.tile(drawn, (len(TEXTURES), 1, 1))[:, side // 2 :]
    pairs.flags.writeable = False
    return pairs


@cache
def patterns(side: int) -> Bits:
    """Return the patterns of `STUFF` over a whole image, uint8 (6, side, side) of 0 and 1."""
    drawn = np.stack([_pattern(name, side) for name, _, _ in STUFF]).astype(np.uint8)
    drawn.flags.writeable = False
    return drawn


def unlabelled_pattern(side: int) -> Bits:
    """Return the pattern of what has no label, uint8 (side, side) of 0 and 1."""
    return _pattern(UNLABELLED[0], side).astype(np.uint8)


def _pattern(name: str, side: int) -> NDArray[np.bool_]:
    y, x = np.indices((side, side))
    return np.asarray(
        {
            "rows": y % 5 < 1,
            "columns": x % 8 < 2,
            "bricks": (y % 6 == 0) | ((x + 6 * (y // 6 % 2)) % 12 == 0),
            "grains": (7 * x + 3 * y + x * y // 3) % 11 == 0,
            "weave": (x + y) % 6 < 2,
            "waves": (y + np.abs(x % 12 - 6) // 2) % 7 < 2,
        }[name]
    )


@dataclass(frozen=True, eq=False)
class Stamps:
    """Outlines of all things that a dataset can show, on canvases of one side.

    Masks are bool (N, side, side): first shapes by size, number ``size * n_shapes + shape``; then
    bars by the size that they hide, ``n_sizes * n_shapes + 2 * size``, lying, and + 1, standing.
    Boxes, int (N, 4), are x0 y0 x1 y1 on the canvas; of a shape its nominal square.
    """

    masks: NDArray[np.bool_]
    boxes: Indices
    n_shapes: int
    n_sizes: int

    @property
    def side(self) -> int:
        """Side of the canvas."""
        return int(self.masks.shape[1])

    @property
    def first_bar(self) -> int:
        """Number of the first bar."""
        return self.n_shapes * self.n_sizes


@cache
def stamps(sizes: tuple[int, ...], n_shapes: int, bar_px: int) -> Stamps:
    """Draw outlines of shapes in several sizes, and of bars that hide their middles."""
    side = max(sizes) + 2 * OVERHANG
    masks, boxes = [], []
    for size in sizes:
        corner = (side - size) // 2
        inside = slice(corner, corner + size)
        for shape in outlines(size, "released")[:n_shapes]:
            mask = np.zeros((side, side), bool)
            mask[inside, inside] = shape
            masks.append(mask)
            boxes.append((corner, corner, corner + size, corner + size))
    for size in sizes:
        corner, across = (side - size) // 2 - OVERHANG, (side - bar_px) // 2
        x0, y0, x1, y1 = corner, across, corner + size + 2 * OVERHANG, across + bar_px
        for box in ((x0, y0, x1, y1), (y0, x0, y1, x1)):
            mask = np.zeros((side, side), bool)
            mask[box[1] : box[3], box[0] : box[2]] = True
            masks.append(mask)
            boxes.append(box)
    return Stamps(np.stack(masks), np.array(boxes, np.intp), n_shapes, len(sizes))


@cache
def reaches(drawn: Stamps) -> Indices:
    """Say how far apart canvases of two stamps are when the stamps touch side by side.

    First along x: stamp j, with its canvas this many pixels right of stamp i's and at the same
    height, has a pixel beside one of i's and none in common with it; then along y, j below.
    """
    return np.stack([_reach(drawn.masks), _reach(drawn.masks.transpose(0, 2, 1))])


def _reach(masks: NDArray[np.bool_]) -> Indices:
    side = masks.shape[1]
    column = np.arange(side)
    far = 2 * side
    last = np.where(masks, column, -far).max(axis=2)  # of each row
    first = np.where(masks, column, far).min(axis=2)
    reach: Indices = (last[:, None] - first[None]).max(axis=2) + 1
    return reach
