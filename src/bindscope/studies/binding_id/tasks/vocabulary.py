"""The words of the two splits; shapes and colours are those of sprites."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase
from typing import Literal

from bindscope.scenes.sprite_palette import COLOURS, SHAPES
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS, LayoutName
from bindscope.studies.binding_id.tasks.task import Words

SplitName = Literal["test", "estimation"]
ITEMS: dict[SplitName, tuple[str, ...]] = {
    "test": tuple(ascii_uppercase),
    "estimation": tuple(ascii_lowercase),
}
MATERIALS = ("rubber", "metal")
SIZES = ("large", "small")


def words_of(split: SplitName, layout: LayoutName) -> Words:
    """Return the words of a split.

    Shapes, colours and items differ between splits. Places, materials and sizes, of which there
    are two, are the same in both.
    """
    places = LAYOUTS[layout].places
    return Words(SHAPES[split], COLOURS[split], ITEMS[split], places, MATERIALS, SIZES)
