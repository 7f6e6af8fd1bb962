"""The images of scenes, with exact masks and boxes.

Source of ground, boxes and colours: what was measured on the released images of arXiv 2505.22200.
Ours are drawn in NumPy: parallel projection, so that a thing looks the same in every
slot, and one sun. `looks` has what may differ from image to image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import InputError
from bindscope.scenes.solids.painting import Canvas, Drawn, in_middle, tight_box
from bindscope.scenes.solids.portraits import Portrait, portrait
from bindscope.scenes.solids.world import from_srgb, to_srgb
from bindscope.scenes.sprite_palette import BODIES, RGB
from bindscope.scenes.sprites import SHIFT, sprite, tinted
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS, Layout, LayoutName
from bindscope.studies.binding_id.tasks.looks import PUBLISHED, Look, Setting, setting_of
from bindscope.studies.binding_id.tasks.task import Scenes

SCALES = {"large": 1.0, "small": 0.62}
GREY = ((0, 49), (20, 83), (50, 137), (100, 187), (200, 212))  # of 384 rows: row, sRGB
SAMPLES = 3  # rays along a side of a pixel
SHADOW_PX = 30  # around a region; regions of a layout are further apart


def draw(
    scenes: Scenes, layout_name: LayoutName, jitter: np.random.Generator | None = None,
    look: Look = PUBLISHED,
) -> Drawn:  # fmt: skip
    """Draw scenes.

    Parameters
    ----------
    scenes
        n scenes of k things, in slots of the layout.
    layout_name
        Where slots are; `sprites` stand on white.
    jitter
        Of sprites: things then differ by up to 10 % in each colour and in brightness, and by a
        pixel in place. None: a thing always looks the same.
    look
        Whether light, ground and sizes differ from image to image, and how much clutter there is;
        both follow from `scenes.setting`.

    Returns
    -------
    Drawn
        Deterministic: without `jitter` an image follows from its scene alone.
    """
    layout = LAYOUTS[layout_name]
    size, n, k = layout.size_px, len(scenes), scenes.things
    published = Setting(ground_of(layout_name), sizes=(1.0,) * len(layout.regions))
    images = np.repeat(to_srgb(published.ground)[None], n, axis=0)
    masks, boxes = np.zeros((n, size, size), np.uint8), np.zeros((n, k, 4), np.int16)
    clutter = np.zeros((n, look.clutter, 4), np.int16)
    tint, shift = _looks(scenes, jitter)
    for row in range(n):
        setting = published
        if look != PUBLISHED:
            setting = _setting(scenes, row, layout, look, published.ground)
            images[row] = to_srgb(setting.strength * setting.ground)
        canvas = Canvas(images[row], setting.ground.copy(), setting.strength, setting.hardness)
        for place, one in enumerate(setting.clutter):
            clutter[row, place] = tight_box(canvas.put(one.face, one.tint, one.top, one.left))
        for role in range(k):
            face = _portrait_of(scenes, row, role, layout, setting)
            middle = in_middle(layout.regions[scenes.slot[row, role]], face.covered.shape)
            top, left = (middle + shift[row, role]).tolist()
            masks[row][canvas.put(face, tint[row, role], top, left)] = role + 1
            boxes[row, role] = tight_box(masks[row] == role + 1)
    return Drawn(images, masks, boxes, clutter)


@dataclass(frozen=True)
class Images:
    """Draws the images of a layout: a `Pictures` of `task`, without jitter."""

    layout: LayoutName
    look: Look = PUBLISHED

    def __call__(self, scenes: Scenes) -> NDArray[np.uint8]:
        """Return uint8 (n, H, W, 3)."""
        return self.drawn(scenes).images

    def drawn(self, scenes: Scenes) -> Drawn:
        """Return images, masks and boxes."""
        return draw(scenes, self.layout, look=self.look)


def _looks(
    scenes: Scenes, jitter: np.random.Generator | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the linear colour (n, k, 3) and the shift in pixels (n, k, 2) of every thing."""
    colours = np.array([RGB[word] for word in scenes.words.colours], np.float64)[scenes.colour]
    if jitter is None:
        return from_srgb(colours), np.zeros((*scenes.colour.shape, 2), np.int64)
    own = jitter.uniform(-1, 1, colours.shape)
    all_three = jitter.uniform(-1, 1, (*scenes.colour.shape, 1))
    shift = jitter.integers(-SHIFT, SHIFT + 1, (*scenes.colour.shape, 2))
    return tinted(colours, own, all_three), shift


def _portrait_of(scenes: Scenes, row: int, role: int, layout: Layout, setting: Setting) -> Portrait:
    """Return the portrait of a thing."""
    words = scenes.words
    shape = words.shapes[scenes.shape[row, role]]
    material = words.materials[scenes.material[row, role]]
    scale = SCALES[words.sizes[scenes.size[row, role]]] * setting.sizes[scenes.slot[row, role]]
    if layout.sprites:
        return sprite(shape, material, scale)
    return portrait(
        BODIES.get(shape, shape), material, *layout.room, scale, SHADOW_PX, SAMPLES, setting.sun
    )


def _setting(
    scenes: Scenes, row: int, layout: Layout, look: Look, ground: NDArray[np.float64]
) -> Setting:
    if scenes.setting is None:
        raise InputError(
            "scenes", "they have no setting, which light, ground and clutter follow from",
            "draw them by a rule with that look",
        )  # fmt: skip
    return setting_of(int(scenes.setting[row]), look, layout, scenes.slot[row], ground)


@cache
def ground_of(layout_name: LayoutName) -> NDArray[np.float64]:
    """Return the light of an empty image, float64 (size, size, 3)."""
    size = LAYOUTS[layout_name].size_px
    if LAYOUTS[layout_name].sprites:
        return np.ones((size, size, 3))
    at, grey = np.array(GREY, np.float64).T
    rows = from_srgb(np.interp(np.arange(size), at, grey))
    return np.broadcast_to(rows[:, None, None], (size, size, 3)).copy()
