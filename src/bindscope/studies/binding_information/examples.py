"""Planted representations of scenes of paired features, with their truth in bits."""

from __future__ import annotations

from math import comb, factorial, log2

import numpy as np
import pandas as pd

from bindscope.arrays.example import Example

N_VALUES, N_CHOSEN, DIM = 5, 4, 64
COLORS = ("blue", "green", "orange", "red", "yellow")
SHAPES = ("circle", "cross", "square", "star", "triangle")


def matching(n: int | None, random_state: int) -> Example:
    """Make scenes of 4 of 5 colors paired with 4 of 5 shapes.

    The representation `features` is a sum of vectors of colors and of shapes; `pairs` is a sum of
    a vector per object. Both are known to hold all bits of the features; `pairs` those of the
    pairing too.
    """
    n = 2000 if n is None else n
    rng = np.random.default_rng(random_state)
    colors, shapes = (
        rng.random((n, N_VALUES)).argsort(axis=1)[:, :N_CHOSEN] for _ in ("colors", "shapes")
    )
    of_color, of_shape = rng.normal(size=(2, N_VALUES, DIM))
    of_object = rng.normal(size=(N_VALUES, N_VALUES, DIM))
    arrays = {
        "features": of_color[colors].sum(1) + of_shape[shapes].sum(1),
        "pairs": of_object[colors, shapes].sum(1),
    }
    objects = pd.DataFrame(
        {
            "scene": np.repeat(np.arange(n), N_CHOSEN),
            "color": pd.Categorical.from_codes(colors.ravel(), pd.Index(COLORS)),
            "shape": pd.Categorical.from_codes(shapes.ravel(), pd.Index(SHAPES)),
        }
    )
    features, pairing = 2 * log2(comb(N_VALUES, N_CHOSEN)), log2(factorial(N_CHOSEN))
    truth = {
        name: {"feature_bits": features, "pairing_bits": bits}
        for name, bits in (("features", 0.0), ("pairs", pairing))
    }
    space = {"kind": "balanced", "chosen": (N_CHOSEN, N_CHOSEN), "n_objects": N_CHOSEN}
    return Example(
        {name: z.astype(np.float32) for name, z in arrays.items()}, objects, truth, space
    )
