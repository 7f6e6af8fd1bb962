"""Images and labels of cluttered scenes, painted from the back to the front.

What is painted is one number per pixel, twice the id of what is seen plus the bit of its texture;
the masks are half of it, and the images follow from a table of colors per scene.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.codes.type_counts import cells_in_order, type_counts_of
from bindscope.config.clutter import ClutterRenderer
from bindscope.config.codes import SceneDistribution
from bindscope.core.array_types import UInt8
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SplitName
from bindscope.scenes.clutter.background import ClutterBackground, add_background
from bindscope.scenes.clutter.layout import Composer, Things
from bindscope.scenes.clutter.looks import DARKER, Stamps, sizes_of, stamps, texture_pairs
from bindscope.scenes.palette import COLORS
from bindscope.scenes.placement import RandomWords
from bindscope.scenes.shapes import palette_sizes

MOST = 127  # ids, so that twice an id and a bit fit a byte
KINDS_BEFORE_STUFF = 1  # classes between the shapes and the stuff: the bar

SceneArrays = dict[str, NDArray[Any]]


def render(dataset: SceneDistribution, split: SplitName, start: int, objects: UInt8) -> SceneArrays:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`.

    `images`, `masks`, `boxes` and `cells` are as there, with M = largest number of objects + copy +
    bar + regions of stuff. Ids: the objects of the code and the copy by their cell, then the bar,
    then the stuff; `cells` is -1 for bar and stuff, and `boxes` for stuff. And of every id, with 0
    or -1 behind the last one: `classes` int16 (n, M): shape + 1, then the bar's class, then those
    of stuff; `stuff` uint8 (n, M); `depth_order` int16 (n, M), what is larger hides what is
    smaller, 0 for stuff, -1 = none; `copy_of` int16 (n, M), id of its exact copy, 0 = none;
    `textures` int16 (n, M), 1 + its number in `looks.texture_pairs`, 0 for stuff; `visible` float32
    (n, M), the share of its pixels that is seen, -1 for stuff. ConfigError if the palette does not
    do, there are too many objects, or a scene has no room.
    """
    config = dataset.render
    assert isinstance(config, ClutterRenderer)
    n_colors, n_shapes = palette_sizes(dataset, min(sizes_of(config)), "released")
    most = largest_scene(dataset.space)
    if most + 2 + config.stuff > MOST:
        raise ConfigError(
            f"dataset {dataset.name!r}",
            f"has up to {most} objects, and a cluttered scene holds {MOST - 2 - config.stuff}",
            "lower the space's number of objects",
        )
    where = f"dataset {dataset.name!r}, {split}"
    shape_stamps = stamps(sizes_of(config), n_shapes, config.occluder_px)
    words = RandomWords(dataset.seed, split, start)
    cells = cells_in_order(type_counts_of(dataset, split, start, objects), most)
    things = Composer(config, shape_stamps, n_colors, words, where).compose(cells)
    background = add_background(config, words, things.count)
    ink = _paint(config.size_px, shape_stamps, things, background.ink)
    masks = ink >> np.uint8(1)
    return {
        "images": _colored(ink, _colors(config, things, background)),
        "masks": masks,
        **_labels(config, shape_stamps, things, background, masks),
    }


def _paint(size: int, shape_stamps: Stamps, things: Things, background: UInt8) -> UInt8:
    """Paint things over the background in their order; uint8 (n, size, size)."""
    margin = shape_stamps.side // 2  # canvases may stick out of the image
    ink = np.pad(background, ((0, 0), (margin, margin), (margin, margin)))
    windows = sliding_window_view(
        ink, (shape_stamps.side, shape_stamps.side), axis=(1, 2), writeable=True
    )
    pairs = texture_pairs(shape_stamps.side)
    for column in things.order.T[: things.count.max(initial=0)]:
        scenes = np.flatnonzero(np.take_along_axis(things.there, column[:, None], axis=1)[:, 0])
        column = column[scenes]
        x, y = (things.corner[scenes, column] + margin).T
        object_ink = (
            pairs[things.texture[scenes, column]]
            + (2 * (column + 1)).astype(np.uint8)[:, None, None]
        )
        mask = shape_stamps.masks[things.stamp[scenes, column]]
        windows[scenes, y, x] = np.where(mask, object_ink, windows[scenes, y, x])
    return np.ascontiguousarray(ink[:, margin : margin + size, margin : margin + size])


