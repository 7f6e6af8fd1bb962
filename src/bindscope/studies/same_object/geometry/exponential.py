"""The curve that is fitted to what falls with distance, and drawn beside it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FIELDS = ("floor", "amplitude", "length")  # p_inf, A and lambda, in the order of `curve`


def curve(
    d: NDArray[np.float64], floor: float, amplitude: float, length: float
) -> NDArray[np.float64]:
    """Return p_inf + A exp(-d / lambda) at distances (k,)."""
    found: NDArray[np.float64] = floor + amplitude * np.exp(-d / length)
    return found
