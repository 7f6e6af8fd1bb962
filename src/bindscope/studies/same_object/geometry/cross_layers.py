"""The probe of one layer on the tokens of the others."""

from __future__ import annotations

from collections.abc import Mapping

from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.estimates import Bootstrap, Row, coarse_edges, counted
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.geometry.scored import Labels


def transfers(
    weights: Mapping[str, FittedScorer],
    tests: Mapping[str, PairData],
    labels: Labels,
    by: Bootstrap,
) -> dict[str, list[Row]]:
    """Apply the probe of each layer to the tokens of all layers; rows by the probe's layer."""
    found: dict[str, list[Row]] = {}
    for layer, probe in weights.items():
        found[layer] = []
        for other, data in tests.items():
            for name, scaling in (
                ("transfer_auc", None),
                ("transfer_rescaled_auc", weights[other].scaling),
            ):
                scores = probe.of_tokens(data, scaling)
                edges = coarse_edges(scores[labels.pairs])
                counts = counted(scores, labels.same, labels.pairs, edges)
                found[layer] += by.areas({(name, other): counts})
    return found
