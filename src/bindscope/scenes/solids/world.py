"""What all backends share besides a scene's description: ground, sky, lamps, sRGB encoding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.scenes.solids.description import Light
from bindscope.scenes.solids.vocabulary import COLORS

GROUND = 0.5  # reflectance
SKY = 0.35  # radiance from everywhere, also seen behind the ground's edge
GROUND_HALF = 2000.0  # half the side of the ground where a backend needs one, in scene units

# Name, position, side, watts: CLEVR's three lamps. How strong they are is ours.
LAMPS = (
    Light("key", (6.44671, -2.90517, 4.2584), 0.5, 110.0),
    Light("fill", (-4.67112, -4.0136, 3.01122), 0.5, 35.0),
    Light("back", (-1.1685, 2.64602, 5.81574), 1.0, 55.0),
)


def reflectance(color: str) -> list[float]:
    """Return the reflectance of a color, red, green and blue.

    CLEVR hands its sRGB numbers to Blender as linear reflectances; so do we.
    """
    return [value / 255 for value in COLORS[color]]


def to_srgb(light: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Encode linear radiance (..., 3) as sRGB, uint8; what is brighter than 1 is white."""
    clipped = np.clip(light, 0, 1)
    encoded = np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(255 * encoded), np.uint8)


def from_srgb(values: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the linear radiance of sRGB values from 0 to 255; what `to_srgb` encodes."""
    share = np.asarray(values, np.float64) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
