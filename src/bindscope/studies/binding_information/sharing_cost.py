"""What sharing a quadratic probe's weights between objects costs, in bits of test loss of O.

The probe `quadratic_reuse` has the projections of `quadratic` in common for all objects with the
same feature; how much worse it predicts says how far a representation codes objects by their
features alone. Both probes are tested on the same scenes, so the difference is paired: a scene that
is hard for both does not widen its interval. So fits leave the losses of every scene.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bindscope.core.array_types import Doubles
from bindscope.statistics.bootstrap import cluster_numbers, paired_difference
from bindscope.studies.binding_information.names import PAPERS
from bindscope.studies.binding_information.quantities import PLAIN, SHARED

_LOSSES = ".object_bits_of_scenes"
_CLUSTERS = "cluster_of_scenes"

Names = tuple[str, str, str]


class SceneLosses(NamedTuple):
    """Losses of the plain probe over O: by seed, of each test scene in bits, float64 (N,).

    Scenes of one of `clusters`, integers (N,), are drawn together by a bootstrap.
    """

    by_seed: dict[int, Doubles]
    clusters: npt.NDArray[np.integer] | None


def to_arrays(
    by_seed: Mapping[int, Doubles], features: npt.NDArray[np.integer], disjoint: bool
) -> dict[str, npt.NDArray[Any]]:
    """Name the arrays of `SceneLosses` for a fit's `details`.

    Where splits share no feature code (`disjoint`), scenes of one of `features` (N, n) are a
    cluster.
    """
    arrays: dict[str, npt.NDArray[Any]] = {f"{seed}{_LOSSES}": x for seed, x in by_seed.items()}
    if disjoint:
        arrays[_CLUSTERS] = cluster_numbers(features).astype(np.int32)
    return arrays


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> SceneLosses:
    """Take what `to_arrays` named out of a fit's `details`."""
    names = [name for name in arrays if name.endswith(_LOSSES)]
    by_seed = {int(name.removesuffix(_LOSSES)): arrays[name] for name in names}
    return SceneLosses(by_seed, arrays.get(_CLUSTERS))


class SharingCost(NamedTuple):
    """The cost, bits per scene: over seeds with its 95 % interval, and of every seed.

    `released`: of probes fitted by the paper's protocol, whose heads hold no linear map of their
    own; those of ours do, and do not share it.
    """

    dataset: str
    model: str
    tokens: str
    cost_bits: float
    low: float
    high: float
    seed_costs: tuple[float, ...]
    released: bool = False


def sharing_cost(
    names: Names,
    plain: Sequence[Doubles],
    shared: Sequence[Doubles],
    clusters: npt.NDArray[np.integer] | None = None,
    n_samples: int = 1000,
    seed: int = 0,
) -> SharingCost:
    """Subtract the plain probe's losses from the shared one's, scene by scene.

    Losses are per seed, in bits, float64 (N,), of the same N scenes; those of one of `clusters` are
    drawn together. Seeds are not resampled: the interval is that of the mean over them.
    """
    seed_costs = tuple(float((b - a).mean()) for a, b in zip(plain, shared, strict=True))
    means = np.mean(shared, axis=0), np.mean(plain, axis=0)
    return SharingCost(*names, *paired_difference(*means, n_samples, seed, clusters), seed_costs)


def sharing_costs(
    fits: Iterable[tuple[Names, str, SceneLosses]], n_samples: int = 1000, seed: int = 0
) -> list[SharingCost]:
    """Return the cost where both probes were fitted, over the seeds that both have.

    `fits` are (dataset, model, tokens), family and losses of fits at one layer per model and token
    input; other families are passed over. Fits of one family and seed (of several ranks, say) are
    averaged; seeds that diverged are left out. Families that end with `names.PAPERS` are compared
    with one another.
    """
    losses: dict[tuple[Names, bool], dict[str, dict[int, list[Doubles]]]] = {}
    clusters: dict[Names, npt.NDArray[np.integer] | None] = {}
    for names, name, of_scenes in fits:
        family, released = name.removesuffix(PAPERS), name.endswith(PAPERS)
        if family in (PLAIN, SHARED):
            both = losses.setdefault((names, released), {PLAIN: {}, SHARED: {}})
            clusters[names] = of_scenes.clusters
            for probe_seed, bits in of_scenes.by_seed.items():
                if np.isfinite(bits).all():
                    both[family].setdefault(probe_seed, []).append(bits)
    costs = []
    for (names, released), families in losses.items():
        if seeds := sorted(families[PLAIN].keys() & families[SHARED].keys()):
            plain, shared = (
                [np.mean(families[family][s], axis=0) for s in seeds] for family in (PLAIN, SHARED)
            )
            cost = sharing_cost(names, plain, shared, clusters[names], n_samples, seed)
            costs.append(cost._replace(released=released))
    return costs
