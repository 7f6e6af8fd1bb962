"""Which measures of trained encoders go with naming new combinations: correlations over models.

Models that differ in their seed alone are one group (`statistics.rank_correlation`). Coverage and
the kind of encoder move most measures and most accuracies, so that a correlation over everything
may be that of both with these (Simpson). Claims are judged by what is left of both properties after
the mean of each coverage, and of each kind in each space, is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bindscope.statistics.rank_correlation import rank_correlation

OUTCOME = "held_out_accuracy"
# Measure -> how a reader sees it.
MEASURES = {
    "product_accuracy": "recognised in what a product rule predicts",
    "pairing_ratio": "pairing, share of all (>=)",
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


WITHIN = "of one kind and coverage"


def without_kind_and_coverage(models: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a table with the parts of columns that coverage and kind of encoder do not explain.

    The parts are least squares on a column of ones for each coverage, and for each encoder and
    space.
    """
    kinds = models["encoder"] + " " + models["space"]
    design = np.concatenate(
        [pd.get_dummies(names).to_numpy(float) for names in (models["coverage"], kinds)], axis=1
    )
    values = models[list(columns)].to_numpy(float)
    rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    rest[np.abs(rest) < 1e-9 * values.std(axis=0)] = 0  # rounding has no order
    return models.assign(**dict(zip(columns, rest.T, strict=True)))


def strata(models: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all models, what is left of them, those of each coverage, and of each encoder."""
    yield "all", models
    yield WITHIN, without_kind_and_coverage(models, [*MEASURES, OUTCOME])
    for coverage, part in models.groupby("coverage"):
        yield f"coverage {coverage:g}", part
    for (encoder, space, pool), part in models.groupby(GROUP[:3], sort=False):
        yield f"{encoder}, {space}, queries {pool}", part


def correlated(models: pd.DataFrame, measure: str, only: str | None = None) -> list[Correlated]:
    """Correlate a measure with the recognition of held-out pairs in each stratum, or in one."""
    found = []
    for stratum, part in strata(models):
        if only not in (None, stratum):
            continue
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