def _colors(config: ClutterRenderer, things: Things, background: ClutterBackground) -> UInt8:
    """Return the colors of every number that can be painted, uint8 (n, 2 ids, 3)."""
    n, width = things.cell.shape
    palette = np.array(list(COLORS.values()), float)
    both = np.rint(np.stack([palette, palette * DARKER], axis=1)).astype(np.uint8)
    colors = np.zeros((n, 1 + width + config.stuff, 2, 3), np.uint8)
    colors[:, 0] = background.unlabelled
    colors[:, 1 : 1 + width] = both[things.color]
    rows = np.arange(n)
    for region in range(config.stuff):
        colors[rows, things.count + 1 + region] = background.colors[:, region]
    return colors.reshape(n, 2 * colors.shape[1], 3)


def _colored(ink: UInt8, colors: UInt8) -> UInt8:
    """Look up the colors of all pixels, uint8 (n, H, W, 3)."""
    # Four bytes at once: several times faster than three by three.
    packed = np.zeros((*colors.shape[:2], 4), np.uint8)
    packed[..., :3] = colors
    table = packed.view(np.uint32)[..., 0]
    pixels = table[np.arange(len(ink))[:, None, None], ink]
    return np.ascontiguousarray(pixels.view(np.uint8).reshape(*ink.shape, 4)[..., :3])


def _labels(
    config: ClutterRenderer,
    shape_stamps: Stamps,
    things: Things,
    background: ClutterBackground,
    masks: UInt8,
) -> SceneArrays:
    """Say of every id what it is."""
    n, width = things.cell.shape
    m, there = width + config.stuff, things.there
    bar = there & (things.cell < 0)
    labels = {name: np.zeros((n, m), np.int16) for name in ("classes", "copy_of", "textures")}
    labels["stuff"] = np.zeros((n, m), np.uint8)
    labels |= {name: np.full((n, m), -1, np.int16) for name in ("cells", "depth_order")}
    labels["boxes"] = np.full((n, m, 4), -1, np.int16)
    labels["visible"] = np.full((n, m), -1, np.float32)

    kind = np.where(bar, shape_stamps.n_shapes, things.cell % shape_stamps.n_shapes) + 1
    labels["classes"][:, :width] = np.where(there, kind, 0)
    labels["cells"][:, :width] = things.cell
    labels["copy_of"][:, :width] = things.copy_of
    labels["textures"][:, :width] = np.where(there, things.texture + 1, 0)
    rank = np.argsort(things.order, axis=1) + 1
    labels["depth_order"][:, :width] = np.where(there, rank, -1)
    boxes = shape_stamps.boxes[things.stamp] + np.tile(things.corner, 2)
    boxes = np.clip(boxes, 0, config.size_px)
    labels["boxes"][:, :width] = np.where(there[:, :, None], boxes, -1)
    whole = np.where(
        bar,
        np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1),
        shape_stamps.masks.sum(axis=(1, 2))[things.stamp],
    )
    ids = np.arange(n)[:, None, None] * (MOST + 1) + masks
    visible_pixels = np.bincount(ids.ravel(), minlength=n * (MOST + 1)).reshape(n, MOST + 1)
    labels["visible"][:, :width] = np.where(there, visible_pixels[:, 1 : 1 + width] / whole, -1)
    rows = np.arange(n)
    for region in range(config.stuff):
        column = things.count + region
        labels["stuff"][rows, column] = 1
        labels["classes"][rows, column] = (
            shape_stamps.n_shapes + KINDS_BEFORE_STUFF + 1 + background.kinds[:, region]
        )
        labels["depth_order"][rows, column] = 0
    return labels
