"""Planted embeddings of pairs of objects, with what they bind."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bindscope.arrays.example import Example
from bindscope.studies.concepts.planted import Planted, additive, lookup, per_object
from bindscope.studies.concepts.scenes import Scenes

COLORS = ("blue", "green", "orange", "red", "yellow")
SHAPES = ("circle", "cross", "square", "star")
DIM, SLOT_EFFECT = 64, 0.3


def pairs(n: int | None, random_state: int) -> Example:
    """Make scenes of two of 20 objects: all 400 ordered pairs, or `n` of them at random.

    The embedding `values` is a sum of vectors of values: which color belongs to which shape cannot
    be recognized. `lookup` adds a vector per object, which follows no rule; `products` holds
    products of the values' vectors, so that a rule predicts new objects.
    """
    scenes = Scenes.all_of((len(COLORS), len(SHAPES)))
    if n is not None:
        order = np.random.default_rng(random_state).permutation(len(scenes))
        scenes = scenes.take(np.sort(order[:n]))
    planted = Planted(DIM, random_state, SLOT_EFFECT)
    arrays = {
        "values": additive(scenes, planted),
        "lookup": lookup(scenes, planted),
        "products": per_object(scenes, planted),
    }
    color, shape = scenes.values.reshape(-1, 2).T
    objects = pd.DataFrame(
        {
            "scene": np.repeat(np.arange(len(scenes)), scenes.n_slots),
            "color": pd.Categorical.from_codes(color, COLORS),
            "shape": pd.Categorical.from_codes(shape, SHAPES),
        }
    )
    truth = {
        "values": {"binds": 0.0, "follows_a_rule": 0.0},
        "lookup": {"binds": 1.0, "follows_a_rule": 0.0},
        "products": {"binds": 1.0, "follows_a_rule": 1.0},
    }
    return Example({name: z.astype(np.float32) for name, z in arrays.items()}, objects, truth)
