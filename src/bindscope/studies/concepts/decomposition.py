"""How far the embedding of a scene is a sum over its objects, and an object's one over its values.

Level 1 writes a scene as the mean of all plus a vector per object; level 2 writes these vectors as
sums over values. Each is judged by R2, by retrieval of the scene, and by frozen probes of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from bindscope.core.array_types import Doubles, Floats, Integers
from bindscope.studies.concepts.recognition import Embedded, recognize, unit
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.set_separation import scalar
from bindscope.studies.concepts.vectors import (
    Estimator,
    ObjectVectors,
    composed,
    object_vectors,
    value_vectors,
)
from bindscope.tables.rows import Row

SIMILARITIES_AT_ONCE = 20_000_000


def r_squared(z: Floats, reconstructed: Floats) -> float:
    """Return 1 - sum |z - z^|^2 / sum |z - mean|^2 over scenes and dimensions (n, d).

    NaN where there is nothing to explain.
    """
    z = np.asarray(z, np.float64)
    total = float(np.square(z - z.mean(axis=0)).sum())
    return 1 - float(np.square(z - reconstructed).sum()) / total if total > 0 else np.nan


def nearest(queries: Floats, bank: Floats) -> Integers:
    """Return which row of a bank (N, d) has the greatest cosine with each query (n, d), (n,).

    Of equal rows the first; equal up to the rounding of float64.
    """
    directions, rows = unit(bank).T, unit(queries)
    step = max(1, SIMILARITIES_AT_ONCE // len(bank))
    return np.concatenate(
        [
            first_greatest(rows[start : start + step] @ directions)
            for start in range(0, max(len(rows), 1), step)
        ]
    )


def first_greatest(similarities: Doubles) -> Integers:
    """Return the first column that is as great as the greatest one but for rounding, (n,)."""
    top = similarities.max(axis=1, keepdims=True)
    return np.asarray((similarities >= top - 1e-12 * np.abs(top)).argmax(axis=1))


def decomposition_rows(embedded: Embedded, estimators: Sequence[Estimator]) -> Iterator[Row]:
    """Yield how far scenes are sums of vectors that were estimated from others, by level.

    There are no vectors of values by `single`, and nothing by it without scenes of one object.
    """
    fit = embedded.parts.estimated
    z, scenes = np.asarray(embedded.z[fit], np.float64), embedded.scenes.take(fit)
    for estimator in estimators:
        if estimator == "single" and embedded.single is None:
            continue
        objects = object_vectors(z, scenes, estimator, embedded.single)
        for row in _scores(embedded, objects):
            yield {"variant": estimator, "level": 1, **row}
        if estimator != "single":
            by_slot, fitted = estimator != "avg", estimator == "ols"
            values = value_vectors(z, scenes, by_slot=by_slot, fitted=fitted)
            sums = composed(values, scenes, objects.mean)
            for row in _scores(embedded, sums, objects):
                yield {"variant": estimator, "level": 2, **row}


def _scores(
    embedded: Embedded, vectors: ObjectVectors, objects: ObjectVectors | None = None
) -> Iterator[Row]:
    """Score sums of vectors; of sums over values also as approximations of those of `objects`."""
    scored, scenes = embedded.parts.scored, embedded.scenes
    scored_scenes = scenes.take(scored)
    reconstructed = vectors.reconstruct(scored_scenes)
    known = ~np.isnan(reconstructed[:, 0])
    index, part = scored[known], reconstructed[known]
    strict = unordered = r2 = np.nan
    if len(index):
        match = nearest(part, embedded.z)
        strict = float((match == index).mean())
        unordered = float((scenes.unordered[match] == scenes.unordered[index]).mean())
        r2 = r_squared(embedded.z[index], part)
    counts = len(index), len(scored) - len(index)
    yield scalar("r2", r2, *counts)
    if objects:
        both = ~np.isnan(objects.table[:, :, 0] + vectors.table[:, :, 0])
        yield scalar("r2_objects", r_squared(objects.table[both], vectors.table[both]), *counts)
    yield scalar("retrieval_strict", strict, *counts, 1 / len(scenes))
    yield scalar("retrieval_unordered", unordered, *counts)
    yield from recognize(embedded.readout, reconstructed, scored_scenes)


def picture(z: Floats, scenes: Scenes) -> dict[str, Any]:
    """Place the first two values, their objects, these objects' scenes and sums; or say why not."""
    from sklearn.manifold import MDS

    if scenes.n_slots != 2 or len(scenes.sizes) != 2:
        return {"why": "scenes have not two objects of two feature groups"}
    objects = [int(np.ravel_multi_index(pair, scenes.sizes)) for pair in product((0, 1), (0, 1))]
    pairs = [(a, b) for a in objects for b in objects if a != b]
    indices = scenes.find(np.array(pairs))
    if (indices < 0).any():
        return {"why": "a scene of the first two values of both feature groups is missing"}
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
    model = MDS(
        3,
        metric="precomputed",
        n_init=4,
        max_iter=300,
        random_state=0,
        init="random",
        normalized_stress=True,
    )
    places = model.fit_transform((apart + apart.T) / 2).tolist()
    kinds = [{"kind": kind, "objects": names} for kind, names, _ in points]
    rows = [{**kind, "place": place} for kind, place in zip(kinds, places, strict=True)]
    return {"points": rows, "stress": float(model.stress_)}
