"""Images of the toys: small solids on a light ground, 3 x 3 slots of 12 px, NumPy only."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.task import Scenes
from bindscope.studies.binding_id.vocabulary import RGB

SLOT_PX = 12
SIDE = 3  # slots of a row
SLOTS = SIDE * SIDE
GROUND = 1.0
SHIFTS = 3  # places of a sprite in its slot per direction: one pixel aside or in the middle
OVERSAMPLED = 4
LIGHT = 0.1  # brightness varies by as much, and so does each channel


def images(scenes: Scenes, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw scenes, each thing with its own light, tint and place in the slot.

    Parameters
    ----------
    scenes
        n scenes.
    rng
        Where light, tint and place come from.

    Returns
    -------
    NDArray
        uint8 (n, 36, 36, 3).
    """
    n, k = scenes.shape.shape
    shift = rng.integers(SHIFTS * SHIFTS, size=(n, k))
    tint = 1 + LIGHT * rng.uniform(-1, 1, (n, k, 3))
    light = 1 + LIGHT * rng.uniform(-1, 1, (n, k, 1))
    colours = np.array([RGB[name] for name in scenes.words.colours]) / 255
    rgb = (colours[scenes.colour] * tint * light).astype(np.float32)
    cover, shade = (table[scenes.shape, shift][..., None] for table in _tables(scenes.words.shapes))
    drawn = (1 - cover) * GROUND + np.clip(shade * rgb[:, :, None, None], 0, 1)
    cells = np.full((n, SLOTS, SLOT_PX, SLOT_PX, 3), GROUND, np.float32)
    cells[np.arange(n)[:, None], scenes.slot] = drawn
    grid = cells.reshape(n, SIDE, SIDE, SLOT_PX, SLOT_PX, 3).transpose(0, 1, 3, 2, 4, 5)
    return np.rint(255 * grid).astype(np.uint8).reshape(n, SIDE * SLOT_PX, SIDE * SLOT_PX, 3)


@cache
def _tables(shapes: tuple[str, ...]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return coverage and shading of each shape and shift, float32 (shapes, 9, 12, 12)."""
    side = SLOT_PX * OVERSAMPLED
    middles = (np.arange(side) + 0.5) / OVERSAMPLED - SLOT_PX / 2
    cover = np.zeros((len(shapes), SHIFTS**2, SLOT_PX, SLOT_PX), np.float32)
    shade = np.zeros_like(cover)
    for i, name in enumerate(shapes):
        for j in range(SHIFTS**2):
            down, right = j // SHIFTS - 1, j % SHIFTS - 1
            inside, light = _solid(name, middles[None] - right, middles[:, None] - down)
            for table, values in ((cover, inside), (shade, inside * light)):
                blocks = values.reshape(SLOT_PX, OVERSAMPLED, SLOT_PX, OVERSAMPLED)
                table[i, j] = blocks.mean((1, 3))
    return cover, shade


def _solid(
    name: str, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return where a solid is and how light it is there, x and y in pixels from its middle."""
    x, y = np.broadcast_arrays(x, y)
    radius = np.hypot(x, y)
    round_light = 1.25 - 0.4 * np.abs(x / 3) ** 2
    solids = {
        "cone": ((np.abs(y) <= 4.5) & (np.abs(x) <= (y + 4.5) / 9 * 4.8), 1 - 0.35 * x / 5),
        "cube": ((np.abs(x) <= 4) & (np.abs(y) <= 4),
                 np.where(y < -1.5, 1.2, np.where(x > 0, 0.7, 0.95))),
        "can": ((np.abs(x) <= 3) & (np.abs(y) <= 5), np.where(y < -3, 1.25, round_light - 0.25)),
        "sphere": (radius <= 4.6, 1.15 - 0.07 * np.hypot(x + 1.5, y + 1.5)),
        "frustum": ((np.abs(y) <= 3) & (np.abs(x) <= 2.2 + (y + 3) / 6 * 3),
                    np.where(y < -1.5, 1.25, round_light - 0.25)),
        "prism": ((np.abs(x) + np.abs(y) <= 5.2), np.where(x > 0, 0.65, 1.1)),
        "pyramid": ((np.abs(y) <= 4.5) & (np.abs(x) <= (4.5 - y) / 9 * 4.8),
                    np.where(x > 0.8, 0.6, 1.15)),
        "torus": ((radius <= 5) & (radius >= 2.2), 1.2 - 0.25 * np.abs(radius - 3.2)),
    }  # fmt: skip
    return solids[name]
