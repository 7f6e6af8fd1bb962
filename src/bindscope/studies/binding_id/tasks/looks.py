"""Light, ground, sizes and clutter of images that are to look less alike (specification, E15).

All of it follows from a scene's setting (a number), its layout and the slots that are taken, so
that two scenes of one setting whose things are exchanged differ in their things alone. Ranges are
ours; things stay as bright and as large as it takes to tell their colours and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import ConfigError
from bindscope.fitting.generators import rng
from bindscope.scenes.solids.portraits import PITCH, SUN, Portrait, portrait
from bindscope.scenes.solids.world import from_srgb
from bindscope.studies.binding_id.tasks.layouts import Layout
from bindscope.studies.binding_id.tasks.scenes import Rule

Sun = tuple[float, float, float]
Doubles = NDArray[np.float64]

# None lower than the published one, or shadows would leave the pixels that are kept for them.
SUNS: tuple[Sun, ...] = (SUN, (0.45, -0.55, 1.0), (-0.55, 0.1, 1.0), (0.5, 0.25, 1.0))
SIZES = (1.0, 0.9, 0.8)  # over the size that the word stands for
STRENGTH = (0.75, 1.2)  # of all light
HARDNESS = (0.5, 1.4)  # of shadows
TINT = 30  # by which the ground's sRGB values may differ from grey
TEXTURE = (0.04, 0.16)  # how far it varies the ground's light
GRAIN_PX = (14, 44)  # of a texture
BODIES = ("capsule", "hourglass", "octahedron")  # of clutter: no word stands for one of them
GREYS = ((232, 230, 224), (168, 168, 166), (104, 102, 98), (48, 48, 50))  # nor for their colours
SIDES_PX, CLUTTER_MARGIN_PX, CLUTTER_SAMPLES = (22, 26, 30), 14, 3


@dataclass(frozen=True)
class Look:
    """How far images may differ from the published ones: see `scenes.Rule`."""

    varied: bool = False
    clutter: int = 0

    @classmethod
    def of(cls, rule: Rule) -> Look:
        """Return the look of a rule."""
        return cls(rule.look == "varied", rule.clutter)


PUBLISHED = Look()


@dataclass(frozen=True, eq=False)
class Clutter:
    """A thing that no text mentions: its portrait, linear colour, and the window's corner."""

    face: Portrait
    tint: Doubles
    top: int
    left: int


@dataclass(frozen=True, eq=False)
class Setting:
    """What an image shows besides the things of its scene.

    Attributes
    ----------
    ground
        Light of the empty image, float64 (size, size, 3).
    sun
        Where the sun is.
    strength
        Factor of all light.
    hardness
        Factor of shadows.
    sizes
        Of the thing in each slot.
    clutter
        Further things; their windows share no pixel with each other or a region that is taken.
    """

    ground: Doubles
    sun: Sun = SUN
    strength: float = 1.0
    hardness: float = 1.0
    sizes: tuple[float, ...] = ()
    clutter: tuple[Clutter, ...] = ()


def setting_of(
    number: int, look: Look, layout: Layout, taken: NDArray[np.int64], ground: Doubles
) -> Setting:
    """Return the setting of one image.

    Parameters
    ----------
    number
        The scene's setting.
    look, layout
        What may vary, and where slots are.
    taken
        Slots where things stand.
    ground
        The published one.

    Raises
    ------
    ConfigError
        If there is no place left for clutter.
    """
    draw, sun = rng(number, 0), SUN
    strength, hardness, sizes = 1.0, 1.0, (1.0,) * len(layout.regions)
    if look.varied:
        ground = _ground(draw, layout.size_px)
        sun = SUNS[draw.integers(len(SUNS))]
        strength, hardness = draw.uniform(*STRENGTH), draw.uniform(*HARDNESS)
        sizes = tuple(SIZES[i] for i in draw.integers(len(SIZES), size=len(layout.regions)))
    things = tuple(_clutter(rng(number, 1), look.clutter, layout, taken, sun))
    return Setting(ground, sun, float(strength), float(hardness), sizes, things)


