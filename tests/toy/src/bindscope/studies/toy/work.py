"""What the toy study computes."""

from __future__ import annotations

import numpy as np

from bindscope.activations.reader import Activations


def mean_length(index: str, layer: int | str) -> float:
    """Return the mean Euclidean length of the test split's [CLS] tokens."""
    tokens = Activations(index).pooled("test", "cls", layer)
    return float(np.linalg.norm(tokens, axis=1).mean())
