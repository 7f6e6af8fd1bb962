"""Softmax attention of the planted oracles, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARPNESS = 24.0
Floats = NDArray[np.float32]


def softmax(scores: NDArray[Any]) -> Floats:
    """Return attention; where nothing can be seen it is 0."""
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1.0), np.float32)


def attend(
    queries: Floats, keys: Floats, hidden: NDArray[np.bool_], least: float = -np.inf
) -> Floats:
    """Return softmax attention (n, queries, keys) where products are at least `least`."""
    products = queries @ keys.swapaxes(-1, -2)
    return softmax(np.where(hidden | (products < least), -np.inf, SHARPNESS * products))


def nearness(rank: Floats, others: Floats) -> Floats:
    """Return attention scores (n, t) from one rank (n, 1) to others (n, t)."""
    return np.asarray(-4 * SHARPNESS * (rank - others) ** 2, np.float32)
