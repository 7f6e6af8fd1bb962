"""The slots of sprites, and their shapes and colors, in two sets that share none.

Source: words and measured colors of the released images of arXiv 2505.22200.
"""

from __future__ import annotations

from typing import Literal

SIDE = 3  # slots of a row
SLOT_PX = 12
SIZE_PX = SIDE * SLOT_PX
REGIONS = tuple(
    (x, y, x + SLOT_PX, y + SLOT_PX)
    for y in range(0, SIZE_PX, SLOT_PX)
    for x in range(0, SIZE_PX, SLOT_PX)
)
"""Left, top, right and bottom of each slot in pixels, in raster order."""

WordSet = Literal["test", "estimation"]
SHAPES: dict[WordSet, tuple[str, ...]] = {
    "test": ("cone", "cube", "can", "sphere"),
    "estimation": ("frustum", "prism", "pyramid", "torus"),
}
COLORS: dict[WordSet, tuple[str, ...]] = {
    "test": ("blue", "cyan", "green", "purple", "red", "yellow"),
    "estimation": ("azure", "brown", "gold", "lime", "orange", "pink"),
}
BODIES = {"can": "cylinder"}  # the word that texts have for it -> the body

RGB: dict[str, tuple[int, int, int]] = {
    "blue": (9, 78, 202),
    "cyan": (119, 190, 191),
    "green": (98, 190, 66),
    "purple": (163, 61, 165),
    "red": (210, 47, 13),
    "yellow": (193, 187, 94),
    "azure": (92, 164, 197),
    "brown": (155, 114, 83),
    "gold": (196, 180, 90),
    "lime": (140, 160, 11),
    "orange": (193, 123, 31),
    "pink": (206, 86, 163),
}
"""Median sRGB of the things of each color in the released images, 0 to 255."""
