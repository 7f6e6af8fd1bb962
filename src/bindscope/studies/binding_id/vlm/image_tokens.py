"""Which tokens of a prompt show which part of the image (NumPy only).

An image becomes a *block* of tokens. Its *views* are rasters of cells: the whole image once, and
in some models the same image again at a finer or equal resolution. A row of a view may end in a
token that shows nothing (LLaVA's newline). Here every cell knows its square
in pixels of the image as it was given, whatever was resized, padded and cropped on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles, Integers
from bindscope.core.errors import InputError
from bindscope.studies.binding_id.engine import Tokens

Border = Literal["inside", "official"]
_ROUNDING = 1e-6  # pixels by which edges of cells are off


@dataclass(frozen=True, eq=False)
class ImageView:
    """One raster of image tokens, named in errors; its first cell is at `start` of the block.

    `stride` tokens lead from one row to the next: columns, and 1 more where rows end in a token of
    their own. `x` and `y` are where cells begin and end in pixels of the image, float64 (columns +
    1,) and (rows + 1,), beyond it where it was padded.
    """

    name: str
    start: int
    stride: int
    x: Doubles
    y: Doubles

    @property
    def rows(self) -> int:
        """Rows of cells."""
        return len(self.y) - 1

    @property
    def columns(self) -> int:
        """Columns of cells."""
        return len(self.x) - 1

    def cells(
        self, box: Sequence[int], pad: int, border: Border, touching: bool = False
    ) -> Integers:
        """Return places of the cells that cover a box, and `pad` around, in raster order.

        Boxes (left, top, right, bottom in pixels, the last two exclusive) of one size have equally
        many cells, as many as they are wide and high, rounded up. `inside` moves what would reach
        beyond the grid back into it, so that padded regions have equally many cells in every slot.
        `official` counts on in the block, as the paper's code does: beyond the last column comes
        what stands there, the row's end or the next row. `touching`: all cells that show some of
        the box, by where it stands up to one more in each direction.

        InputError if the box is outside the grid, or reaches beyond the block under `official`.
        """
        left, top, right, bottom = box
        find = _touched if touching else _block
        rows, columns = find(self.y, top, bottom), find(self.x, left, right)
        if rows is None or columns is None:
            raise InputError(
                f"box {tuple(int(side) for side in box)}",
                f"it is empty or outside {self.name} ({self.rows} x {self.columns} cells, x "
                f"{self.x[0]:g} to {self.x[-1]:g} px, y {self.y[0]:g} to {self.y[-1]:g} px)",
                "give left, top, right and bottom in pixels of the image that the model reads",
            )
        r = np.arange(rows[0] - pad, rows[1] + pad + 1)
        c = np.arange(columns[0] - pad, columns[1] + pad + 1)
        if border == "inside":
            r, c = _inside(r, self.rows), _inside(c, self.columns)
        indices: Integers = (r[:, None] * self.stride + c).reshape(-1)
        if indices[0] < 0 or indices[-1] >= self.rows * self.stride:
            raise InputError(
                f"box {tuple(int(side) for side in box)}",
                f"with {pad} cells around it, it begins or ends outside {self.name}",
                "leave `compat: paper` out, which keeps paddings inside the grid",
            )
        return self.start + indices

    def ends(self) -> Integers:
        """Return places in the block of the tokens that end rows."""
        if self.stride == self.columns:
            return np.zeros(0, np.int64)
        indices: Integers = self.start + np.arange(self.rows) * self.stride + self.columns
        return indices


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """The block of `length` tokens of one image, `features` of them placeholders, and its views."""

    views: tuple[ImageView, ...]
    length: int
    features: int

    def select(
        self, boxes: NDArray[np.int64], role: int, tokens: Tokens, border: Border
    ) -> Integers:
        """Return places in the block that an intervention on a role means, int64.

        Boxes are those of the things of one scene, int64 (k, 4); `border` as in `ImageView.cells`.
        """
        pad, views = tokens.pad or 0, self._views(tokens)
        if tokens.support == "newline":
            ends = np.concatenate([np.zeros(0, np.int64), *(view.ends() for view in views)])
        elif tokens.support == "background":
            cells = [
                view.cells(box, pad, border, tokens.touching) for view in views for box in boxes
            ]
            everything = [
                view.start + np.arange(view.rows * view.stride, dtype=np.int64) for view in views
            ]
            ends = np.setdiff1d(np.concatenate(everything), np.concatenate(cells))
        else:
            parts = [view.cells(boxes[role], pad, border, tokens.touching) for view in views]
            if tokens.cells is not None:
                parts = [_places(part, tokens.cells) for part in parts]
            ends = np.concatenate(parts)
        return ends

    def _views(self, tokens: Tokens) -> list[ImageView]:
        numbers = range(len(self.views)) if tokens.views is None else tokens.views
        if wrong := [n for n in numbers if not 0 <= n < len(self.views)]:
            raise InputError(
                f"view {wrong[0]}",
                f"this model has {len(self.views)} views of an image",
                "views are counted from 0; name those that there are",
            )
        return [self.views[n] for n in numbers]


def plain_view(
    name: str, start: int, stride: int, rows: int, columns: int, height: float, width: float
) -> ImageView:
    """Return a view whose cells share the image evenly."""
    x, y = np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1)
    return ImageView(name, start, stride, x, y)


def squeezed_view(size: tuple[int, int], side: int, patch: int) -> ImageView:
    """Return the view of an image of a height and width that is squeezed to a square of patches.

    Where patches do not fill the square, its last row and column are counted to its end.
    """
    base = _crop_edges(1, side, patch)
    height, width = size
    return ImageView("the base view", 0, len(base) - 1, base * width / side, base * height / side)


def llava_views(
    size: tuple[int, int],
    side: int,
    patch: int,
    pinpoints: Sequence[Sequence[int]],
    max_crops: float,
) -> ImageTokens:
    """Return the two views of LLaVA-OneVision and LLaVA-NeXT: the whole image, and anyres crops.

    `size` is the image's height and width, `side` and `patch` those of a crop and of a patch in
    pixels, in the way of `squeezed_view`. Pinpoints are resolutions (height, width), multiples of
    `side`. More than `max_crops` crops' worth of cells, by a tenth in each direction, are shrunk to
    it.
    """
    height, width = size
    grid = side // patch
    whole = squeezed_view(size, side, patch)
    target = best_resolution(size, pinpoints)
    scaled = _fitted(size, target)
    edges = [
        (_crop_edges(target[i] // side, side, patch) - (target[i] - scaled[i]) // 2)
        * (size[i] / scaled[i])
        for i in (0, 1)
    ]
    # Padding is cut off in whole cells, as many on both sides.
    rows, columns = len(edges[0]) - 1, len(edges[1]) - 1
    if width / height > columns / rows:
        cut = (rows - int(round(height * (columns / width), 7))) // 2
        edges[0] = edges[0][cut : rows - cut + 1]
    else:
        cut = (columns - int(round(width * (rows / height), 7))) // 2
        edges[1] = edges[1][cut : columns - cut + 1]
    rows, columns = len(edges[0]) - 1, len(edges[1]) - 1
    ratio = math.sqrt(rows * columns / (max_crops * grid**2))
    if ratio > 1.1:
        edges = [_shrunk(edge, int((len(edge) - 1) // ratio)) for edge in edges]
        rows, columns = len(edges[0]) - 1, len(edges[1]) - 1
    crops = ImageView("the anyres view", grid**2, columns + 1, edges[1], edges[0])
    length = grid**2 + rows * (columns + 1)
    return ImageTokens((whole, crops), length, length)


def best_resolution(size: tuple[int, int], resolutions: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the resolution that keeps most pixels of an image, and of those the smallest."""

    def worth(resolution: Sequence[int]) -> tuple[int, int]:
        scale = min(resolution[1] / size[1], resolution[0] / size[0])
        pixels = min(int(size[1] * scale) * int(size[0] * scale), size[0] * size[1])
        return pixels, pixels - resolution[0] * resolution[1]

    height, width = max(resolutions, key=worth)
    return int(height), int(width)


