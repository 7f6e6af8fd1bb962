"""Which measures of trained encoders go with naming new combinations: correlations over models.

Models that differ in their seed alone are one group (`statistics.rank_correlation`). Coverage moves
most measures and most accuracies, so that a correlation over everything may be that of both with
coverage (Simpson): beside it stand those within a coverage, and within a kind of encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from bindscope.statistics.rank_correlation import rank_correlation

OUTCOME = "held_out_accuracy"
# Measure -> how a reader sees it.
MEASURES = {
    "product_accuracy": "recognised in what a product rule foretells",
    "pairing_ratio": "bits of what goes with what, share of all (>=)",
    "held_out_concept_accuracy": "values of held-out pairs recognised",
}
GROUP = ["encoder", "space", "query_pool", "coverage"]
FEWEST = 3  # groups of a stratum


class Correlated(NamedTuple):
    """One measure beside the recognition of held-out pairs, in one stratum of models.

    Attributes
    ----------
    measure, stratum
        Which.
    correlation, low, high
        Spearman's, of the groups' means, and its 95 % interval over groups and their models; the
        ends are NaN for fewer than five groups.
    pearson
        Pearson's, of the same means; NaN where one side is constant.
    n_models, n_groups
        How many.
    """

    measure: str
    stratum: str
    correlation: float
    low: float
    high: float
    pearson: float
    n_models: int
    n_groups: int


def strata(models: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all models, those of each coverage, and those of each encoder, space and pool."""
    yield "all", models
    for coverage, part in models.groupby("coverage"):
        yield f"coverage {coverage:g}", part
    for (encoder, space, pool), part in models.groupby(GROUP[:3], sort=False):
        yield f"{encoder}, {space}, queries {pool}", part


def correlated(models: pd.DataFrame, measure: str) -> list[Correlated]:
    """Correlate a measure with the recognition of held-out pairs in each stratum."""
    found = []
    for stratum, part in strata(models):
        groups = [
            rows[[measure, OUTCOME]].to_numpy(float) for _, rows in part.groupby(GROUP, sort=False)
        ]
        if len(groups) < FEWEST:
            continue
        value, low, high = rank_correlation(groups)
        means = np.array([group.mean(0) for group in groups])
        constant = (np.ptp(means, axis=0) == 0).any()
        pearson = np.nan if constant else float(np.corrcoef(means.T)[0, 1])
        found.append(
            Correlated(measure, stratum, value, low, high, pearson, len(part), len(groups))
        )
    return found