def _ground(draw: np.random.Generator, size: int) -> Doubles:
    """Draw a floor: light that changes from top to bottom, a tint and a texture."""
    knee = draw.uniform(20, 220)
    greys = draw.uniform(40, 190), draw.uniform(110, 225), draw.uniform(130, 235)
    tints = draw.uniform(-TINT, TINT, (3, 3))
    at = (0.0, knee, float(size))
    knots = np.clip(np.array(greys)[:, None] + tints, 0, 255)
    rows = np.stack([np.interp(np.arange(size), at, knot) for knot in knots.T], axis=-1)
    texture = 1 + draw.uniform(*TEXTURE) * _texture(draw, size)
    return np.asarray(from_srgb(rows)[:, None] * texture[..., None], np.float64)


def _texture(draw: np.random.Generator, size: int) -> Doubles:
    """Draw a pattern on the floor, about -1 to 1, as the eye sees it from above, (size, size)."""
    # In parallel projection, what lies back on the floor is shortened alike everywhere.
    across, back = np.meshgrid(np.arange(size), np.arange(size) / np.sin(np.radians(PITCH)))
    turn, grain = draw.uniform(0, np.pi), draw.uniform(*GRAIN_PX)
    u = (across * np.cos(turn) + back * np.sin(turn)) / grain
    v = (back * np.cos(turn) - across * np.sin(turn)) / grain
    kind = draw.integers(3)
    if kind == 0:  # tiles
        return np.asarray(np.tanh(8 * np.sin(np.pi * u) * np.sin(np.pi * v)))
    if kind == 1:  # boards
        return np.asarray(np.tanh(6 * np.sin(np.pi * u)) * (0.7 + 0.3 * np.sin(0.37 * v)))
    return _noise(draw, u, v)


def _noise(draw: np.random.Generator, u: Doubles, v: Doubles) -> Doubles:
    """Draw smooth noise of three grains."""
    found = np.zeros_like(u)
    for octave in range(3):
        lattice = draw.uniform(-1, 1, (64, 64))
        x, y = u * 2**octave, v * 2**octave
        i, j = np.floor(x).astype(int), np.floor(y).astype(int)
        a, b = (_smooth(part) for part in (x - i, y - j))
        corners = [lattice[(i + di) % 64, (j + dj) % 64] for di in (0, 1) for dj in (0, 1)]
        low = corners[0] * (1 - b) + corners[1] * b
        high = corners[2] * (1 - b) + corners[3] * b
        found += (low * (1 - a) + high * a) / 2**octave
    return found


def _smooth(share: Doubles) -> Doubles:
    return np.asarray(share * share * (3 - 2 * share))


def _clutter(
    draw: np.random.Generator, n: int, layout: Layout, taken: NDArray[np.int64], sun: Sun
) -> Iterator[Clutter]:
    """Place things by chance where no region that is taken, and no other's window, is."""
    free = np.ones((layout.size_px, layout.size_px), bool)
    for left, top, right, bottom in layout.boxes(taken).tolist():
        free[top:bottom, left:right] = False
    for _ in range(n):
        body, grey, side = (int(draw.integers(len(x))) for x in (BODIES, GREYS, SIDES_PX))
        face = portrait(
            BODIES[body], "rubber", SIDES_PX[side], SIDES_PX[side], 1.0, CLUTTER_MARGIN_PX,
            CLUTTER_SAMPLES, sun,
        )  # fmt: skip
        window = face.covered.shape[0]
        corners = np.argwhere(_room(free, window))
        if not len(corners):
            raise ConfigError(
                "clutter", f"there is no place left for {n} things beside {len(taken)}",
                "set `clutter` to fewer, or `things`",
            )  # fmt: skip
        top, left = corners[draw.integers(len(corners))].tolist()
        free[top : top + window, left : left + window] = False
        yield Clutter(face, from_srgb(np.array(GREYS[grey])), top, left)


def _room(free: NDArray[np.bool_], window: int) -> NDArray[np.bool_]:
    """Return which corners (top, left) have a free window, by sums over rectangles."""
    sums = np.pad(free.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = (
        sums[window:, window:] - sums[:-window, window:] - sums[window:, :-window]
        + sums[:-window, :-window]
    )  # fmt: skip
    return np.asarray(inside == window * window)
