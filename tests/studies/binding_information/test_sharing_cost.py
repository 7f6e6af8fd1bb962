"""The cost of sharing against hand-made losses, and what a fit writes for it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import estimate
from bindscope.studies.binding_information.families import QuadraticProbe
from bindscope.studies.binding_information.fit import write_fit
from bindscope.studies.binding_information.probes.base import FitResult
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.quantities import SHARES
from bindscope.studies.binding_information.sharing_cost import (
    SceneLosses,
    from_arrays,
    sharing_cost,
    sharing_costs,
)

NAMES = ("colorshape", "vit", "cls")


def scenes(n=400, seed=0):
    """Losses of two probes whose scenes are hard for both: deviation 3, of the difference 0.5."""
    rng = np.random.default_rng(seed)
    plain = rng.gamma(4.0, 1.5, n)
    return plain, plain + 2.0 + rng.normal(0, 0.5, n)


def test_the_interval_is_that_of_the_difference():
    plain, shared = scenes(2000)
    cost = sharing_cost(NAMES, [plain], [shared], n_samples=3000)
    width = 2 * 1.96 * np.std(shared - plain) / np.sqrt(2000)
    assert cost.high - cost.low == pytest.approx(width, rel=0.07)
    as_if_independent = 2 * 1.96 * np.hypot(plain.std(), shared.std()) / np.sqrt(2000)
    assert cost.high - cost.low < as_if_independent / 5


def test_clusters_are_drawn_whole():
    plain, shared = scenes(400)
    clusters = np.repeat(np.arange(20), 20)
    shared = shared + np.random.default_rng(5).normal(0, 1, 20)[clusters]
    alone = sharing_cost(NAMES, [plain], [shared])
    together = sharing_cost(NAMES, [plain], [shared], clusters)
    assert together.cost_bits == alone.cost_bits
    assert together.high - together.low > 2.5 * (alone.high - alone.low)


def test_only_seeds_and_groups_with_both_probes_count():
    plain, shared = scenes()
    bad = np.where(np.arange(400) == 3, np.inf, shared)
    fits = [
        (NAMES, "quadratic", SceneLosses({0: plain, 1: plain}, None)),
        (NAMES, "quadratic", SceneLosses({2: plain}, None)),
        (NAMES, "quadratic_reuse", SceneLosses({0: shared, 2: shared + 1.0, 3: shared}, None)),
        (NAMES, "quadratic_reuse", SceneLosses({1: bad}, None)),
        (NAMES, "linear", SceneLosses({0: plain + 9.0}, None)),
        (("colorshape", "alone", "cls"), "quadratic", SceneLosses({0: plain}, None)),
    ]
    (cost,) = sharing_costs(fits)
    assert cost[:3] == NAMES
    difference = (shared - plain).mean()
    assert cost.seed_costs == pytest.approx((difference, difference + 1.0))
    assert cost.cost_bits == pytest.approx(difference + 0.5)
    assert sharing_costs(fits[:2]) == []


PRIOR = {
    "h_object_bits": 5.0,
    "h_feature_bits": 3.0,
    "h_object_given_feature_bits": 2.0,
    "split_gap_bits": 0.0,
    "method": "exact",
    "counts_reason": "none here",
    "largest_prior_loss_object_bits": 5.0,
    "largest_prior_loss_feature_bits": 3.0,
    "largest_prior_loss_object_given_feature_bits": 2.0,
}
PROBE = QuadraticProbe(name="quadratic", family="quadratic")
FEW = Information(bootstrap_samples=10)


def forty_scenes():
    """Random codes and losses of 40 test scenes, under two seeds."""
    rng = np.random.default_rng(0)
    objects = rng.integers(0, 2, (40, 6)).astype(np.uint8)
    features = rng.integers(0, 2, (40, 5)).astype(np.uint8)
    anchors = {"object": 6, "feature": 5, "object_given_feature": 6}
    split = SplitData(
        np.zeros((40, 1), np.float32),
        objects,
        features,
        {name: np.zeros((40, width), np.float32) for name, width in anchors.items()},
    )
    data = ProbeData(split, split, split, (2, 3))
    parts = ("object", "feature", "object_anchored", "chained_feature", "chained_object")
    results = [
        FitResult(
            seed,
            {name: rng.gamma(2.0, 1.0, 40) for name in parts},
            {
                "object": np.ones(6),
                "feature": np.ones(5),
                "object_anchored": np.ones(6),
                "chained": np.ones(11),
            },
            dict.fromkeys(("object", "feature", "object_anchored", "chained"), 1.0),
            {share.name: 0.9 for share in SHARES},
            [],
            {},
            {},
            10,
            (),
            "quadratic",
            anchor_losses={name: np.full(40, 3.0) for name in parts[2:]},
            prior_weights=dict.fromkeys(parts[2:], 0.1),
            control_coefficients=dict.fromkeys(parts[2:], 0.5),
        )
        for seed in (3, 5)
    ]
    return data, results


def outputs(folder):
    names = ("rows", "weights", "history", "details")
    return SimpleNamespace(**{name: folder / name for name in names})


def test_a_fit_writes_its_scenes_and_where_splits_are_disjoint_their_clusters(tmp_path):
    data, results = forty_scenes()
    output = outputs(tmp_path)
    write_fit(output, results, data, PRIOR, {"control": "none"}, PROBE, FEW, True)
    scene_losses = from_arrays(load_file(output.details))
    assert list(scene_losses.by_seed) == [3, 5]
    for result in results:
        np.testing.assert_array_equal(scene_losses.by_seed[result.seed], result.losses["object"])
    features = data.test.features
    same = (features[:, None] == features).all(axis=-1)
    np.testing.assert_array_equal(scene_losses.clusters[:, None] == scene_losses.clusters, same)


def test_under_shuffled_labels_intervals_are_over_the_codes_that_were_tested(tmp_path):
    data, results = forty_scenes()
    output = outputs(tmp_path)
    write_fit(output, results, data, PRIOR, {"control": "shuffled_labels"}, PROBE, FEW, True)
    rows = [json.loads(line) for line in output.rows.read_text().splitlines()]
    for row, result in zip(rows, results, strict=True):
        tested = data.shuffled_labels(result.seed).test
        expected, plain = (
            estimate(result, PRIOR, split.objects, split.features, FEW, disjoint=True)
            for split in (tested, data.test)
        )
        assert row["binding_bits_low"] == expected["binding_bits_low"] != plain["binding_bits_low"]


def test_the_cost_is_the_mean_difference_and_each_seeds_own():
    plain, shared = zip(scenes(seed=0), scenes(seed=1), strict=True)
    cost = sharing_cost(NAMES, plain, shared)
    assert cost.cost_bits == pytest.approx(np.mean(shared) - np.mean(plain))
    assert cost.seed_costs == pytest.approx(
        [b.mean() - a.mean() for a, b in zip(plain, shared, strict=True)]
    )
    assert cost.low < cost.cost_bits < cost.high
