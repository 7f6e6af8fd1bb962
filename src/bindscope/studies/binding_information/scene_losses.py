"""Test losses of every scene, as a fit leaves them for comparisons with other fits.

Two fits on the same scenes are compared scene by scene (`sharing_cost`), which needs more than each
one's mean and interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bindscope.statistics.bootstrap import cluster_numbers

_LOSSES = ".object_bits_of_scenes"
_CLUSTERS = "cluster_of_scenes"


class SceneLosses(NamedTuple):
    """Losses of the plain probe over O.

    Attributes
    ----------
    by_seed
        Seed -> loss of each test scene in bits, float64 (N,).
    clusters
        Integers (N,), the scenes that a bootstrap draws together; None: each by itself.
    """

    by_seed: dict[int, NDArray[np.float64]]
    clusters: NDArray[np.integer] | None


def to_arrays(
    by_seed: Mapping[int, NDArray[np.float64]], features: NDArray[np.integer], disjoint: bool
) -> dict[str, NDArray[Any]]:
    """Name the arrays for a safetensors file.

    Parameters
    ----------
    by_seed
        As in `SceneLosses`.
    features
        Feature codes of these scenes, (N, n).
    disjoint
        Whether the splits share no feature code: scenes of one code are a cluster then.

    Returns
    -------
    dict
        ``<seed>.object_bits_of_scenes`` float64 (N,), and where `disjoint`, ``cluster_of_scenes``
        int32 (N,).
    """
    arrays: dict[str, NDArray[Any]] = {f"{seed}{_LOSSES}": x for seed, x in by_seed.items()}
    if disjoint:
        arrays[_CLUSTERS] = cluster_numbers(features).astype(np.int32)
    return arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> SceneLosses:
    """Take what `to_arrays` named out of a fit's `details`."""
    by_seed = {
        int(name.removesuffix(_LOSSES)): losses
        for name, losses in arrays.items()
        if name.endswith(_LOSSES)
    }
    return SceneLosses(by_seed, arrays.get(_CLUSTERS))
