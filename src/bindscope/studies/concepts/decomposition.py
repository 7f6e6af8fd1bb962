"""How far the embedding of a scene is a sum over its objects, and an object's one over its values.

Level I writes a scene as the mean of all plus a vector per object; level II writes these vectors as
sums over values.  Each is judged by R2, by finding the scene again, and by frozen probes on what
was put together (specification, section 2.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bindscope.studies.concepts.recognition import Readout, Recognition, recognise, unit
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import RESAMPLES
from bindscope.studies.concepts.vectors import (
    ESTIMATORS,
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
    found = [part @ directions for part in _parts(unit(queries), len(bank))]
    return np.concatenate([first_greatest(part) for part in found])


def first_greatest(similarities: Doubles) -> Integers:
    """Return the first column that is as great as the greatest one but for rounding, (n,)."""
    top = similarities.max(axis=1, keepdims=True)
    return np.asarray((similarities >= top - 1e-12 * np.abs(top)).argmax(axis=1))


def _parts(queries: Doubles, bank: int) -> Iterator[Doubles]:
    step = max(1, SIMILARITIES_AT_ONCE // bank)
    return (queries[start : start + step] for start in range(0, len(queries), step))


@dataclass(frozen=True)
class Decomposition:
    """How well embeddings are put together from vectors of objects or of values.

    Attributes
    ----------
    level
        1 from objects' vectors, 2 from those of values.
    estimator
        Of the vectors.
    r2, r2_global
        Against the mean of the scenes that are scored, and that of all scenes.
    retrieval_strict, retrieval_unordered
        Share of scenes whose reconstruction has its greatest cosine with the scene itself; with it
        or with one of the same objects in another order.
    r2_objects
        Level II: how far vectors of objects are those of their values, over all objects and slots;
        NaN at level I.
    n_scenes, n_skipped
        Scenes that are scored, and those of which an object has no vector.
    probed
        Recognition on the reconstructions.
    """

    level: int
    estimator: str
    r2: float
    r2_global: float
    retrieval_strict: float
    retrieval_unordered: float
    r2_objects: float
    n_scenes: int
    n_skipped: int
    probed: tuple[Recognition, ...]


def decompositions(
    z: Floats,
    scenes: Scenes,
    readout: Readout,
    estimators: tuple[Estimator, ...] = ESTIMATORS,
    *,
    single: SingleScenes | None = None,
    fit: Integers | Flags | None = None,
    scored: Integers | Flags | None = None,
    resamples: int = RESAMPLES,
) -> list[Decomposition]:
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
        Which; level II has none for `single`.
    single
        Scenes with one object; without them `single` is left out.
    fit, scored
        Scenes that vectors are estimated from, and those that are scored; default: all. Where they
        differ, R2 is out of sample.
    resamples
        Of the bootstrap.
    """
    everything = np.arange(len(scenes))
    fit = everything if fit is None else everything[fit]
    scored = everything if scored is None else everything[scored]
    known, own = scenes.take(fit), np.asarray(z[fit], np.float64)
    rows = []
    for estimator in estimators:
        if estimator == "single" and single is None:
            continue
        level_1 = object_vectors(own, known, estimator, single)
        both = {1: level_1}
        if estimator != "single":
            values = value_vectors(
                own, known, by_slot=estimator != "avg", fitted=estimator == "ols"
            )
            both[2] = composed(values, known, level_1.mean)
        for level, vectors in both.items():
            of_objects = _r2_of_objects(level_1, vectors) if level == 2 else np.nan
            rows.append(
                _row((level, estimator), vectors, of_objects, z, scenes, scored, readout, resamples)
            )
    return rows


def _r2_of_objects(real: ObjectVectors, put_together: ObjectVectors) -> float:
    known = ~np.isnan(real.table[:, :, 0] + put_together.table[:, :, 0])
    return r_squared(real.table[known], put_together.table[known])


def _row(
    kind: tuple[int, str],
    vectors: ObjectVectors,
    r2_objects: float,
    z: Floats,
    scenes: Scenes,
    scored: Integers,
    readout: Readout,
    resamples: int,
) -> Decomposition:
    asked = scenes.take(scored)
    reconstructed = vectors.reconstruct(asked)
    known = ~np.isnan(reconstructed[:, 0])
    index, part = scored[known], reconstructed[known]
    strict = unordered = r2 = r2_global = np.nan
    if len(index):
        found = nearest(part, z)
        strict = float((found == index).mean())
        unordered = float((scenes.unordered[found] == scenes.unordered[index]).mean())
        r2 = r_squared(z[index], part)
        r2_global = r_squared(z[index], part, np.asarray(z, np.float64).mean(axis=0))
    return Decomposition(
        *kind,
        r2,
        r2_global,
        strict,
        unordered,
        r2_objects,
        n_scenes=len(index),
        n_skipped=len(scored) - len(index),
        probed=tuple(recognise(readout, reconstructed, asked, resamples=resamples)),
    )
