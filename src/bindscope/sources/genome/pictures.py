"""Pictures of the synthetic release: things of one shape and color on a pale background."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bindscope.scenes.palette import COLORS, SHAPES
from bindscope.scenes.shapes import coverage

# The most different ones first; the names are an annotator's.
KINDS = {
    "ball": "circle", "box": "square", "tent": "triangle", "star": "star", "cross": "cross",
    "kite": "diamond", "house": "pentagon", "nut": "hexagon",
}  # fmt: skip
COLOR_NAMES = ("red", "blue", "green", "yellow", "purple", "orange", "gray")

CELLS = 3  # things stand in the cells of a 3 x 3 grid, so that none hides another
LARGE, SMALL = 0.95, 0.7  # side of a thing over that of its cell
SHADES = (0.65, 1.0, 1.3)  # brightness of a dark, plain and light color
_ANTIALIAS = 2
_NOISE = 5.0  # standard deviation of the ground, of 255
_EDGE = 60.0  # grey of the rim of a thing without color
_PALE = 0.6  # share of white in every second stripe

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


class Thing(NamedTuple):
    """One thing in a picture, in a square box of pixels.

    `kind`, `color` and `shade` are indices into `KINDS`, `COLOR_NAMES` and `SHADES`; -1 is no
    color: a glass thing, of which one sees the rim, and which has no stripes.
    """

    kind: int
    color: int
    large: bool
    striped: bool
    shade: int
    x: int
    y: int
    side: int


def sides(size_px: int) -> dict[bool, int]:
    """Side of large and small things in a picture of `size_px`."""
    cell = size_px // CELLS
    return {True: int(LARGE * cell), False: int(SMALL * cell)}


def paint(size_px: int, things: tuple[Thing, ...], random: np.random.Generator) -> Pixels:
    """Draw a picture of things whose boxes do not overlap, uint8 (size_px, size_px, 3), RGB.

    The ground is drawn at random: pale, from corner to corner, with noise.
    """
    canvas = _ground(size_px, random)
    for thing in things:
        window = canvas[thing.y : thing.y + thing.side, thing.x : thing.x + thing.side]
        covered = _covered(thing.kind, thing.side)
        if thing.color < 0:
            rim = max(thing.side // 8, 2)
            inside = np.pad(
                _covered(thing.kind, thing.side - 2 * rim), ((rim, rim), (rim, rim), (0, 0))
            )
            window += 0.3 * covered * (255.0 - window)
            window += np.clip(covered - inside, 0, 1) * (_EDGE - window)
        else:
            window += covered * (_ink(thing) - window)
    pixels: Pixels = np.clip(np.rint(canvas), 0, 255).astype(np.uint8)
    return pixels


def _covered(kind: int, side: int) -> Floats:
    shape = SHAPES.index(tuple(KINDS.values())[kind])
    covered: Floats = coverage(side, _ANTIALIAS)[shape][..., None]
    return covered


def _ink(thing: Thing) -> Floats:
    """Color of every pixel of a thing's box, float64 (side, side or 1, 3)."""
    color = np.array(COLORS[COLOR_NAMES[thing.color]], float)
    ink: Floats = np.clip(color * SHADES[thing.shade], 0, 255)
    if not thing.striped:
        return ink[None, None]
    width = max(thing.side // 6, 2)
    pale = (np.arange(thing.side) // width % 2 == 1)[:, None, None]
    return np.where(pale, ink + _PALE * (255.0 - ink), ink)


def _ground(size_px: int, random: np.random.Generator) -> Floats:
    corners = random.uniform(185, 240, (2, 2, 1)) + random.uniform(-12, 12, (2, 2, 3))
    noise = random.standard_normal((size_px, size_px, 3), np.float32)
    blend: Floats = (_blend(size_px) @ corners.reshape(4, 3)).reshape(size_px, size_px, 3)
    blend += _NOISE * noise
    return blend


@cache
def _blend(size_px: int) -> Floats:
    """Weights of the four corners for every pixel, float64 (size_px^2, 4)."""
    ramp = np.linspace(0, 1, size_px)
    down, right = (axis.ravel() for axis in np.meshgrid(ramp, ramp, indexing="ij"))
    weights = ((1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right)
    return np.stack(weights, axis=1)
