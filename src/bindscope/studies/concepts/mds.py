"""The vectors of two values of each of two types, and of what they make, in three dimensions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from sklearn.manifold import MDS

from bindscope.studies.concepts.recognition import unit
from bindscope.studies.concepts.scenes import Floats, Scenes
from bindscope.studies.concepts.vectors import object_vectors, value_vectors


def picture(z: Floats, scenes: Scenes) -> dict[str, Any]:
    """Place the first two values, their objects, these objects' scenes and sums; or say why not."""
    if scenes.n_slots != 2 or len(scenes.sizes) != 2:
        return {"why": "scenes have not two objects of two types"}
    objects = [int(np.ravel_multi_index(pair, scenes.sizes)) for pair in product((0, 1), (0, 1))]
    pairs = [(a, b) for a in objects for b in objects if a != b]
    indices = scenes.find(np.array(pairs))
    if (indices < 0).any():
        return {"why": "a scene of the first two values of both types is missing"}
    vectors, values = object_vectors(z, scenes, "avg"), value_vectors(z, scenes, by_slot=False)
    mean, table = vectors.mean, vectors.table[0]
    points: list[tuple[str, tuple[int, ...], Any]] = [
        *(("value", (), values[k][0, v] + mean) for k in range(2) for v in range(2)),
        *(("object", (o,), table[o] + mean) for o in objects),
        *(("scene", pair, z[i]) for pair, i in zip(pairs, indices, strict=True)),
        *(("sum", pair, mean + table[list(pair)].sum(0)) for pair in pairs if pair[0] < pair[1]),
    ]
    directions = unit(np.stack([np.asarray(vector) for *_, vector in points]))
    apart = np.clip(1 - directions @ directions.T, 0, None) * (1 - np.eye(len(points)))
    model = MDS(3, metric="precomputed", n_init=4, max_iter=300, random_state=0, init="random",
                normalized_stress=True)  # fmt: skip
    places = model.fit_transform((apart + apart.T) / 2).tolist()
    kinds = [{"kind": kind, "objects": names} for kind, names, _ in points]
    rows = [{**kind, "place": place} for kind, place in zip(kinds, places, strict=True)]
    return {"points": rows, "stress": float(model.stress_)}
