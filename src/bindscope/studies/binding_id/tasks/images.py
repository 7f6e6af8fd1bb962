"""The images of scenes, with exact masks and boxes.

Source of ground, boxes and colors: what was measured on the released images of arXiv 2505.22200.
Ours are drawn in NumPy: parallel projection, so that a thing looks the same in every
slot, and one sun.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bindscope.config.solids import Material
from bindscope.scenes.solids.painting import Drawn, in_middle, paint
from bindscope.scenes.solids.portraits import Portrait, portrait
from bindscope.scenes.solids.world import from_srgb
from bindscope.scenes.sprite_palette import BODIES, RGB, SHAPES
from bindscope.scenes.sprites import SHIFT, sprite, tinted
from bindscope.studies.binding_id.tasks.scenes import (
    COLOR_AT,
    LAYOUTS,
    SHAPE_IN,
    Layout,
    LayoutName,
    Scenes,
)

GREY = ((0, 49), (20, 83), (50, 137), (100, 187), (200, 212))  # of 384 rows: row, sRGB
SAMPLES = 3  # rays along a side of a pixel
SHADOW_PX = 30  # around a region; regions of a layout are further apart
_LOOKS: dict[str, tuple[str, Material]] = {
    **{shape: (shape, "rubber") for shapes in SHAPES.values() for shape in shapes},
    **{word: look for look, word in SHAPE_IN.items()},
}
"""Shape and material of every word that questions name a thing by."""
_RGB = {**RGB, **{word: RGB[color] for (color, _), word in COLOR_AT.items()}}
"""sRGB of every word that texts mention a thing by."""


def draw(
    scenes: Scenes, layout_name: LayoutName, jitter: np.random.Generator | None = None
) -> Drawn:
    """Draw scenes of a layout; `sprites` stand on white.

    With `jitter` sprites differ by up to 10 % in each color and in brightness, and by a pixel in
    place; without, an image follows from its scene alone.
    """
    layout, corners = LAYOUTS[layout_name], np.zeros((*scenes.slot.shape, 2), np.int64)
    faces: list[list[Portrait]] = []
    for row in range(len(scenes)):
        faces.append([_portrait_of(scenes, row, role, layout) for role in range(scenes.things)])
        for role, face in enumerate(faces[-1]):
            region = layout.regions[scenes.slot[row, role]]
            corners[row, role] = in_middle(region, face.covered.shape)
    tint, shift = _looks(scenes, jitter)
    return paint(ground_of(layout_name), faces, corners + shift, tint)


@dataclass(frozen=True)
class LayoutImages:
    """Draws the images of a layout: a `Pictures` of `task`, without jitter."""

    layout: LayoutName

    def __call__(self, scenes: Scenes) -> NDArray[np.uint8]:
        """Return uint8 (n, H, W, 3)."""
        return draw(scenes, self.layout).images


def _looks(
    scenes: Scenes, jitter: np.random.Generator | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the linear color (n, k, 3) and the shift in pixels (n, k, 2) of every thing."""
    colors = np.array([_RGB[word] for word in scenes.words.colors], np.float64)[scenes.color]
    if jitter is None:
        return from_srgb(colors), np.zeros((*scenes.color.shape, 2), np.int64)
    jittered = jitter.uniform(-1, 1, colors.shape)
    all_three = jitter.uniform(-1, 1, (*scenes.color.shape, 1))
    shift = jitter.integers(-SHIFT, SHIFT + 1, (*scenes.color.shape, 2))
    return tinted(colors, jittered, all_three), shift


def _portrait_of(scenes: Scenes, row: int, role: int, layout: Layout) -> Portrait:
    """Return the portrait of a thing."""
    shape, material = _LOOKS[scenes.words.shapes[scenes.shape[row, role]]]
    if layout.sprites:
        return sprite(shape, material)
    return portrait(BODIES.get(shape, shape), material, *layout.room, SHADOW_PX, SAMPLES)


@cache
def ground_of(layout_name: LayoutName) -> NDArray[np.float64]:
    """Return the light of an empty image, float64 (size, size, 3)."""
    size = LAYOUTS[layout_name].size_px
    if LAYOUTS[layout_name].sprites:
        return np.ones((size, size, 3))
    at, grey = np.array(GREY, np.float64).T
    rows = from_srgb(np.interp(np.arange(size), at, grey))
    return np.broadcast_to(rows[:, None, None], (size, size, 3)).copy()
