"""Sprites: small solids on white in 3 x 3 slots, the images of toy vision-language models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.config.codes import SceneDistribution
from bindscope.config.solids import Material
from bindscope.config.sprites import SpritesRenderer
from bindscope.core.splits import SplitName
from bindscope.scenes.placement import JITTER as JITTER_WORDS
from bindscope.scenes.placement import ORDER, RandomWords
from bindscope.scenes.solids.painting import in_middle, paint
from bindscope.scenes.solids.portraits import Portrait, portrait
from bindscope.scenes.solids.world import from_srgb
from bindscope.scenes.sprite_palette import (
    BODIES,
    COLORS,
    REGIONS,
    RGB,
    SHAPES,
    SIDE,
    SIZE_PX,
    SLOT_PX,
)

SAMPLES = 6  # rays along a side of a pixel
JITTER = 0.1  # share by which colors and brightness vary
SHIFT = 1  # pixels by which sprites move
_NUMBERS = 6  # of an object's jitter: three colors, brightness, two of its place


def sprite(shape: str, material: Material = "rubber") -> Portrait:
    """Return the portrait of a shape, which has room to move by `SHIFT` in its slot."""
    side = SLOT_PX - 2 * SHIFT
    return portrait(BODIES.get(shape, shape), material, side, side, 0, SAMPLES)


def tinted(
    colors: NDArray[np.float64],
    channel_jitter: NDArray[np.floating],
    all_three: NDArray[np.floating],
) -> NDArray[np.float64]:
    """Return linear colors that vary by `JITTER`, from sRGB (..., 3) from 0 to 255.

    `channel_jitter` (..., 3) and `all_three` (..., 1), of brightness, are from -1 to 1.
    """
    varied = colors * (1 + JITTER * channel_jitter) * (1 + JITTER * all_three)
    return from_srgb(np.minimum(varied, 255.0))


def render(
    dataset: SceneDistribution, split: SplitName, start: int, objects: NDArray[np.uint8]
) -> dict[str, NDArray[np.generic]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`. Boxes are tight."""
    config = dataset.render
    assert isinstance(config, SpritesRenderer)
    n, largest = len(objects), largest_scene(dataset.space)
    cells = np.full((n, largest), -1, np.int16)
    scene, cell = np.nonzero(objects)
    counts = np.bincount(scene, minlength=n)
    rank = np.arange(len(scene)) - np.repeat(np.cumsum(counts) - counts, counts)
    cells[scene, rank] = cell
    color, shape = np.divmod(np.maximum(cells, 0), dataset.space.groups[1].size)
    words = RandomWords(dataset.seed, split, start)
    slots = words.draw((ORDER,), 0, n, SIDE * SIDE).argsort(axis=1, kind="stable")
    sprites = [sprite(name) for name in SHAPES[config.words]]
    faces = [[sprites[shape[row, j]] for j in range(counts[row])] for row in range(n)]
    corners = np.array([in_middle(region, (SLOT_PX - 2 * SHIFT,) * 2) for region in REGIONS])
    palette = np.array([RGB[name] for name in COLORS[config.words]], np.float64)
    moved, tint = _jittered(palette[color], words, config.jitter)
    drawn = paint(np.ones((SIZE_PX, SIZE_PX, 3)), faces, corners[slots[:, :largest]] + moved, tint)
    return {"images": drawn.images, "masks": drawn.masks, "boxes": drawn.boxes, "cells": cells}


def _jittered(
    colors: NDArray[np.float64], words: RandomWords, jitter: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the shift in pixels (n, M, 2) and the linear color (n, M, 3) of every object."""
    n, largest = colors.shape[:2]
    if not jitter:
        return np.zeros((n, largest, 2), np.int64), from_srgb(colors)
    drawn = words.draw((JITTER_WORDS,), 0, n, largest * _NUMBERS) >> np.uint64(11)
    numbers = np.asarray(drawn * 2.0**-53, np.float64)  # uniform from 0 to 1
    numbers = numbers.reshape(n, largest, _NUMBERS)
    signed = 2 * numbers - 1
    moved = np.floor(numbers[..., 4:] * (2 * SHIFT + 1)).astype(np.int64) - SHIFT
    return moved, tinted(colors, signed[..., :3], signed[..., 3:4])
