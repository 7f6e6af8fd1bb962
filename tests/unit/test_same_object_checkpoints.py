"""Jobs of same_object that are killed, again and again, go on and end in the same bits."""

import json

import pytest
from killed_jobs import killed_until_it_ends
from pair_problems import planted_splits
from pydantic import TypeAdapter

from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.probes_config import AnyScorer

FEW = {"l2": (0.1, 0.01), "steps": 15}
PROBES = {
    "quadratic": {**FEW, "ranks": (1, 2)},
    "quadratic_position": FEW,
    "class_position": {**FEW, "pairs": 500, "iterations": 3},
    "position": FEW,
    "identity_pointwise": {"steps": 12},
    "cosine": {},
}


def contents(results):
    """All that a job writes of results, as bytes."""
    return [
        (
            json.dumps([r.row, r.strata, r.history], sort_keys=True),
            {name: (w.shape, w.tobytes()) for name, w in r.weights.items()},
            r.of_images.tobytes(),
        )
        for r in results
    ]


@pytest.mark.parametrize("family", PROBES)
def test_killed_fits_of_pairs_end_in_the_same_bits(family, deaths, tmp_path):
    options = {"name": "p", "family": family, **PROBES[family]}
    probe = TypeAdapter(AnyScorer).validate_python(options)
    splits = planted_splits(n=(20, 10, 10))
    whole = fit_probe(probe, *splits, seeds=(0, 1), bootstrap_samples=20)

    def again(checkpoints):
        return fit_probe(
            probe, *splits, seeds=(0, 1), bootstrap_samples=20, checkpoints=checkpoints
        )

    resumed, died = killed_until_it_ends(
        deaths, again, tmp_path, every=3 if FEW.keys() <= options.keys() else 1
    )
    assert died
    assert deaths["read"] >= died
    assert contents(resumed) == contents(whole)
