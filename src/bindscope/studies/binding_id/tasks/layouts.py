"""Where things may stand in an image: its slots, the region that stands for each, and its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.sprite_palette import REGIONS, SIZE_PX

LayoutName = Literal["pair", "level", "grid", "sprites"]
COMPASS = ("northwest", "north", "northeast", "west", "centre", "east", "southwest", "south",
           "southeast")  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """The slots of a square image of `size_px`.

    Regions are those of slots in pixels: left, top, right and bottom, both exclusive; a thing lies
    within its slot's region, whatever it is. `places` are words that fit into "the ... object".
    `sprites`: small images for toys, on white, where things have room to move by a pixel.
    """

    size_px: int
    regions: tuple[tuple[int, int, int, int], ...]
    places: tuple[str, ...]
    sprites: bool = False

    @property
    def room(self) -> tuple[int, int]:
        """Width and height in pixels that things have in every slot: the smallest region's."""
        sides = [(right - left, bottom - top) for left, top, right, bottom in self.regions]
        width, height = (min(side) for side in zip(*sides, strict=True))
        return width, height

    def boxes(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the regions of slots, int64 (...) -> (..., 4)."""
        return np.array(self.regions, np.int64)[slot]


def _grid(cell: int, side: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return the middles, `side` wide, of a grid of 3 x 3 cells."""
    low = [i * cell + (cell - side) // 2 for i in range(3)]
    return tuple((x, y, x + side, y + side) for y in low for x in low)


LAYOUTS: dict[LayoutName, Layout] = {
    "pair": Layout(384, ((85, 42, 149, 107), (280, 84, 346, 152)), ("left", "right")),
    "level": Layout(384, ((85, 56, 151, 122), (280, 56, 346, 122)), ("left", "right")),
    "grid": Layout(384, _grid(128, 66), COMPASS),
    "sprites": Layout(SIZE_PX, REGIONS, COMPASS, sprites=True),
}
"""`pair` has the boxes of arXiv 2505.22200's released images (union over all of them, its last
pixels included); in `level` both things stand equally high; `grid` is for more than two things;
`sprites` are the images of the toys."""
