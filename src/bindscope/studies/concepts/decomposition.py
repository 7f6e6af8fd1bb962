"""How far the embedding of a scene is a sum over its objects, and an object's one over its values.

Level I writes a scene as the mean of all plus a vector per object; level II writes these vectors as
sums over values.  Each is judged by R2, by finding the scene again, and by frozen probes on what
was put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bindscope.studies.concepts.recognition import Readout, Recognition, recognise, unit
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import RESAMPLES
from bindscope.studies.concepts.splits import Parts
from bindscope.studies.concepts.vectors import (
    Estimator,
    ObjectVectors,
    SingleScenes,
    composed,
    object_vectors,
    value_vectors,
)

SIMILARITIES_AT_ONCE = 20_000_000


def r_squared(z: Floats, reconstructed: Floats, reference: Doubles | None = None) -> float:
    """Return 1 - sum |z - z^|^2 / sum |z - reference|^2 over scenes and dimensions together.

    Parameters
    ----------
    z, reconstructed
        (n, d).
    reference
        (d,); default: the mean of these scenes. With that of all scenes, subsets compare.

    Returns
    -------
    NaN where there is nothing to explain.
    """
    z = np.asarray(z, np.float64)
    reference = z.mean(axis=0) if reference is None else reference
    total = float(np.square(z - reference).sum())
    return 1 - float(np.square(z - reconstructed).sum()) / total if total > 0 else np.nan


def nearest(queries: Floats, bank: Floats) -> Integers:
    """Return which row of a bank (N, d) has the greatest cosine with each query (n, d).

    Of equal ones the first; equal up to the rounding of float64.
    """
    directions = unit(bank).T
    similarities = [part @ directions for part in _parts(unit(queries), len(bank))]
    return np.concatenate([first_greatest(part) for part in similarities])


def first_greatest(similarities: Doubles) -> Integers:
    """Return the first column that is as great as the greatest one but for rounding, (n,)."""
    top = similarities.max(axis=1, keepdims=True)
    return np.asarray((similarities >= top - 1e-12 * np.abs(top)).argmax(axis=1))


def _parts(queries: Doubles, bank: int) -> Iterator[Doubles]:
    step = max(1, SIMILARITIES_AT_ONCE // bank)
    return (queries[start : start + step] for start in range(0, len(queries), step))


class Decomposition(NamedTuple):
    """How well embeddings are composed of vectors of objects (level 1) or of values (level 2).

    Attributes
    ----------
    level, estimator
        Of the vectors.
    r2
        Against the mean of the scenes that are scored.
    retrieval_strict, retrieval_unordered
        Share of scenes whose reconstruction has its greatest cosine with the scene itself; with it
        or with one of the same objects in another order.
    r2_objects
        Level 2: how far vectors of objects are those of their values, over all objects and slots.
    n_scenes, n_skipped
        Scenes that are scored, and those of which an object has no vector.
    probed
        Recognition in the reconstructions.
    """

    level: int
    estimator: str
    r2: float
    retrieval_strict: float
    retrieval_unordered: float
    r2_objects: float
    n_scenes: int
    n_skipped: int
    probed: list[Recognition]


def decompositions(
    z: Floats,
    scenes: Scenes,
    readout: Readout,
    estimators: Sequence[Estimator],
    parts: Parts,
    single: SingleScenes | None = None,
    *,
    resamples: int = RESAMPLES,
) -> Iterator[Decomposition]:
    """Decompose embeddings at both levels.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    readout
        Frozen probes, fitted on real embeddings.
    estimators
        Which; there are no vectors of values by `single`.
    parts
        Scenes that vectors are estimated from, and those that are scored.
    single
        Scenes with one object; without them `single` is omitted.
    resamples
        Of the bootstrap.
    """
    known, estimated = scenes.take(parts.estimated), np.asarray(z[parts.estimated], np.float64)
    for estimator in estimators:
        if estimator == "single" and single is None:
            continue
        objects = object_vectors(estimated, known, estimator, single)
        levels = {1: (objects, np.nan)}
        if estimator != "single":
            by_slot, fitted = estimator != "avg", estimator == "ols"
            values = value_vectors(estimated, known, by_slot=by_slot, fitted=fitted)
            sums = composed(values, known, objects.mean)
            levels[2] = sums, _r2_of_objects(objects, sums)
        for level, (vectors, r2_objects) in levels.items():
            scores = _scores(vectors, z, scenes, parts.scored, readout, resamples)
            yield Decomposition(level, estimator, r2_objects=r2_objects, **scores)


def _r2_of_objects(real: ObjectVectors, sums: ObjectVectors) -> float:
    known = ~np.isnan(real.table[:, :, 0] + sums.table[:, :, 0])
    return r_squared(real.table[known], sums.table[known])


def _scores(
    vectors: ObjectVectors, z: Floats, scenes: Scenes, scored: Integers, readout: Readout,
    resamples: int,
) -> dict[str, Any]:  # fmt: skip
    scored_scenes = scenes.take(scored)
    reconstructed = vectors.reconstruct(scored_scenes)
    known = ~np.isnan(reconstructed[:, 0])
    index, part = scored[known], reconstructed[known]
    strict = unordered = r2 = np.nan
    if len(index):
        match = nearest(part, z)
        strict = float((match == index).mean())
        unordered = float((scenes.unordered[match] == scenes.unordered[index]).mean())
        r2 = r_squared(z[index], part)
    return {
        "r2": r2, "retrieval_strict": strict, "retrieval_unordered": unordered,
        "n_scenes": len(index), "n_skipped": len(scored) - len(index),
        "probed": recognise(readout, reconstructed, scored_scenes, resamples=resamples),
    }  # fmt: skip
