"""Embeddings whose structure is known, for every analysis of the study.

All are sums over slots of Gaussian vectors with variance 1 per coordinate. A slot may add to a
table's vectors some of its own (`slot_effect`), else the order of objects leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bindscope.arrays.example import Example
from bindscope.core.array_types import Bools, Doubles
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.scenes import Scenes


@dataclass(frozen=True)
class PlantedVectors:
    """What the tables of an encoder are drawn from."""

    dim: int  # with fewer than objects, linear probes cannot distinguish all objects
    seed: int = 0
    slot_effect: float = 0.0  # standard deviation of what a slot adds to the vectors
    filled: Bools | None = None  # which slots hold an object, (n, m); all by default

    def table(self, rows: int, n_slots: int, *purpose: int) -> Doubles:
        """Return vectors (m, rows, d); `purpose` distinguishes the tables of one encoder."""
        draw = rng(self.seed, *purpose)
        common = draw.standard_normal((1, rows, self.dim))
        of_slots = draw.standard_normal((n_slots, rows, self.dim))
        return common + self.slot_effect * of_slots

    def concepts(self, scenes: Scenes, *purpose: int) -> Doubles:
        """Return the vector of each value in each slot, (n, m, C, d)."""
        slots = np.arange(scenes.n_slots)
        vectors = [
            self.table(size, scenes.n_slots, *purpose, k)[slots, scenes.values[:, :, k]]
            for k, size in enumerate(scenes.sizes)
        ]
        return self._of_filled(np.stack(vectors, axis=2))

    def objects(self, scenes: Scenes, *purpose: int) -> Doubles:
        """Return the vector of each object in its slot, (n, m, d)."""
        table = self.table(scenes.n_objects, scenes.n_slots, *purpose)
        return self._of_filled(table[np.arange(scenes.n_slots), scenes.slots])

    def _of_filled(self, vectors: Doubles) -> Doubles:
        """Set the vectors of empty slots to 0."""
        if self.filled is not None:
            vectors[~self.filled] = 0
        return vectors


def additive(scenes: Scenes, planted: PlantedVectors) -> Doubles:
    """Sum of the values' vectors: both levels of decomposition hold, and it does not bind."""
    return np.asarray(planted.concepts(scenes, 1).sum(axis=(1, 2)))


def lookup(scenes: Scenes, planted: PlantedVectors, weight: float = 1.0) -> Doubles:
    """Sum of the values' vectors and of a vector per object that follows from no rule.

    Probes recognize the objects, and no approximator predicts those it has not seen.
    """
    return np.asarray(additive(scenes, planted) + weight * planted.objects(scenes, 2).sum(axis=1))


def per_object(scenes: Scenes, planted: PlantedVectors) -> Doubles:
    """Sum over objects of the product of their values' vectors, coordinate by coordinate."""
    return np.asarray(planted.concepts(scenes, 3).prod(axis=2).sum(axis=1))


def global_product(scenes: Scenes, planted: PlantedVectors, spread: float = 0.5) -> Doubles:
    """Sum of the values' vectors, and the product over all of 1 + spread times others.

    About 1, since a product about 0 has no linear part: about 1 it holds the products
    within objects as well, next to those across.
    """
    product = (1 + spread * planted.concepts(scenes, 4)).prod(axis=(1, 2))
    return np.asarray(additive(scenes, planted) + product)


ENCODERS: dict[str, Callable[[Scenes, PlantedVectors], Doubles]] = {
    "additive": additive,
    "lookup": lookup,
    "per_object": per_object,
    "global": global_product,
}


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
    import pandas as pd

    scenes = Scenes.all_of((len(COLORS), len(SHAPES)))
    order = np.random.default_rng(random_state).permutation(len(scenes))
    scenes = scenes.take(np.sort(order[: N_SCENES if n is None else n]))
    planted = PlantedVectors(DIM, random_state, SLOT_EFFECT)
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
