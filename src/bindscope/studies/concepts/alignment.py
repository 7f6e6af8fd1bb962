"""Whether two sets of vectors of the same objects are alike but for a rotation.

One orthogonal map is fitted on half of the objects, or values (orthogonal Procrustes), and judged
on the others. Controls: no map (where both have as many dimensions), and maps that are fitted to
exchanged vectors.

Source: Schoenemann (1966), "A generalized solution of the orthogonal Procrustes problem",
Psychometrika 31, 1-10.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bindscope.core.array_types import Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.statistics.means import mean_interval
from bindscope.studies.concepts.decomposition import first_greatest
from bindscope.studies.concepts.editing import derangement
from bindscope.studies.concepts.recognition import Embedded, unit
from bindscope.studies.concepts.set_separation import scalar
from bindscope.studies.concepts.vectors import object_vectors, value_vectors
from bindscope.tables.rows import Row, interval_columns

NEGLIGIBLE = 1e-9  # of the largest singular value
PERMUTATIONS = 20
FEWEST = 5  # vectors: three to fit a map, two to judge it by


def orthogonal_map(first: Floats, second: Floats) -> Doubles:
    """Return the map R (d1, d2) that brings centered `first` (n, d1) R closest to `second` (n, d2).

    It is a partial isometry of the rank of first' second: directions that the vectors do not
    determine, of which there are some where n <= d, go to 0.
    """
    u, singular, vt = np.linalg.svd(
        np.asarray(first, np.float64).T @ np.asarray(second, np.float64), full_matrices=False
    )
    nonzero = singular > NEGLIGIBLE * max(float(singular[0]), 1e-300)
    return np.asarray(u[:, nonzero] @ vt[nonzero])


def alignment_rows(embedded: Embedded, other_modality: Floats) -> Iterator[Row]:
    """Yield how vectors of half of the objects, or values, lie on those of the other modality."""
    scenes = embedded.scenes
    both = [object_vectors(z, scenes, "avg").without_slots for z in (embedded.z, other_modality)]
    of_objects = [table[scenes.present] for table in both]
    of_values = [
        np.concatenate([table[0] for table in value_vectors(z, scenes, by_slot=False)])
        for z in (embedded.z, other_modality)
    ]
    for level, (first, second) in ((1, of_objects), (2, of_values)):
        order = rng(0, 13, level).permutation(len(first))
        if len(order) < FEWEST:
            continue
        fitted, held_out = np.split(order, [(len(order) + 1) // 2])
        for row in align(first, second, np.sort(fitted), np.sort(held_out)):
            yield {"level": level, **row}


def align(first: Floats, second: Floats, fitted: Integers, held_out: Integers) -> Iterator[Row]:
    """Fit a map and its controls on some vectors (U, d1), (U, d2); yield scores of the others.

    Rows with NaN are skipped. Raises `InputError` if fewer than three others are there to fit, or
    fewer than two to judge by.
    """
    known = np.asarray(np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1))
    fit, test = fitted[known[fitted]], held_out[known[held_out]]
    if len(fit) < 3 or len(test) < 2:
        raise InputError(
            "alignment",
            f"{len(fit)} vectors are known to fit a map and {len(test)} to judge it by",
            "take more objects, or another share of them to fit",
        )
    a, b = (
        np.asarray(x, np.float64) - np.asarray(x[fit], np.float64).mean(0) for x in (first, second)
    )
    generator = rng(0, 11)
    exchanged = [fit[derangement(len(fit), generator)] for _ in range(PERMUTATIONS)]
    maps = {
        "orthogonal": [orthogonal_map(a[fit], b[fit])],
        "permuted": [orthogonal_map(a[fit], b[permutation]) for permutation in exchanged],
    }
    if a.shape[1] == b.shape[1]:
        maps["identity"] = [np.eye(a.shape[1])]
    n, skipped = len(test), len(fitted) + len(held_out) - len(fit) - len(test)
    candidates = unit(b[np.concatenate([test, fit])])
    similar = {
        name: [unit(a[test] @ by) @ candidates.T for by in all_] for name, all_ in maps.items()
    }
    i = np.arange(n)
    cosines = {name: np.mean([s[i, i] for s in some], axis=0) for name, some in similar.items()}
    gain = mean_interval(cosines["orthogonal"] - cosines["permuted"], possible=(-2.0, 2.0))
    for name, some in similar.items():
        cosine = mean_interval(cosines[name], possible=(-1.0, 1.0))
        against = interval_columns("gain", gain) if name == "orthogonal" else {}
        rows = (
            {
                **scalar("cosine", cosine.value, n, skipped),
                **interval_columns("value", cosine),
                **against,
                "n_resampled": n,
            },
            scalar("retrieval_held_out", _hit_rate([s[:, :n] for s in some]), n, skipped, 1 / n),
            scalar("retrieval_of_all", _hit_rate(some), n, skipped, 1 / len(candidates)),
        )
        yield from ({"variant": name, **row} for row in rows)


def _hit_rate(similar: list[Doubles]) -> float:
    """Return the share of vectors whose greatest cosine is with their own, over some maps."""
    return float(np.mean([first_greatest(s) == np.arange(len(s)) for s in similar]))
