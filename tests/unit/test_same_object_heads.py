"""Counting, ordering and finding objects again: known answers, and counts by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from pair_problems import planted_splits
from test_same_object_geometry import BY, CODES, inner_products, labels_of, replace_of, values

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Pairs
from bindscope.studies.same_object.geometry.findings import geometry_section
from bindscope.studies.same_object.geometry.heads import (
    centres_of_tokens,
    copies,
    counting,
    left_of,
    matching,
    n_objects,
    own_centres,
    soft_count,
)
from bindscope.studies.same_object.geometry.scored import Labels, QuadraticWeights

SHARP, CUT = 100.0, 0.8  # logits of planted codes at which probabilities are 0 or 1


def probe_of(planted, sharp=SHARP):
    """The quadratic probe that reads planted codes, which lie on the first axes."""
    d, rank = planted.dim, planted.rank
    matrix = torch.zeros(d, d)
    matrix[:rank, :rank] = torch.eye(rank) * sharp / rank
    return QuadraticWeights(matrix, torch.zeros(d), torch.tensor([-CUT * sharp]),
                            Standardiser.identity(d), "none")  # fmt: skip


def by_split(planted, n=(120, 60, 100)):
    return dict(zip(("train", "val", "test"), planted_splits(planted, n=n), strict=True))


@pytest.fixture(scope="module")
def planted():
    return by_split(CODES)


def no_things_are_stuff(data):
    return np.zeros_like(data.instances)


def test_objects_are_counted_as_by_hand(planted):
    data = planted["test"]
    [block] = list(Pairs(data).blocks())
    by_hand = [
        len(set(own[valid].tolist()) - {0})
        for own, valid in zip(data.instances, data.valid, strict=True)
    ]
    assert n_objects(block).tolist() == by_hand
    exact = torch.where(
        (block.instances[:, :, None] == block.instances[:, None]), 50.0, -50.0
    )  # fmt: skip
    torch.testing.assert_close(soft_count(exact, block.valid), torch.tensor(by_hand).float())


def test_scores_of_identities_count_objects_and_tokens_of_noise_do_not(planted):
    found = values(counting(planted, probe_of(CODES), BY))
    assert found["counting_accuracy", "scores"] == 1.0
    assert found["counting_error", "scores"] < 0.06  # but for the ridge
    commonest = found["counting_accuracy", "commonest"]
    assert commonest < 0.9
    noise = replace_of(CODES, binding=0.0, noise=1.0)
    blind = values(counting(by_split(noise), probe_of(noise), BY))
    for at in ("scores", "tokens"):
        assert blind["counting_accuracy", at] < commonest + 0.1
        assert blind["counting_error", at] > 0.3


def test_tokens_count_where_their_mean_says_how_many_there_are():
    """Every token holds the number itself."""
    splits = by_split(CODES, n=(300, 100, 100))
    for data in splits.values():
        told = np.array([len(set(own[own > 0].tolist())) for own in data.instances])
        data.tokens.values[...] = told[:, None, None]
    found = values(counting(splits, probe_of(CODES), BY))
    assert found["counting_accuracy", "tokens"] == 1.0


def test_centres_are_means_over_an_objects_patches():
    same = np.array([[[True, True, False], [True, True, False], [False, False, True]]])
    columns = np.array([[0.0, 4.0, 7.0]])
    assert own_centres(same, columns).tolist() == [[2.0, 2.0, 7.0]]


def test_which_object_is_further_left_follows_from_scores_and_not_from_the_patches_places(planted):
    data = planted["test"]
    labels, scores = labels_of(data), SHARP * inner_products(data, CUT)
    found = values(left_of(scores, np.zeros(data.valid.shape), labels, BY))
    assert found["left_of_accuracy", "scores"] == 1.0
    assert found["left_of_contrary", "scores"] == 1.0
    assert 0.5 < found["left_of_accuracy", "places"] < 0.95
    assert found["left_of_contrary", "places"] < 0.5  # a tie counts one half
    assert found["left_of_accuracy", "tokens"] == 0.5  # all of them ties
    # Scores that know nothing say of every patch that its object is in the middle of the image.
    blind = values(left_of(0 * scores - SHARP, np.zeros(data.valid.shape), labels, BY))
    assert blind["left_of_accuracy", "scores"] == found["left_of_accuracy", "places"]


def test_pairs_by_hand_say_the_same():
    """Two objects in a row, A at columns 0 and 3, B at 2: A's centre 1.5 is left of B's."""
    instances = np.array([[1, 2, 1]], np.int16)
    positions = np.array([[[0, 0], [0, 2], [0, 3]]], np.float32)
    valid = np.ones((1, 3), bool)
    labels = Labels(instances, valid, positions, valid, (1, 4))
    found = values(left_of(np.zeros((1, 3, 3), np.float32), np.zeros((1, 3)), labels, BY))
    assert found["left_of_accuracy", "places"] == 0.5  # of A at 0 and B, but not of A at 3 and B
    assert found["left_of_contrary", "places"] == 0.0


def test_the_head_of_tokens_reads_centres_where_tokens_hold_them():
    splits = by_split(CODES, n=(40, 20, 20))
    for data in splits.values():
        data.tokens.values[...] = 0.0
        there = data.instances != 0
        same = (data.instances[:, :, None] == data.instances[:, None]) & there[:, None]
        data.tokens.values[..., 0] = own_centres(same, data.positions[..., 1])
    told = centres_of_tokens(splits, probe_of(CODES))
    test = splits["test"]
    known = test.valid & (test.instances != 0)
    np.testing.assert_allclose(
        told[known], test.tokens.values[..., 0][known], atol=0.05
    )  # but for the ridge


def test_an_object_is_found_again_by_its_identity_and_by_nearness_less_often(planted):
    data = planted["test"]
    labels, scores = labels_of(data), inner_products(data)
    draw = np.random.default_rng(0).random(scores.shape).astype(np.float32)
    found = values(matching(scores, draw, labels, BY))
    assert found["matching_accuracy", "scores"] == 1.0
    assert found["matching_accuracy", "tokens"] == pytest.approx(
        found["matching_accuracy", "chance"], abs=0.06
    )
    places = found["matching_accuracy", "places"]
    assert found["matching_accuracy", "chance"] + 0.1 < places < 0.95


def test_a_copy_is_found_by_looks_and_not_by_identity(planted):
    """Object 1 is the copy of object 2: looks are the same number, identities are not."""
    data = planted["test"]
    labels = labels_of(data)
    copy_of = np.select([data.instances == 1, data.instances == 2], [2, 1], 0)
    looks = np.minimum(data.instances, 9) + (data.instances == 1)
    alike = (looks[:, :, None] == looks[:, None]).astype(np.float32)
    found = values(copies(np.zeros_like(alike), alike, labels, copy_of, BY))
    assert found["copy_matching_accuracy", "tokens"] == 1.0
    # Scores that are equal for all candidates are right as often as chance.
    assert found["copy_matching_accuracy", "scores"] == pytest.approx(
        found["copy_matching_accuracy", "chance"]
    )
    none = copies(alike, alike, labels, np.zeros_like(copy_of), BY)
    assert all(row["value"] is None and row["reason"] for row in none)


def test_the_report_says_what_heads_do_at_the_layer_that_validation_prefers():
    names = {"dataset": "d", "model": "m", "probe": "p", "unit": "", "reason": ""}
    rows = [
        {**names, "layer": layer, "quantity": "matching_accuracy", "at": at, "value": value,
         "low": value, "high": value}
        for layer, of_scores in (("1", 0.8), ("2", 0.6))
        for at, value in (("scores", of_scores), ("tokens", 0.5), ("places", 0.7), ("chance", 0.3))
    ]  # fmt: skip
    scores = pd.DataFrame([
        {"dataset": "d", "model": "m", "layer": layer, "family": "quadratic", "control": "none",
         "val_loss_bits": loss, "n_layers": 3}
        for layer, loss in (("1", 0.2), ("2", 0.4))
    ])  # fmt: skip
    tables = {"same_object_geometry": pd.DataFrame(rows), "same_object": scores}
    [section] = geometry_section(tables, [])
    [said] = [point for point in section.points if point.startswith("Finding an object again")]
    assert "layer 1: from scores 80.0 % (tokens 50.0 %, places 70.0 %, chance 30.0 %)" in said
