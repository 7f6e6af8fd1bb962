"""What scores and tokens are like: known answers, closed forms, and counts by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from pair_problems import GRID, planted_splits

from bindscope.fitting.rows import ArrayRows
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.geometry.cross_layers import (
    CrossProblem,
    TwoLayers,
    fitted_across,
    transfers,
)
from bindscope.studies.same_object.geometry.distances import decay, decays
from bindscope.studies.same_object.geometry.estimates import Bootstrap
from bindscope.studies.same_object.geometry.exponential import curve
from bindscope.studies.same_object.geometry.job import Measured, measured_rows
from bindscope.studies.same_object.geometry.kinds import cross_scores
from bindscope.studies.same_object.geometry.places import (
    SHIFTS,
    positions_decoded,
    shifted,
    shifted_labels,
)
from bindscope.studies.same_object.geometry.quantities import QUANTITIES
from bindscope.studies.same_object.geometry.residuals import matched, residuals
from bindscope.studies.same_object.geometry.scored import Labels, QuadraticWeights
from bindscope.studies.same_object.geometry.segmentation import (
    adjusted_rand,
    best_overlaps,
    clusters,
    segmentation,
)
from bindscope.studies.same_object.geometry.table import SCHEMA
from bindscope.studies.same_object.geometry.transitivity import (
    sums_of_images,
    transitivity,
    triples,
)
from bindscope.studies.same_object.known import Planted
from bindscope.tables.schema import table_of

BY = Bootstrap(50, 0)
CODES = Planted(classes=0.0, noise=0.0, rotated=False)  # tokens that are identity codes alone


def values(rows):
    return {(row["quantity"], row["at"]): row["value"] for row in rows}


def labels_of(data):
    return Labels.of(data, np.zeros_like(data.instances))


def inner_products(data, cut=0.5):
    """The scorer that planted codes are made for: their product, over its size in one object."""
    x = torch.from_numpy(data.tokens.read(0, data.n_images))
    return (torch.bmm(x, x.transpose(1, 2)) / 16 - cut).numpy()


def graded(n=6, m=12, reach=3.0):
    """Patches on a line, scored by how near they are: i goes with j and j with k, but i not with k.

    Objects are pieces of four.
    """
    place = np.stack([np.zeros(m), np.arange(m)], -1)
    positions = np.broadcast_to(place, (n, m, 2)).astype(np.float32)
    instances = np.broadcast_to(np.arange(m) // 4 + 1, (n, m)).astype(np.int16)
    valid = np.ones((n, m), bool)
    labels = Labels(instances, valid, positions, valid, (1, m))
    scores = reach - np.abs(place[:, None, 1] - place[None, :, 1])
    return np.broadcast_to(scores, (n, m, m)).astype(np.float32), labels


def test_triples_are_those_that_are_counted_one_by_one():
    edges = np.triu(np.random.default_rng(0).random((4, 9, 9)) < 0.4, 1)
    edges |= edges.transpose(0, 2, 1)
    two, three = triples(edges)
    for graph, exactly_two, exactly_three in zip(edges, two, three, strict=True):
        sizes = [
            int(graph[i, j]) + graph[j, k] + graph[i, k] for i, j, k in combinations(range(9), 3)
        ]
        assert (sizes.count(2), sizes.count(3)) == (exactly_two, exactly_three)


def test_kinds_of_triples_by_label_are_those_that_are_counted_one_by_one():
    data = planted_splits(CODES, n=(1, 1, 3))[2]
    labels = labels_of(data)
    sums = sums_of_images(inner_products(data), labels)
    for image, row in enumerate(sums):
        own = data.instances[image][data.valid[image]]
        kinds = [len(set(triple)) for triple in combinations(own.tolist(), 3)]
        assert [kinds.count(k) for k in (1, 2, 3)] == row[2:5].tolist()


def test_kinds_of_pairs_are_those_that_are_named_one_by_one():
    # Two copies (1, 2) of a class, another object of it (3), one of another class (4), nobody (0).
    instances = np.array([[1, 1, 2, 2, 3, 4, 0]], np.int16)
    classes = np.array([[5, 5, 5, 5, 5, 6, 0]], np.int16)
    copy_of = np.array([[2, 2, 1, 1, 0, 0, 0]], np.int16)
    valid = instances > 0
    labels = Labels(instances, valid, np.zeros((1, 7, 2), np.float32), valid, (1, 7))
    draw = np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)
    scores = (draw + draw.T)[None]
    found = values(cross_scores(scores, labels, classes, copy_of, BY))
    p = 1 / (1 + np.exp(-scores[0].astype(float)))
    pairs = {
        "object": [(0, 1), (2, 3)],
        "copy": [(0, 2), (0, 3), (1, 2), (1, 3)],
        "class": [(0, 4), (1, 4), (2, 4), (3, 4)],
        "other": [(i, 5) for i in range(5)],
    }
    for kind, named in pairs.items():
        assert found["cross_score", kind] == pytest.approx(np.mean([p[pair] for pair in named]))


def test_planted_identities_are_transitive():
    data = planted_splits(CODES, n=(1, 1, 40))[2]
    found = values(transitivity(inner_products(data, 0.95), labels_of(data), BY))
    assert found["transitivity_violations", ""] == 0
    assert found["transitivity_expected", ""] == 0


def test_a_graded_similarity_is_not_and_more_so_than_errors_at_random_would_be():
    scores, labels = graded()
    # i < j < k; positive within two steps: with two pairs (1, 2), (2, 1), (2, 2); with three
    # (1, 1). Of twelve patches that are 9 + 9 + 8 and 10 triples.
    found = values(transitivity(scores, labels, BY))
    assert found["transitivity_violations", ""] == pytest.approx(26 / 36)


def test_errors_at_random_violate_as_often_as_expected():
    draw = np.random.default_rng(1)
    data = planted_splits(CODES, n=(1, 1, 400))[2]
    labels = labels_of(data)
    flipped = draw.random(labels.same.shape) < np.where(labels.same, 0.2, 0.05)
    scores = np.triu(np.where(labels.same ^ flipped, 1.0, -1.0), 1)
    scores = (scores + scores.transpose(0, 2, 1)).astype(np.float32)
    found = values(transitivity(scores, labels, BY))
    observed = found["transitivity_violations", ""]
    assert observed == pytest.approx(found["transitivity_expected", ""], abs=0.01)
    assert 0.1 < observed < 0.9


def test_planted_identities_are_the_objects():
    data = planted_splits(CODES, n=(1, 1, 20))[2]
    found = values(segmentation(40 * inner_products(data, 0.95), labels_of(data), BY))
    assert set(found.values()) == {1.0}
    assert len(found) == 6


def test_a_chain_is_one_component_and_linkage_cuts_it():
    # Two blocks of three, held together by one positive pair.
    scores = np.full((6, 6), -4.0)
    scores[:3, :3] = scores[3:, 3:] = 4.0
    scores[2, 3] = scores[3, 2] = 1.0
    component, cut, two = clusters(scores, 2)
    truth = np.array([0, 0, 0, 1, 1, 1])
    assert len(set(component)) == 1
    assert adjusted_rand(truth, cut) == adjusted_rand(truth, two) == 1


def test_rand_index_is_that_of_hubert_and_arabie_and_0_by_chance():
    # Their counts: sum over cells 1 + 1, rows 3 + 3, columns 1 + 1 + 0 ...
    assert adjusted_rand(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])) == pytest.approx(4 / 7)
    draw = np.random.default_rng(0)
    chance = [adjusted_rand(draw.integers(0, 3, 60), draw.integers(0, 3, 60)) for _ in range(300)]
    assert np.mean(chance) == pytest.approx(0, abs=0.01)


def test_best_overlap_by_hand():
    objects, found = np.array([1, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 1])
    everything = np.ones(5, bool)
    assert best_overlaps(objects, found, everything).tolist() == pytest.approx([2 / 3, 2 / 3])


DISTANCES = np.arange(1, 9) * 1.0


def test_an_exponential_is_found():
    found = decay(DISTANCES, curve(DISTANCES, 0.2, 0.7, 1.5), np.full(8, 100.0))
    assert found[:4] == pytest.approx((0.2, 0.7, 1.5, 1.0), abs=1e-4)
    assert not found.reason


@pytest.mark.parametrize(
    ("d", "p", "reason"),
    [
        (DISTANCES, np.full(8, 0.4), "does not change"),
        (DISTANCES[:3], np.array([0.9, 0.5, 0.4]), "needs 5"),
        (DISTANCES, np.array([0.2, 0.8, 0.2, 0.8, 0.2, 0.8, 0.2, 0.8]), "explains"),
        (DISTANCES, 0.9 - 0.05 * DISTANCES, "cannot be told apart"),
    ],
)
def test_what_is_none_is_said_to_be_none(d, p, reason):
    assert reason in decay(d, p, np.full(len(d), 10.0)).reason


def test_curves_of_scores_are_their_means_and_length_is_in_patches():
    _, labels = graded(n=4, m=16)
    apart = np.abs(labels.positions[:, :, None, 1] - labels.positions[:, None, :, 1])
    p = 0.1 + 0.8 * np.exp(-apart / 2.0)
    rows = decays(np.log(p / (1 - p)).astype(np.float32), labels, BY)
    found = values(rows)
    assert found["all_by_distance", "3.00"] == pytest.approx(0.1 + 0.8 * np.exp(-1.5))
    assert found["all_length", ""] == pytest.approx(2.0, abs=1e-3)
    assert found["all_floor", ""] == pytest.approx(0.1, abs=1e-3)
    assert found["same_length", ""] is None  # objects of four patches have three distances
    assert "needs 5" in {r["quantity"]: r["reason"] for r in rows}["same_length"]


def places_read(position):
    train, val, test = planted_splits(replace_of(CODES, position=position, noise=0.1))
    scaling = Standardiser.identity(train.dim)
    return values(positions_decoded(train, val, test, scaling, "none", BY))


def test_planted_places_are_read_and_others_are_not():
    there, nowhere = places_read(1.0), places_read(0.0)
    assert there["position_r2", ""] > 0.8
    assert there["position_accuracy", ""] > 5 * there["position_chance", ""]
    assert nowhere["position_r2", ""] < 0.05


def test_r2_is_that_of_all_patches_together():
    """A token that is the place with noise of its own variance has R^2 = 1 / 2."""
    train, val, test = (with_noisy_places(split, i) for i, split in enumerate(plain_splits()))
    scaling = Standardiser.identity(2)
    found = values(positions_decoded(train, val, test, scaling, "none", BY))
    assert found["position_r2", ""] == pytest.approx(0.5, abs=0.03)


def test_labels_move_as_they_are_said_to():
    positions = np.stack(np.divmod(np.arange(9), 3), -1).astype(np.float32)[None]
    instances = np.arange(1, 10).astype(np.int16)[None]
    valid = np.ones((1, 9), bool)
    labels = Labels(instances, valid, positions, valid, (3, 3))
    for name, expected in {"down": 2, "up": 8, "right": 4, "left": 6}.items():
        moved, there = shifted(labels, SHIFTS[name])
        assert moved[0, 4] == expected  # of the patch in the middle
        assert there.sum() == 6


def test_labels_in_their_place_are_told_best():
    test = planted_splits(replace_of(CODES, noise=0.3), n=(1, 1, 60))[2]
    found = values(shifted_labels(inner_products(test), labels_of(test), BY))
    for name in SHIFTS:
        assert found["shift_loss", name] > 0.05
        assert found["shifted_auc", name] < 0.95


def test_copies_are_matched_by_the_displacement_of_most_patches():
    # Object 1 in rows 0 and 1, its copy 2 three columns to the right; 3 is none.
    positions = np.array([[0, 0], [0, 1], [1, 0], [0, 3], [0, 4], [1, 3], [5, 5]])
    instances = np.array([1, 1, 1, 2, 2, 2, 3])
    copy_of = np.array([2, 2, 2, 1, 1, 1, 0])
    purity = np.array([1.0, 0.8, 0.7, 1.0, 0.8, 0.7, 1.0])
    first, second = matched(positions, instances, copy_of, purity)
    assert list(zip(first, second, strict=True)) == [(0, 3), (1, 4), (2, 5)]


def of_copies(binding, place=0.0, n=30, noise=0.05):
    """Scenes of an object of six patches and its copy; their tokens hold an identity each."""
    draw = np.random.default_rng(0)
    spot = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])
    shift = np.stack([draw.integers(0, 4, n), draw.integers(3, 5, n)], -1)
    positions = np.concatenate([np.broadcast_to(spot, (n, 6, 2)), spot + shift[:, None]], 1).astype(
        np.float32
    )
    instances = np.repeat(np.array([[1, 2]], np.int16), 6, 1).repeat(n, 0)
    valid = np.ones((n, 12), bool)
    labels = Labels(instances, valid, positions, valid, (8, 8))
    e = np.repeat(draw.standard_normal((n, 2, 16)), 6, 1)
    texture = np.tile(draw.standard_normal((n, 6, 16)), (1, 2, 1))  # the same in a copy
    tokens = binding * e + texture + noise * draw.standard_normal((n, 12, 16))
    tokens += place * positions @ draw.standard_normal((2, 16))
    return values(residuals(tokens, labels, 3 - instances, np.ones((n, 12), np.float32), BY))


def test_identities_make_clusters_of_scenes_and_nothing_makes_none():
    bound, free = of_copies(1.0), of_copies(0.0)
    assert bound["residual_scenes", ""] == 30
    assert bound["residual_separability", ""] == 1
    assert bound["residual_variance", "1"] + bound["residual_variance", "2"] > 0.95
    assert free["residual_separability", ""] < 0.55
    assert bound["residual_chance", ""] < 0.35
    assert free["residual_separability", ""] == pytest.approx(free["residual_chance", ""], abs=0.2)


def test_patches_of_a_copy_that_change_places_blur_weak_identities():
    weak = of_copies(0.3)
    assert weak["residual_separability", ""] == 1
    assert weak["residual_separability_shuffled", ""] < 0.9


def test_places_alone_make_clusters_too_hence_the_controls():
    assert of_copies(0.0, place=1.0)["residual_separability", ""] > 0.7


def test_scenes_without_copies_say_so():
    data = planted_splits(CODES, n=(1, 1, 5))[2]
    nothing = np.zeros_like(data.instances)
    rows = residuals(np.ones((5, 32, 4)), labels_of(data), nothing, nothing, BY)
    assert {row["value"] for row in rows} == {0.0, None}
    assert all(row["reason"] for row in rows if row["value"] is None)


def turned(n=(120, 40, 60)):
    """The same identities in two layers, in one half of the dimensions and in the other."""
    splits = planted_splits(replace_of(CODES, dim=16, rank=8, class_dims=4, place_dims=4,
                                       noise=0.1), n=n, patches=16)  # fmt: skip
    q = np.roll(np.eye(16), 8, axis=1)
    second = [
        replace(split, tokens=ArrayRows((split.tokens.read(0, split.n_images) @ q)
                                        .astype(np.float32)))
        for split in splits
    ]  # fmt: skip
    return {
        name: {"1": a, "2": b}
        for name, a, b in zip(("train", "val", "test"), splits, second, strict=True)
    }, q


def probe_of(matrix):
    d = len(matrix)
    return QuadraticWeights(
        torch.from_numpy(matrix.astype(np.float32)), torch.zeros(d), torch.zeros(1),
        Standardiser.identity(d), "none",
    )  # fmt: skip


def test_other_dimensions_stop_a_probe_and_not_a_fit_across():
    splits, q = turned()
    first = np.diag(np.arange(16) < 8).astype(float)
    probes = {"1": probe_of(first), "2": probe_of(q.T @ first @ q)}
    labels = labels_of(splits["test"]["1"])
    moved = transfers(probes, splits["test"], labels, BY)
    own, other = (
        values(moved["1"])["transfer_auc", "1"],
        values(moved["1"])["transfer_auc", "2"],
    )
    assert own > 0.99
    assert other == pytest.approx(0.5, abs=0.05)
    fitted = fitted_across(splits, probes, labels, 120, 60, BY)
    assert values(fitted["1"])["cross_auc", "2"] > 0.97
    assert values(fitted["2"])["cross_auc", "1"] == values(fitted["1"])["cross_auc", "2"]


def test_layers_change_places_with_the_transpose():
    splits, _ = turned(n=(20, 10, 1))
    both = {}
    for name in ("train", "val"):
        x, y = (
            torch.from_numpy(splits[name][layer].tokens.read(0, splits[name][layer].n_images))
            for layer in ("1", "2")
        )
        data = splits[name]["1"]
        labels = labels_of(data)
        pairs = torch.from_numpy(labels.pairs | labels.pairs.transpose(0, 2, 1))
        same = torch.from_numpy(labels.same) & pairs
        x, y = (t * torch.from_numpy(data.valid)[..., None] for t in (x, y))
        both[name] = TwoLayers(x, y, pairs, same), TwoLayers(y, x, pairs, same)
    found = [CrossProblem(both["train"][i], both["val"][i]).fitted(200) for i in (0, 1)]
    w, v = (one.theta[:256].view(16, 16) for one in found)
    torch.testing.assert_close(w, v.t(), atol=2e-3, rtol=2e-2)


def test_the_slope_is_that_of_autograd():
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, 5, 4, generator=draw) for _ in range(2))
    pairs = ~torch.eye(5, dtype=torch.bool).expand(3, 5, 5)
    layers = TwoLayers(x, y, pairs, pairs)
    residuals_ = torch.randn(3, 5, 5, generator=draw)
    theta = torch.randn(25, generator=draw, requires_grad=True)
    (layers.scores(theta) * residuals_).sum().backward()
    torch.testing.assert_close(layers.slope(residuals_), theta.grad)


def test_every_quantity_is_a_row_of_the_table():
    """One job on planted tokens: all that is declared is measured, and the schema takes it."""
    splits = planted_splits(replace_of(CODES, noise=0.2), n=(30, 10, 12))
    by_layer = {
        name: {"0": split} for name, split in zip(("train", "val", "test"), splits, strict=True)
    }
    probe = QuadraticWeights(
        torch.diag((torch.arange(48) < 16).float()), torch.zeros(48), -torch.full((1,), 8.0),
        Standardiser.identity(48), "none",
    )  # fmt: skip
    nothing = np.zeros_like(splits[2].instances)
    more = {"stuff": nothing, "copy_of": nothing, "purity": nothing.astype(np.float32)}
    spec = {
        "intervals": {"bootstrap_samples": 20, "bootstrap_seed": 0},
        "cross_images": 10, "cross_steps": 5,
    }  # fmt: skip
    rows = measured_rows(Measured(by_layer, {"0": probe}, more), spec)
    assert {row["quantity"] for row in rows} == set(QUANTITIES)
    names = {"dataset": "d", "model": "m", "probe": "p", "spec_key": "0" * 8, "code_key": "0" * 8}
    assert len(table_of([{**names, **row} for row in rows], SCHEMA)) == len(rows)


def replace_of(planted, **changes):
    return Planted(**{**planted.model_dump(), **changes})


def plain_splits():
    return planted_splits(CODES)


def with_noisy_places(split: PairData, seed: int) -> PairData:
    """Tokens of two numbers: row and column, and noise with the variance that these have."""
    draw = np.random.default_rng(seed)
    own = split.positions[split.valid]
    noise = draw.standard_normal(split.positions.shape) * own.std(0)
    assert split.grid == GRID
    return replace(split, tokens=ArrayRows((split.positions + noise).astype(np.float32)))
