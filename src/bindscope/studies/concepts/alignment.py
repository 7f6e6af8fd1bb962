"""Whether two sets of vectors of the same objects are alike but for a rotation.

One orthogonal map is fitted on some objects (orthogonal Procrustes), judged on others.  Controls:
no map (where both have as many dimensions), and maps that are fitted to exchanged objects.

Source: Schoenemann (1966), "A generalized solution of the orthogonal Procrustes problem",
Psychometrika 31, 1-10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.statistics.bootstrap import Interval
from bindscope.statistics.means import mean_interval
from bindscope.studies.concepts.decomposition import first_greatest
from bindscope.studies.concepts.recognition import unit
from bindscope.studies.concepts.removal import derangement
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers

Map = Literal["orthogonal", "identity", "permuted"]
NEGLIGIBLE = 1e-9  # of the largest singular value
PERMUTATIONS = 20


@dataclass(frozen=True)
class Alignment:
    """How well vectors that the map was not fitted on come to lie on those of the other set.

    Attributes
    ----------
    map
        `orthogonal`, or a control: `identity`, `permuted`.
    cosine
        Mean over held-out vectors of the cosine with the one of the same object, both centred by
        the mean of the fitted ones, with its t interval over objects.
    gain
        Of the orthogonal map: its cosine minus that of the permuted ones, object by object.
    retrieval, retrieval_all
        Share of held-out vectors whose greatest cosine is with the one of the same object, among
        those that were held out, and among all.
    chance, chance_all
        Of these.
    n_fitted, n_held_out, rank
        Vectors on each side of the split, and dimensions that the map is determined in; what lies
        outside of them is mapped to 0.
    n_skipped
        Vectors that are not known in one of the sets.
    """

    map: str
    cosine: Interval
    gain: Interval | None
    retrieval: float
    retrieval_all: float
    chance: float
    chance_all: float
    n_fitted: int
    n_held_out: int
    rank: int
    n_skipped: int


def orthogonal_map(first: Floats, second: Floats) -> Doubles:
    """Return the map R with orthonormal directions that brings `first` R closest to `second`.

    Parameters
    ----------
    first, second
        Centred, (n, d1) and (n, d2).

    Returns
    -------
    float64 (d1, d2): a partial isometry of the rank of first' second. Directions that the vectors
    do not determine, of which there are some where n <= d, go to 0 and not anywhere.
    """
    u, singular, vt = np.linalg.svd(
        np.asarray(first, np.float64).T @ np.asarray(second, np.float64), full_matrices=False
    )
    nonzero = singular > NEGLIGIBLE * max(float(singular[0]), 1e-300)
    return np.asarray(u[:, nonzero] @ vt[nonzero])


def align(
    first: Floats, second: Floats, fitted: Integers, held_out: Integers, *, seed: int = 0
) -> list[Alignment]:
    """Fit a map and its controls on some vectors and judge them on others.

    Parameters
    ----------
    first, second
        Vectors of the same things, (U, d1) and (U, d2); rows with NaN are not known.
    fitted, held_out
        Which things the map is fitted on, and judged by.
    seed
        Of the control's permutations.

    Raises
    ------
    InputError
        If fewer than three known vectors are there to fit, or fewer than two to judge by.
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
    generator = rng(seed, 11)
    exchanged = [fit[derangement(len(fit), generator)] for _ in range(PERMUTATIONS)]
    maps: dict[Map, list[Doubles]] = {
        "orthogonal": [orthogonal_map(a[fit], b[fit])],
        "permuted": [orthogonal_map(a[fit], b[permutation]) for permutation in exchanged],
    }
    if a.shape[1] == b.shape[1]:
        maps["identity"] = [np.eye(a.shape[1])]
    skipped = len(fitted) + len(held_out) - len(fit) - len(test)
    others = unit(b[np.concatenate([test, fit])])
    similar = {name: [unit(a[test] @ by) @ others.T for by in all_] for name, all_ in maps.items()}
    i = np.arange(len(test))
    cosines = {name: np.mean([s[i, i] for s in some], axis=0) for name, some in similar.items()}
    gain = mean_interval(cosines["orthogonal"] - cosines["permuted"], possible=(-2.0, 2.0))
    return [
        Alignment(
            name,
            mean_interval(cosines[name], possible=(-1.0, 1.0)),
            gain if name == "orthogonal" else None,
            retrieval=_hit_rate([s[:, : len(test)] for s in some]),
            retrieval_all=_hit_rate(some),
            chance=1 / len(test),
            chance_all=1 / len(others),
            n_fitted=len(fit),
            n_held_out=len(test),
            rank=int(np.linalg.matrix_rank(maps[name][0])),
            n_skipped=skipped,
        )
        for name, some in similar.items()
    ]


def _hit_rate(similar: list[Doubles]) -> float:
    """Return the share of vectors whose greatest cosine is with their own, over some maps."""
    return float(np.mean([first_greatest(s) == np.arange(len(s)) for s in similar]))
