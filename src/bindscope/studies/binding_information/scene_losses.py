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
    """Losses of the plain probe over O: by seed, of each test scene in bits, float64 (N,).

    Scenes of one of `clusters`, integers (N,), are drawn together by a bootstrap.
    """

    by_seed: dict[int, NDArray[np.float64]]
    clusters: NDArray[np.integer] | None


def to_arrays(
    by_seed: Mapping[int, NDArray[np.float64]], features: NDArray[np.integer], disjoint: bool
) -> dict[str, NDArray[Any]]:
    """Name the arrays of `SceneLosses` for a safetensors file.

    Where splits share no feature code (`disjoint`), scenes of one of `features` (N, n) are a
    cluster.
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
