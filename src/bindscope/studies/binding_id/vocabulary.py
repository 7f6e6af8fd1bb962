"""The words of the two splits, and the colours that they stand for.

Source: the released data of arXiv 2505.22200 (words and measured colours).
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import Literal

from bindscope.studies.binding_id.layouts import LAYOUTS, LayoutName
from bindscope.studies.binding_id.task import Words

SplitName = Literal["test", "estimation"]
SHAPES: dict[SplitName, tuple[str, ...]] = {
    "test": ("cone", "cube", "can", "sphere"),
    "estimation": ("frustum", "prism", "pyramid", "torus"),
}
COLOURS: dict[SplitName, tuple[str, ...]] = {
    "test": ("blue", "cyan", "green", "purple", "red", "yellow"),
    "estimation": ("azure", "brown", "gold", "lime", "orange", "pink"),
}
ITEMS: dict[SplitName, tuple[str, ...]] = {
    "test": tuple(ascii_uppercase),
    "estimation": tuple(ascii_lowercase),
}
MATERIALS = ("rubber", "metal")
SIZES = ("large", "small")

RGB: dict[str, tuple[int, int, int]] = {
    "blue": (9, 78, 202), "cyan": (119, 190, 191), "green": (98, 190, 66),
    "purple": (163, 61, 165), "red": (210, 47, 13), "yellow": (193, 187, 94),
    "azure": (92, 164, 197), "brown": (155, 114, 83), "gold": (196, 180, 90),
    "lime": (140, 160, 11), "orange": (193, 123, 31), "pink": (206, 86, 163),
}  # fmt: skip
"""Median sRGB of the things of each colour in the released images, 0 to 255."""


def words_of(split: SplitName, layout: LayoutName) -> Words:
    """Return the words of a split.

    Shapes, colours and items differ between splits. Places, materials and sizes, of which there
    are two, are the same in both.
    """
    places = LAYOUTS[layout].places
    return Words(SHAPES[split], COLOURS[split], ITEMS[split], places, MATERIALS, SIZES)
