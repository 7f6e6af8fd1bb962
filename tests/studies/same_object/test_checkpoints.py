"""Jobs of same_object that are killed, again and again, go on and end in the same bits."""

import json

import cases_same_object_edits as planted
import pytest
import torch
from killed_jobs import killed_until_it_ends
from pair_problems import planted_geometry, planted_splits
from planted_patches import Planted
from pydantic import TypeAdapter

from bindscope.fitting import checkpoint as checkpoints_module
from bindscope.fitting.checkpoint import Checkpoints, join_states, split_states
from bindscope.studies.same_object.config import AnyScorer
from bindscope.studies.same_object.effects.job import measured_edits
from bindscope.studies.same_object.fit import ProbeResult, fit_probe

CODES = Planted(classes=0.0, noise=0.2, rotated=False)
FEW = {"l2": (0.1, 0.01), "steps": 6}
PROBES = {
    "quadratic": {**FEW, "ranks": (1, 2)},
    "quadratic_position": FEW,
    "class_position": {**FEW, "pairs": 500, "iterations": 3},
    "identity_pointwise": {"steps": 12},
    "cosine": {},
}


def contents(results):
    """All that a job writes of results, as bytes."""
    return [
        (
            json.dumps([r.row, r.strata], sort_keys=True),
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

    def fit(parts):
        results = fit_probe(probe, *splits, seeds=(0, 1), bootstrap_samples=20, checkpoints=parts)
        return join_states([result.state() for result in results])

    def again(checkpoints):
        """Fit a layer as `fit_layers` does."""
        return [*map(ProbeResult.from_state, split_states(checkpoints.remember(fit)))]

    resumed, died = killed_until_it_ends(
        deaths, again, tmp_path, every=3 if FEW.keys() <= options.keys() else 1
    )
    assert died
    assert deaths["read"] >= died
    assert contents(resumed) == contents(whole)


def measure_edits(checkpoints):
    """Run some edits of a planted model, and fit a probe again under one of them."""
    planting = planted.Planting(planted.BOUND, 0)
    splits, plain = planting.edited("binding", planted.LAYER, checkpoints=checkpoints)
    edits = planted.strongest_edits(["remove"], planted.FEWER)
    probes = [planted.READER]
    rows = measured_edits(splits, plain, edits, "it has no loss", probes, planted.BY, checkpoints)
    return json.dumps(rows, sort_keys=True)


@pytest.mark.slow
def test_killed_edits_end_in_the_same_rows(deaths, tmp_path):
    whole = measure_edits(None)
    resumed, died = killed_until_it_ends(deaths, measure_edits, tmp_path, every=6)
    assert died > 1
    assert resumed == whole


def measure_geometry(checkpoints):
    """Measure scores and tokens of two layers."""
    return json.dumps(planted_geometry(("0", "1"), checkpoints), sort_keys=True)


def test_killed_geometry_ends_in_the_same_rows(deaths, tmp_path):
    whole = measure_geometry(None)
    resumed, died = killed_until_it_ends(deaths, measure_geometry, tmp_path, every=1)
    assert died > 1
    assert resumed == whole


def test_a_damaged_segment_is_computed_again_with_all_after_it(tmp_path, monkeypatch):
    """Segments that were cut elsewhere do not fit behind those that are written anew."""
    monkeypatch.setattr(checkpoints_module, "KEEP_S", -1.0)
    computed = []

    def make(item):
        computed.append(item)
        return {"x": torch.full((2,), float(item))}, {"item": item}

    def run(items):
        return [state[1]["item"] for state in Checkpoints(tmp_path / "o", "k").each(items, make)]

    assert run(range(5)) == list(range(5))
    assert run(range(5)) == list(range(5))
    assert computed == list(range(5))
    (tmp_path / "o.1.3.checkpoint").write_bytes(b"damaged")
    assert run(range(5)) == list(range(5))
    assert computed == [*range(5), 2, 3, 4]
    monkeypatch.setattr(checkpoints_module, "KEEP_S", 60.0)
    monkeypatch.setattr(checkpoints_module, "WORTH_S", -1.0)
    (tmp_path / "o.1.2.checkpoint").write_bytes(b"damaged")
    computed.clear()
    assert run(range(5)) == list(range(5))
    assert computed == [1, 2, 3, 4]
    assert run(range(5)) == list(range(5))
    assert computed == [1, 2, 3, 4]
