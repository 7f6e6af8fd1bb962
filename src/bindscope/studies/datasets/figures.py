"""Contact sheet: the first scenes of every dataset with what their labels say is on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from bindscope.codes.values import NamedValues, named_groups
from bindscope.core.interfaces import Inputs
from bindscope.core.store.reader import open_store
from bindscope.figures.colors import INK, WIDTH_IN
from bindscope.figures.figure import figure, some
from bindscope.figures.style import new_figure
from bindscope.sources.metadata import read_about

COLUMNS = 6
_LARGEST_PX = 160  # of an image in the figure; larger ones would only make the SVG large
_LINES = 8  # of text below a scene
_LINE_IN = 0.098
_TITLE_IN = 0.26
_GAP_IN = 0.08
_SIDE_IN = (WIDTH_IN - _GAP_IN) / COLUMNS - _GAP_IN


class Sheet(NamedTuple):
    """Scenes of one dataset."""

    split: str  # where they are from
    images: npt.NDArray[np.uint8]  # (n, H, W, 3)
    cells: npt.NDArray[np.integer[Any]]  # object-code index of each object, (n, M); -1: none
    boxes: npt.NDArray[np.integer[Any]]  # left, top, right, bottom in pixels, (n, M, 4); -1: none


def describe(cells: npt.NDArray[np.integer[Any]], groups: Sequence[NamedValues]) -> list[str]:
    """Name the objects of a scene, int (M,), a line each: ``red circle``, or ``color 3, shape 1``.

    Groups are names of the features and of their values.
    """
    sizes = tuple(len(values) for _, values in groups)
    lines = []
    for cell in cells[cells >= 0].tolist():
        values = [
            (name, str(known[value]))
            for (name, known), value in zip(groups, np.unravel_index(cell, sizes), strict=True)
        ]
        named = not any(value.isdigit() for _, value in values)
        words = [value if named else f"{name} {value}" for name, value in values]
        lines.append((" " if named else ", ").join(words))
    return lines


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read the first scenes of a shard per dataset, and what its values are called.

    Values of datasets that are read have the names that their records say.
    """
    groups = {name: named_groups(product) for name, product in inputs.content["groups"].items()}
    for product in inputs.get("records"):
        values = read_about(product.path)["values"]
        groups[product.names["dataset"]] = [(name, tuple(known)) for name, known in values]
    sheets = {}
    for product in inputs.get("scenes"):
        store = open_store(Path(product.path))
        arrays = (store.read(name, slice(0, COLUMNS)) for name in ("images", "cells", "boxes"))
        sheets[product.names["dataset"]] = Sheet(product.names["split"], *arrays)
    return {"sheets": sheets, "groups": groups}


@figure(_read)
def scenes(sheets: Mapping[str, Sheet], groups: Mapping[str, Sequence[NamedValues]]) -> Figure:
    """A row of scenes per dataset, each object's box, and below each scene its objects."""
    some(sheets, "No dataset has images.")
    lines = {
        name: [describe(cells, groups[name]) for cells in sheet.cells]
        for name, sheet in sheets.items()
    }
    longest = [
        max(map(len, map(_shortened, scene_lines)), default=0) for scene_lines in lines.values()
    ]
    heights = [_TITLE_IN + _SIDE_IN + _LINE_IN * (n + 1) for n in longest]
    canvas = new_figure(sum(heights))
    canvas.set_layout_engine("none")
    top = sum(heights)
    for height, (name, sheet) in zip(heights, sheets.items(), strict=True):
        title = f"{name} ({sheet.split}, {sheet.images.shape[1]} px)"
        y = (top - 0.6 * _TITLE_IN) / sum(heights)
        canvas.text(_GAP_IN / WIDTH_IN, y, title, fontsize=9, fontweight="bold", va="center")
        for i, image in enumerate(sheet.images):
            # Placed by hand: a layout engine gives squares with text below them uneven room.
            corner = _GAP_IN + i * (_SIDE_IN + _GAP_IN), top - _TITLE_IN - _SIDE_IN
            x, y = corner[0] / WIDTH_IN, corner[1] / sum(heights)
            axes = canvas.add_axes((x, y, _SIDE_IN / WIDTH_IN, _SIDE_IN / sum(heights)))
            _scene(axes, image, sheet.boxes[i])
            axes.set_xlabel("\n".join(_shortened(lines[name][i])), fontsize=6, labelpad=2)
        top -= height
    return canvas


def _scene(axes: Axes, image: npt.NDArray[np.uint8], boxes: npt.NDArray[np.integer[Any]]) -> None:
    side = image.shape[0]
    if side > _LARGEST_PX:
        image = np.asarray(Image.fromarray(image).resize((_LARGEST_PX, _LARGEST_PX)))
    # Edges of pixels, so that boxes lie where they do in the stored image.
    axes.imshow(image, extent=(0, side, side, 0), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#BBBBBB", linewidth=0.5)
    for left, top, right, bottom in boxes[(boxes >= 0).all(axis=1)].tolist():
        size = right - left, bottom - top
        axes.add_patch(Rectangle((left, top), *size, fill=False, edgecolor=INK, linewidth=0.4))


def _shortened(lines: Sequence[str]) -> list[str]:
    """Shorten a list of objects to what has room below a scene."""
    short = [line if len(line) <= 30 else f"{line[:29]}\N{HORIZONTAL ELLIPSIS}" for line in lines]
    if len(short) <= _LINES:
        return short
    return [*short[: _LINES - 1], f"and {len(short) - _LINES + 1} more"]
