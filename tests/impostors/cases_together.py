"""Planted models: two measures that follow each other over groups, or only seem to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd
from cases import Case
from numpy.typing import NDArray

from bindscope.core.array_types import Doubles
from bindscope.statistics.claims import Effect
from bindscope.statistics.proportions import wilson_interval
from bindscope.studies.together.claims import (
    CORRELATED,
    READ,
    USED,
    correlation_effect,
    use_effects,
)
from bindscope.studies.together.names import MEASURED
from bindscope.studies.together.tables import PAIRING_USE_SCHEMA, SCHEMA
from bindscope.studies.together.views import points

SEEDS: Final = 3  # models of a group
RESAMPLES: Final = 500
SCATTER: Final = 0.1  # of models of a group, where groups have a deviation of about 1
ROWS: Final = 200  # test scenes, and pairs of contexts


def _table(bits: Doubles, leads: Doubles, layers: NDArray[np.int64]) -> pd.DataFrame:
    """Make the table of models (groups, seeds) that both studies measured."""
    groups, seeds = np.indices(bits.shape)
    rows = [
        {
            "dataset": "scenes",
            "model": f"g{group}-{seed}",
            "group": f"g{group}",
            "layer": str(layers[group]),
            "cls_status": MEASURED,
            "same_object_status": MEASURED,
            "cls_pairing_bits": bits[group, seed],
            "position_lead": leads[group, seed],
            "same_object_val_loss_bits": 0.1,
            "pairing_entropy_bits": 9.5,
        }
        for group, seed in zip(groups.ravel(), seeds.ravel(), strict=True)
    ]
    return pd.DataFrame(rows, columns=SCHEMA.names)


def _correlated(
    n_groups: int, relation: float = 0.0, depth: float = 0.0, seeds: int = SEEDS, kinds: float = 0.0
) -> Callable[[int], list[Effect]]:
    """Draw model groups: two properties with a relation, and what both depend on.

    `depth` is the weight of the depth of the networks. `kinds` moves the groups themselves, so that
    models of all groups together are correlated.
    """

    def measured(seed: int) -> list[Effect]:
        rng = np.random.default_rng(seed)
        layers = rng.permutation(np.resize(np.arange(2, 14), n_groups))
        common = depth * (layers - layers.mean()) / max(layers.std(), 1.0)
        common = common + kinds * np.arange(n_groups)
        first = rng.normal(size=n_groups)
        second = relation * first + np.sqrt(1 - relation**2) * rng.normal(size=n_groups)
        scatter = SCATTER * rng.normal(size=(2, n_groups, seeds))
        bits, leads = ((common + x)[:, None] for x in (first, second))
        model_points = points(
            _table(bits + scatter[0], leads + scatter[1], layers * (depth > 0) + 4)
        )
        return [correlation_effect("scenes", model_points, RESAMPLES, seed)]

    return measured


def _used(bits: float, changed: float, answered: float = 1.0) -> Callable[[int], list[Effect]]:
    """Draw a toy of which so much is decoded, and so many answers change."""

    def measured(seed: int) -> list[Effect]:
        rng = np.random.default_rng(seed)
        row = {
            "model": "toy",
            "suite": "s",
            "task": "t",
            "layer": 2,
            "depth": 6,
            "place": "input of decoder layer 0",
            "patches_status": MEASURED,
            "pairing_entropy_bits": 1.0,
            "answered": answered,
            "n_scenes": ROWS,
            "n_rows": ROWS,
        }
        for name, truth in (("patches_pairing_bits", bits), ("anew_from", changed)):
            share = rng.binomial(ROWS, truth) / ROWS
            low, high = (float(x[0]) for x in wilson_interval([ROWS * share], [ROWS]))
            row |= {name: share, f"{name}_low": low, f"{name}_high": high}
        return use_effects(pd.DataFrame([row], columns=PAIRING_USE_SCHEMA.names))

    return measured


CASES: Final = (
    Case("independent, 6 groups", _correlated(6), impostor=(CORRELATED,)),
    Case("independent, 12 groups", _correlated(12), impostor=(CORRELATED,)),
    Case("independent, 4 groups", _correlated(4), impostor=(CORRELATED,)),
    Case("depth alone, 8 groups", _correlated(8, depth=3.0), impostor=(CORRELATED,)),
    Case("depth alone, 12 groups", _correlated(12, depth=3.0), impostor=(CORRELATED,)),
    Case("two kinds of 9 models", _correlated(2, seeds=9, kinds=5.0), impostor=(CORRELATED,)),
    Case("one relation, 8 groups", _correlated(8, 0.98), genuine=(CORRELATED,)),
    Case("one relation beside depth", _correlated(12, 0.98, depth=1.0), genuine=(CORRELATED,)),
    Case("decoded, not used", _used(0.95, 0.01), genuine=(READ,), impostor=(USED,)),
    Case("used, a third decoded", _used(0.3, 0.9), genuine=(USED,), impostor=(READ,)),
    Case("half decoded, 5 % used", _used(0.5, 0.05), impostor=(READ, USED)),
    Case("wrong answers change", _used(0.95, 0.5, 0.5), genuine=(READ,), impostor=(USED,)),
)
