"""Planted embeddings of pairs of objects, with what they bind."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bindscope.arrays.example import Example
from bindscope.studies.concepts.planted_encoders import Planted, additive, per_object
from bindscope.studies.concepts.scenes import Scenes

COLORS = ("blue", "green", "orange", "purple", "red", "yellow")
SHAPES = ("circle", "cross", "heart", "square", "star", "triangle")
N_SCENES = 600
DIM, SLOT_EFFECT = 64, 0.3


def pairs(n: int | None, random_state: int) -> Example:
    """Make scenes of two of 36 objects, `n` (600) of the 1,296 ordered pairs.

    The embedding `values` is a sum of vectors of values: which color belongs to which shape cannot
    be recognized. `products` is a sum of products of an object's two vectors: it binds them, by a
    rule that holds for new objects.
    """
    scenes = Scenes.all_of((len(COLORS), len(SHAPES)))
    order = np.random.default_rng(random_state).permutation(len(scenes))
    scenes = scenes.take(np.sort(order[: N_SCENES if n is None else n]))
    planted = Planted(DIM, random_state, SLOT_EFFECT)
    arrays = {
        "values": additive(scenes, planted),
        "products": per_object(scenes, planted),
    }
    color, shape = scenes.values.reshape(-1, 2).T
    objects = pd.DataFrame(
        {
            "scene": np.repeat(np.arange(len(scenes)), scenes.n_slots),
            "color": pd.Categorical.from_codes(color, pd.Index(COLORS)),
            "shape": pd.Categorical.from_codes(shape, pd.Index(SHAPES)),
        }
    )
    truth = {
        "values": {"binds": 0.0},
        "products": {"binds": 1.0},
    }
    return Example({name: z.astype(np.float32) for name, z in arrays.items()}, objects, truth)