def _fitted(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return height and width of an image scaled to fit a target, rounded up."""
    if target[1] / size[1] < target[0] / size[0]:
        return min(math.ceil(size[0] * (target[1] / size[1])), target[0]), target[1]
    return target[0], min(math.ceil(size[1] * (target[0] / size[0])), target[1])


def _crop_edges(crops: int, side: int, patch: int) -> Doubles:
    """Return where the cells of adjacent crops begin and end, in pixels of the target."""
    starts = np.arange(side // patch) * patch
    edges = (np.arange(crops)[:, None] * side + starts).reshape(-1)
    return np.append(edges, crops * side).astype(np.float64)


def _shrunk(edges: Doubles, cells: int) -> Doubles:
    """Return the edges of fewer cells over the same pixels."""
    old = len(edges) - 1
    return np.interp(np.arange(cells + 1) * old / cells, np.arange(old + 1), edges)


def _block(edges: Doubles, start: float, stop: float) -> tuple[int, int] | None:
    """Return the first and last cell of a block that covers most of [start, stop).

    It has as many cells as the stretch is long, rounded up, so that equal stretches have equally
    many wherever they begin. None where the stretch is empty or outside.
    """
    if _is_outside(edges, start, stop):
        return None
    total = len(edges) - 1
    size = min(total, math.ceil((stop - start) / float(np.median(np.diff(edges))) - 1e-6))
    begin, end = edges[: total - size + 1], edges[size:]
    covered = np.round(np.minimum(end, stop) - np.maximum(begin, start), 6)
    off_centre = np.abs(begin + end - start - stop)
    first = int(np.lexsort((off_centre, -covered))[0])
    return first, first + size - 1


def _touched(edges: Doubles, start: float, stop: float) -> tuple[int, int] | None:
    """Return the first and last cell that shows some of [start, stop); None as of `_block`."""
    if _is_outside(edges, start, stop):
        return None
    first = np.searchsorted(edges, start + _ROUNDING, "right") - 1
    last = np.searchsorted(edges, stop - _ROUNDING, "left") - 1
    return max(int(first), 0), min(int(last), len(edges) - 2)


def _is_outside(edges: Doubles, start: float, stop: float) -> bool:
    return bool(start >= stop or start < min(0, edges[0]) or start >= edges[-1] or stop <= edges[0])


def _inside(numbers: Integers, total: int) -> Integers:
    """Move consecutive numbers into 0 to total - 1; all of these where there are more."""
    size = min(len(numbers), total)
    return np.arange(size) + min(max(int(numbers[0]), 0), total - size)


def _places(cells: Integers, places: Sequence[int]) -> Integers:
    if wrong := [place for place in places if not 0 <= place < len(cells)]:
        raise InputError(
            f"cell {wrong[0]}",
            f"the thing has {len(cells)} cells in a view",
            "cells are counted from 0, in raster order; change the list or the padding",
        )
    return cells[list(places)]
