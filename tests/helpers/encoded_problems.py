"""Encoded scenes of a dataset as a problem for probes, and the row of a fit to them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, feature_code
from bindscope.config.codes import Dataset
from bindscope.priors.anchors import anchors
from bindscope.priors.entropies import entropies
from bindscope.studies.binding_information.config import AnyProbe, Information
from bindscope.studies.binding_information.estimates import estimate
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit

Prior = dict[str, Any]


def problem(data: Dataset, encode: Callable[[str, np.ndarray], Any]) -> tuple[ProbeData, Prior]:
    """Return all scenes of a dataset, `encode(split, codes)` of each split, and its entropies."""
    sizes, splits = build_space(data.space).sizes, {}
    for split, n in data.n_scenes.model_dump().items():
        objects = sample_codes(data, split, 0, n)
        prior = anchors(data, objects)
        z = encode(split, objects)
        splits[split] = SplitData(z, objects, feature_code(objects, sizes), prior)
    return ProbeData(**splits, sizes=sizes), next(
        r for r in entropies(data) if r["split"] == "test"
    )


def measured(probe: AnyProbe, data: ProbeData, prior: Prior, samples: int = 50) -> dict[str, Any]:
    """Fit a probe, and return its row."""
    (result,) = fit(probe, data, [0])
    information = Information(bootstrap_samples=samples)
    return estimate(result, prior, data.test.objects, data.test.features, information)
