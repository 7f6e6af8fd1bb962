"""Spaces of 1 x 1 and 2 x 2, where H(O) or H(O|F) is zero or nearly so: exact numbers, no NaN."""

from math import isfinite, log2

import numpy as np
import pytest
from encoded_problems import measured, problem
from known_answers import dataset

from bindscope.priors.anchors import CLIP_NATS
from bindscope.studies.binding_information.families import LinearProbe, QuadraticProbe

PROBES = (
    LinearProbe(name="linear", family="linear"),
    QuadraticProbe(name="quadratic", family="quadratic", rank=2, steps=20, batch_size=64),
)
N = 64
# n, allowed numbers of objects -> H(O), H(O|F), by hand
CASES = {
    "one object": (1, (1, 1), 0.0, 0.0),
    "2 x 2": (2, (1, 4), log2(15), 7 / 15 * log2(7)),
    "2 x 2, features tell all": (2, (1, 1), 2.0, 0.0),
}


def measure(probe, n, objects):
    """Fit a probe to z = O and return its row."""
    data = dataset((n, n), objects, scenes=(N, N, N))
    encoded, prior = problem(data, lambda _, codes: codes.astype(np.float32))
    for split in encoded.splits.values():
        for odds in split.anchors.values():
            assert np.abs(odds).max() <= CLIP_NATS  # and finite
    return measured(probe, encoded, prior, 20)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
@pytest.mark.parametrize("case", CASES)
def test_rows_are_exact_and_finite(case, probe):
    n, objects, h, h_conditional = CASES[case]
    row = measure(probe, n, objects)
    assert row["h_object_bits"] == pytest.approx(h, abs=1e-12)
    assert row["h_object_given_feature_bits"] == pytest.approx(h_conditional, abs=1e-12)
    assert all(isfinite(value) for value in row.values() if isinstance(value, float))
    assert row["status"] == ("ok" if h_conditional else "undefined")
    assert (row["binding_ratio"] is None) == (h == 0)
    assert (row["conditional_binding_ratio"] is None) == (h_conditional == 0)
    assert ("H(O|F) = 0 bits" in (row["reason"] or "")) == (h_conditional == 0)
    # z = O: no bound is above what the prior loses on these scenes, H but for the sample of 64.
    most = row["prior_loss_object_given_feature_bits"]
    assert row["conditional_binding_lower_bound_bits"] <= most + 1e-6
    assert most == pytest.approx(h_conditional, abs=0.4)
