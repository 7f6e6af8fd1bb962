"""What sharing a quadratic probe's weights between objects costs, in bits of test loss of O.

The probe `quadratic_reuse` has the projections of `quadratic` in common for all objects with the
same feature value; how much worse it predicts says how far a representation codes objects by their
features alone. Both probes are tested on the same scenes, so the difference is
paired: a scene that is hard for both does not widen its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bindscope.statistics.bootstrap import paired_difference
from bindscope.studies.binding_information.scene_losses import SceneLosses

PLAIN, SHARED = "quadratic", "quadratic_reuse"

Floats = npt.NDArray[np.float64]
Names = tuple[str, str, str]


class SharingCost(NamedTuple):
    """The cost, bits per scene: over seeds with its 95 % interval, and of every seed."""

    cost_bits: float
    low: float
    high: float
    seed_costs: tuple[float, ...]


def sharing_cost(
    plain: Sequence[Floats],
    shared: Sequence[Floats],
    clusters: npt.NDArray[np.integer] | None = None,
    n_samples: int = 1000,
    seed: int = 0,
) -> SharingCost:
    """Subtract the plain probe's losses from the shared one's, scene by scene.

    Losses are per seed, in bits, float64 (N,), of the same N scenes; those of one of `clusters` are
    drawn together. Seeds are not resampled: the interval is that of the mean over them.
    """
    differences = [b - a for a, b in zip(plain, shared, strict=True)]
    seed_costs = tuple(float(difference.mean()) for difference in differences)
    paired = paired_difference(
        np.mean(shared, axis=0), np.mean(plain, axis=0), n_samples, seed, clusters
    )
    return SharingCost(*paired, seed_costs)


def sharing_costs(
    fits: Iterable[tuple[Names, str, SceneLosses]], n_samples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Tabulate the cost where both probes were fitted, over the seeds that both have.

    `fits` are (dataset, model, tokens), family and losses of fits at one layer per model and token
    input; other families are passed over. Fits of one family and seed (of several ranks, say) are
    averaged; seeds that diverged are left out. Columns are the names and those of `SharingCost`.
    """
    groups: dict[Names, dict[str, dict[int, list[Floats]]]] = {}
    clusters: dict[Names, npt.NDArray[np.integer] | None] = {}
    for names, family, losses in fits:
        if family not in (PLAIN, SHARED):
            continue
        by_family = groups.setdefault(names, {PLAIN: {}, SHARED: {}})[family]
        clusters[names] = losses.clusters
        for probe_seed, bits in losses.by_seed.items():
            if np.isfinite(bits).all():
                by_family.setdefault(probe_seed, []).append(bits)
    rows = []
    for names, families in groups.items():
        if seeds := sorted(families[PLAIN].keys() & families[SHARED].keys()):
            plain, shared = (
                [np.mean(families[family][s], axis=0) for s in seeds] for family in (PLAIN, SHARED)
            )
            rows.append((*names, *sharing_cost(plain, shared, clusters[names], n_samples, seed)))
    return pd.DataFrame(rows, columns=["dataset", "model", "tokens", *SharingCost._fields])
