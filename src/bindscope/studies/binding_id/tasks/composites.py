"""Images that are put together from a user's own cut-outs, with exact masks and boxes.

The specification's E15. Everything follows from the scene: its setting (a number) chooses the
background and, where there are several photos of a noun in a colour, one of them; it does not
depend on slots, so that a thing that changes places stays the same photo. Light is added up
linearly.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.scenes.solids.painting import Canvas, Drawn, in_middle, tight_box
from bindscope.scenes.solids.portraits import Portrait
from bindscope.scenes.solids.world import from_srgb, to_srgb
from bindscope.studies.binding_id.tasks.cutouts import Shown
from bindscope.studies.binding_id.tasks.cutouts_manifest import (
    backgrounds,
    backgrounds_sha256,
    read_manifest,
)
from bindscope.studies.binding_id.tasks.images import SCALES, SHADOW_PX, ground_of
from bindscope.studies.binding_id.tasks.layouts import LAYOUTS, LayoutName
from bindscope.studies.binding_id.tasks.task import Scenes

FAINT = 13  # alpha of 255 below which a pixel counts as empty: programs that cut out leave such
CUTOUTS_KEPT, PHOTOS_KEPT = 2048, 64  # in memory, 17 kB and 0.4 MB each
FOOT = 0.15  # share of a thing's height, from below, whose width is that of its shadow
FLATNESS = 0.3  # of a shadow: its height over its width
LINEAR = from_srgb(np.arange(256))
_PHOTO, _THING = 2, 3  # purposes of random numbers; `looks` has 0 and 1
_REMEDY = "save it as PNG with the background transparent (RGBA), or take it out of the table"

Pixels = NDArray[np.uint8]


class Composites:
    """Puts cut-outs on backgrounds: a `Pictures` of `task`.

    Parameters
    ----------
    layout
        Where slots are.
    shown
        Where cut-outs and backgrounds are.

    Raises
    ------
    InputError
        Names the file and the remedy: if an image cannot be read, has nothing cut out of it, or
        files are not those that the run was planned with.
    """

    def __init__(self, layout: LayoutName, shown: Shown) -> None:
        self.layout, self._shown = layout, shown
        manifest = read_manifest(Path(shown.folder).expanduser() / shown.file)
        _check_same(str(manifest.path), manifest.sha256(), shown.sha256)
        self._files = manifest.files()
        self._backgrounds: list[Path] = []
        if shown.backgrounds is not None:
            found = backgrounds_sha256(shown.backgrounds)
            _check_same(shown.backgrounds, found, shown.backgrounds_sha256)
            self._backgrounds = backgrounds(shown.backgrounds)
        self._floor = to_srgb(ground_of(layout))
        self._cutout = lru_cache(CUTOUTS_KEPT)(read_cutout)
        self._photo = lru_cache(PHOTOS_KEPT)(read_background)
        for files in self._files.values():  # rather now than in the middle of a long job
            for file in files:
                self._cutout(file, self._room(1.0))

    def __call__(self, scenes: Scenes) -> Pixels:
        """Return uint8 (n, H, W, 3)."""
        return self.drawn(scenes).images

    def drawn(self, scenes: Scenes) -> Drawn:
        """Return images, masks and boxes; a mask holds all pixels that a thing covers in part."""
        layout, (n, k) = LAYOUTS[self.layout], scenes.shape.shape
        size = layout.size_px
        images = np.zeros((n, size, size, 3), np.uint8)
        masks, boxes = np.zeros((n, size, size), np.uint8), np.zeros((n, k, 4), np.int16)
        for row in range(n):
            setting = _setting(scenes, row)
            images[row], light = self._ground(setting)
            canvas = Canvas(images[row], light)
            for role in range(k):
                face, tint = self._face(scenes, row, role, setting)
                region = layout.regions[scenes.slot[row, role]]
                covered = canvas.put(face, tint, *in_middle(region, face.covered.shape))
                masks[row][covered] = role + 1
                boxes[row, role] = tight_box(covered)
        return Drawn(images, masks, boxes, np.zeros((n, 0, 4), np.int16))

    def _ground(self, setting: int) -> tuple[Pixels, NDArray[np.float64]]:
        """Return the empty image of a setting and its light, (size, size, 3) each."""
        if not self._backgrounds:
            return self._floor, ground_of(self.layout).copy()
        at = rng(setting, _PHOTO).integers(len(self._backgrounds))
        photo = self._photo(self._backgrounds[at], LAYOUTS[self.layout].size_px)
        return photo, LINEAR[photo]

    def _face(
        self, scenes: Scenes, row: int, role: int, setting: int
    ) -> tuple[Portrait, NDArray[np.float64]]:
        """Return the portrait of a thing and the linear colour of each of its pixels."""
        words = scenes.words
        noun = words.shapes[scenes.shape[row, role]]
        colour = words.colours[scenes.colour[row, role]]
        files = self._files[noun, colour]
        draw = rng(setting, _THING, crc32(f"{noun}\n{colour}".encode()))
        scale = SCALES[words.sizes[scenes.size[row, role]]]
        pixels = self._cutout(files[draw.integers(len(files))], self._room(scale))
        margin = ((SHADOW_PX, SHADOW_PX), (SHADOW_PX, SHADOW_PX))
        alpha = np.pad(pixels[..., 3] / 255, margin)
        colours = np.pad(LINEAR[pixels[..., :3]], (*margin, (0, 0)))
        shadow = _shadow(alpha, self._shown.shadow)
        return Portrait(alpha, alpha, np.zeros_like(alpha), shadow, SHADOW_PX), colours

    def _room(self, scale: float) -> tuple[int, int]:
        """Return the width and height that a thing is scaled to fit into."""
        width, height = LAYOUTS[self.layout].room
        return round(scale * width), round(scale * height)


def read_cutout(file: Path, room: tuple[int, int]) -> Pixels:
    """Return a cut-out, cropped to what is not transparent and scaled to fit into a room.

    Returns
    -------
    NDArray
        uint8 (height, width, 4), sRGB and alpha; alpha is 0 or at least `FAINT`.

    Raises
    ------
    InputError
        Names the file: if it cannot be read, has no alpha, or nothing or all of it is transparent.
    """
    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)
            if not image.has_transparency_data:
                raise InputError(str(file), "has no alpha channel, so nothing is cut out", _REMEDY)
            image = image.convert("RGBA")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(str(file), f"is no image that can be read ({error})", _REMEDY) from error
    seen = np.asarray(image)[..., 3] >= FAINT
    if seen.all():
        raise InputError(
            str(file), "no pixel of it is transparent, so nothing is cut out",
            f"{_REMEDY}; of a thing that fills its image leave a transparent edge of one pixel",
        )  # fmt: skip
    if seen.any():
        image = image.crop(tight_box(seen))
        factor = min(new / old for new, old in zip(room, image.size, strict=True))
        size = [max(1, round(factor * side)) for side in image.size]
        # The alpha weighs colours, or what is hidden would shine through at the edges.
        pixels = np.array(image.resize((size[0], size[1]), Image.Resampling.BILINEAR))
        pixels[..., 3][pixels[..., 3] < FAINT] = 0
        if pixels[..., 3].any():
            return pixels
    raise InputError(str(file), "its alpha is empty: all of it is transparent", _REMEDY)


def read_background(file: Path, size: int) -> Pixels:
    """Return the largest square in the middle of a photo, scaled, uint8 (size, size, 3).

    Raises
    ------
    InputError
        Names the file: if it cannot be read.
    """
    try:
        with Image.open(file) as opened:
            opened.draft("RGB", (2 * size, 2 * size))  # a JPEG is read no larger than is needed
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(
            f"backgrounds, {file}", f"is no image that can be read ({error})",
            "save it anew as PNG, or take it out of the folder",
        ) from error  # fmt: skip
    return np.array(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR))


def _shadow(alpha: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Return the share of light that is missing around a thing's foot, like `alpha`.

    An ellipse as wide as the foot and a half, darkest in the middle, with nothing beyond its edge.
    """
    rows = np.flatnonzero(alpha.any(axis=1))
    low = rows[-1] - int(FOOT * len(rows))
    columns = np.flatnonzero(alpha[low:].any(axis=0))
    reach = 0.75 * (columns[-1] + 1 - columns[0])
    y, x = np.ogrid[: alpha.shape[0], : alpha.shape[1]]
    across = (x - (columns[0] + columns[-1]) / 2) / reach
    back = (y - rows[-1]) / (FLATNESS * reach)
    return np.asarray(strength * np.maximum(1 - across**2 - back**2, 0) ** 2)


def _setting(scenes: Scenes, row: int) -> int:
    if scenes.setting is None:
        raise InputError(
            "scenes", "they have no setting, which photos and backgrounds follow from",
            "draw them by a rule with `cutouts`",
        )  # fmt: skip
    return int(scenes.setting[row])


def _check_same(where: str, found: str, planned: str) -> None:
    if found != planned:
        raise InputError(
            where, "its files have changed since this run was planned",
            "start the run again: it makes anew what reads them",
        )  # fmt: skip
