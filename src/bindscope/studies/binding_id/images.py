"""The images of scenes, with exact masks and boxes.

Source of ground, boxes and colours: what was measured on the released images of arXiv 2505.22200.
Ours are drawn anew, without Blender: parallel projection, so that a thing looks the same in every
slot, and one sun. `looks` has what may differ from image to image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import InputError
from bindscope.scenes.solids.portraits import Portrait, portrait
from bindscope.scenes.solids.world import from_srgb, to_srgb
from bindscope.studies.binding_id.layouts import LAYOUTS, Layout, LayoutName
from bindscope.studies.binding_id.looks import PUBLISHED, Look, Setting, setting_of
from bindscope.studies.binding_id.task import Scenes
from bindscope.studies.binding_id.vocabulary import RGB

BODIES = {"can": "cylinder"}  # the word that the text has for it -> the body
SCALES = {"large": 1.0, "small": 0.62}
GREY = ((0, 49), (20, 83), (50, 137), (100, 187), (200, 212))  # of 384 rows: row, sRGB
SAMPLES, SPRITE_SAMPLES = 3, 6  # rays along a side of a pixel
SHADOW_PX = 30  # around a region; regions of a layout are further apart
JITTER = 0.1  # share by which colours and brightness of sprites vary
SHIFT = 1  # pixels by which sprites move


@dataclass(frozen=True, eq=False)
class Drawn:
    """Images and what their pixels show.

    Attributes
    ----------
    images
        uint8 (n, H, W, 3), RGB.
    masks
        uint8 (n, H, W): 0 = ground, r + 1 = the thing of role r, which covers all or part of the
        pixel.
    boxes
        int16 (n, k, 4): the tight box of each thing's mask: left, top, right and bottom, ends
        exclusive.
    clutter
        int16 (n, c, 4): the tight boxes of things that belong to no role, and to no mask.
    """

    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    boxes: NDArray[np.int16]
    clutter: NDArray[np.int16]


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
    published = Setting(_ground(layout_name), sizes=(1.0,) * len(layout.regions))
    images = np.repeat(to_srgb(published.ground)[None], n, axis=0)
    masks, boxes = np.zeros((n, size, size), np.uint8), np.zeros((n, k, 4), np.int16)
    clutter = np.zeros((n, look.clutter, 4), np.int16)
    tint, shift = _looks(scenes, jitter)
    for row in range(n):
        setting = published
        if look != PUBLISHED:
            setting = _setting(scenes, row, layout, look, published.ground)
            images[row] = to_srgb(setting.strength * setting.ground)
        canvas = Canvas(images[row], setting.ground.copy(), setting)
        for place, one in enumerate(setting.clutter):
            clutter[row, place] = _box(canvas.put(one.face, one.tint, one.top, one.left))
        for role in range(k):
            face = _portrait_of(scenes, row, role, layout, setting)
            top, left = _corner(layout, int(scenes.slot[row, role]), face) + shift[row, role]
            masks[row][canvas.put(face, tint[row, role], top, left)] = role + 1
            boxes[row, role] = _box(masks[row] == role + 1)
    return Drawn(images, masks, boxes, clutter)


@dataclass(frozen=True)
class Images:
    """Draws the images of a layout: a `Pictures` of `task`, without jitter."""

    layout: LayoutName
    look: Look = PUBLISHED

    def __call__(self, scenes: Scenes) -> NDArray[np.uint8]:
        """Return uint8 (n, H, W, 3)."""
        return draw(scenes, self.layout, look=self.look).images


def _looks(
    scenes: Scenes, jitter: np.random.Generator | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the linear colour (n, k, 3) and the shift in pixels (n, k, 2) of every thing."""
    colours = np.array([RGB[word] for word in scenes.words.colours], np.float64)[scenes.colour]
    if jitter is None:
        return from_srgb(colours), np.zeros((*scenes.colour.shape, 2), np.int64)
    own = 1 + JITTER * jitter.uniform(-1, 1, colours.shape)
    all_three = 1 + JITTER * jitter.uniform(-1, 1, (*scenes.colour.shape, 1))
    shift = jitter.integers(-SHIFT, SHIFT + 1, (*scenes.colour.shape, 2))
    return from_srgb(np.minimum(colours * own * all_three, 255.0)), shift


def _portrait_of(scenes: Scenes, row: int, role: int, layout: Layout, setting: Setting) -> Portrait:
    """Return the portrait of a thing; the smallest region of a layout is that of all."""
    words = scenes.words
    shape = words.shapes[scenes.shape[row, role]]
    sides = [(right - left, bottom - top) for left, top, right, bottom in layout.regions]
    width, height = (min(side) for side in zip(*sides, strict=True))
    room, margin, samples = (
        (2 * SHIFT, 0, SPRITE_SAMPLES) if layout.sprites else (0, SHADOW_PX, SAMPLES)
    )
    scale = SCALES[words.sizes[scenes.size[row, role]]] * setting.sizes[scenes.slot[row, role]]
    return portrait(
        BODIES.get(shape, shape), words.materials[scenes.material[row, role]],
        width - room, height - room, scale, margin, samples, setting.sun,
    )  # fmt: skip


def _corner(layout: Layout, slot: int, face: Portrait) -> NDArray[np.int64]:
    """Return row and column where a portrait begins, in the middle of its slot's region."""
    left, top, right, bottom = layout.regions[slot]
    height, width = face.covered.shape
    return np.array([(top + bottom - height) // 2, (left + right - width) // 2])


def _setting(
    scenes: Scenes, row: int, layout: Layout, look: Look, ground: NDArray[np.float64]
) -> Setting:
    if scenes.setting is None:
        raise InputError(
            "scenes", "they have no setting, which light, ground and clutter follow from",
            "draw them by a rule with that look",
        )  # fmt: skip
    return setting_of(int(scenes.setting[row]), look, layout, scenes.slot[row], ground)


@dataclass(frozen=True, eq=False)
class Canvas:
    """An image that things are put into: sRGB, and the light that it shows."""

    image: NDArray[np.uint8]
    light: NDArray[np.float64]
    setting: Setting

    def put(
        self, face: Portrait, tint: NDArray[np.float64], top: int, left: int
    ) -> NDArray[np.bool_]:
        """Put a thing where its portrait begins; return which pixels it covers, (H, W)."""
        size, (height, width) = len(self.light), face.covered.shape
        window = (slice(max(top, 0), top + height), slice(max(left, 0), left + width))
        part = (slice(max(-top, 0), size - top), slice(max(-left, 0), size - left))
        covered, body, shine = face.covered[part], face.body[part], face.shine[part]
        behind = (1 - covered) * (1 - self.setting.hardness * face.shadow[part])
        light = behind[..., None] * self.light[window] + body[..., None] * tint + shine[..., None]
        self.light[window] = light
        self.image[window] = to_srgb(self.setting.strength * light)
        seen = np.zeros(self.light.shape[:2], bool)
        seen[window] = covered > 0
        return seen


def _box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@cache
def _ground(layout_name: LayoutName) -> NDArray[np.float64]:
    """Return the light of an empty image, float64 (size, size, 3)."""
    size = LAYOUTS[layout_name].size_px
    if LAYOUTS[layout_name].sprites:
        return np.ones((size, size, 3))
    at, grey = np.array(GREY, np.float64).T
    rows = from_srgb(np.interp(np.arange(size), at, grey))
    return np.broadcast_to(rows[:, None, None], (size, size, 3)).copy()
