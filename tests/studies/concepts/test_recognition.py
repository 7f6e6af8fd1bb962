"""Set separation, what it comes to without binding, and probes (invariants 3 and 7)."""

from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bindscope.core.errors import InputError
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.recognition import (
    fit_probes,
    fit_softmax,
    queries,
    recognize,
)
from bindscope.studies.concepts.scenes import Scenes, split_scenes
from bindscope.studies.concepts.set_separation import (
    chance,
    expected_of_objects,
    expected_of_values,
    set_separation,
)

CLEVR = Scenes.all_of((8, 3))


def accuracy_of(rows, target, stratum="all"):
    [row] = [row for row in rows if (row["measure"], row["stratum"]) == (target, stratum)]
    return row


@pytest.mark.parametrize(
    ("scores", "positives", "hit"),
    [
        ([3, 2, 1], [1, 1, 0], 1),
        ([3, 1, 1], [1, 1, 0], 0),  # a tie is a miss
        ([1, 2, 3], [1, 0, 0], 0),
        ([1, 1, 1], [1, 1, 1], 1),  # nothing to be confused with
        ([3, 2, 1], [0, 0, 0], np.nan),  # nothing to be found
    ],
)
def test_set_separation_case_by_case(scores, positives, hit):
    result = set_separation(np.array([scores], float), np.array([positives], bool))
    np.testing.assert_equal(result, [hit])


def test_a_repeated_object_is_one_positive():
    scenes = Scenes(np.array([[4, 4], [4, 5]]), (3, 2))
    assert scenes.contains().sum(axis=1).tolist() == [1, 2]


def test_chance_is_what_random_scores_reach():
    draw = np.random.default_rng(0)
    positives = np.zeros((60_000, 6), bool)
    positives[:, :2] = True
    hits = set_separation(draw.random(positives.shape), positives)
    assert chance(np.array([2]), 6)[0] == pytest.approx(1 / comb(6, 2))
    assert hits.mean() == pytest.approx(1 / 15, abs=4 * np.sqrt(1 / 15 / len(hits)))
    np.testing.assert_allclose(chance(np.array([2, 1]), 400), [1 / comb(400, 2), 1 / 400])
    assert np.isnan(chance(np.array([0]), 6)[0])
    assert chance(np.array([6]), 6)[0] == 1


@pytest.mark.parametrize("sizes", [(8, 3), (12, 8), (4, 4, 3)])
def test_the_floor_of_all_pairs_has_a_closed_form(sizes):
    same = 1 / np.array(sizes)
    none_differs = same.prod()
    one_differs = sum((1 - p) * none_differs / p for p in same)
    floor = expected_of_objects(Scenes.all_of(sizes)).floor
    assert floor.mean() == pytest.approx(none_differs + one_differs)
    if len(sizes) == 2:
        assert floor.mean() == pytest.approx(1 - np.prod(1 - same))


def test_where_nothing_is_shared_the_floor_is_zero_and_sampled_candidates_raise_it():
    pug = Scenes.all_of((5, 4))
    pug = pug.take(~pug.shared)
    assert expected_of_objects(pug).floor.mean() == 0
    sampled = expected_of_objects(pug, np.array([0, 1, 2, 5, 11]))
    assert np.nanmean(sampled.floor) > 0.5
    with_one = np.isin(pug.slots, [0, 1, 2, 5, 11]).any(axis=1)
    np.testing.assert_array_equal(np.isnan(sampled.floor), ~with_one)


@pytest.mark.parametrize(("sizes", "n_slots"), [((3, 2), 2), ((3, 2), 3), ((2, 2, 2), 2)])
def test_the_guess_counts_the_sets_that_agree_in_every_value(sizes, n_slots):
    scenes = Scenes.all_of(sizes, n_slots)
    bags = {}
    for some in combinations_with_replacement(range(scenes.n_objects), n_slots):
        values = scenes.values_of_objects[list(some)]
        bags.setdefault(tuple(map(tuple, np.sort(values, axis=0))), []).append(some)
    guess = expected_of_objects(scenes).guess
    for i, values in enumerate(scenes.values):
        assert guess[i] == pytest.approx(1 / len(bags[tuple(map(tuple, np.sort(values, axis=0)))]))


def test_chance_of_values_by_hand():
    scenes = Scenes(np.array([[0, 1], [0, 5]]), (3, 2))  # (0,0) (0,1); (0,0) (2,1)
    np.testing.assert_allclose(
        expected_of_values(scenes, "mean").chance, [(1 / 3 + 1) / 2, (1 / 3 + 1) / 2]
    )
    np.testing.assert_allclose(expected_of_values(scenes, "joint").chance, [1 / 3, 1 / 3])


def test_softmax_regression_ends_at_the_optimum():
    draw = np.random.default_rng(1)
    z, targets = draw.standard_normal((60, 5)), draw.dirichlet(np.ones(4), 60)

    def loss(flat):
        logits = z @ flat.reshape(4, 5).T
        scores = np.log(np.exp(logits).sum(axis=1)) - (targets * logits).sum(axis=1)
        return scores.mean() + 0.01 / 2 * np.square(flat).sum()

    reference = minimize(loss, np.zeros(20), tol=1e-12)
    weights, converged = fit_softmax(torch.from_numpy(z), torch.from_numpy(targets), 0.01)
    assert converged
    assert loss(weights.ravel()) <= reference.fun + 1e-6
    np.testing.assert_allclose(weights.ravel(), reference.x, atol=2e-3)


def test_the_unit_of_an_embedding_changes_no_answer():
    z = planted.lookup(CLEVR, planted.PlantedVectors(32, slot_effect=0.3))
    train = split_scenes(CLEVR).probed
    plain, scaled = (fit_probes(scale * z, CLEVR, train) for scale in (1, 1000))
    np.testing.assert_allclose(plain.objects, 1000 * scaled.objects, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("encoder", "reads"), [("lookup", True), ("additive", False)])
def test_probes_read_objects_where_they_can_be_read_and_no_more_than_the_guess_elsewhere(
    encoder, reads
):
    z = planted.ENCODERS[encoder](CLEVR, planted.PlantedVectors(64, slot_effect=0.3))
    parts = split_scenes(CLEVR)
    train, test = parts.probed, parts.read
    readout = fit_probes(z, CLEVR, train)
    assert readout.converged
    rows = recognize(readout, z[test], CLEVR.take(test))
    assert accuracy_of(rows, "concept")["value"] == 1
    accuracy = accuracy_of(rows, "object")
    assert accuracy["value_low"] <= accuracy["value"] <= accuracy["value_high"]
    assert accuracy["bag_of_concepts_floor"] == pytest.approx(0.417, abs=0.05)
    if reads:
        assert accuracy["value"] >= 0.95
    else:
        # Sums of values are the same for both pairings but for the slots' own part.
        assert accuracy_of(rows, "object", "none")["value"] <= 0.5
        assert accuracy_of(rows, "object", "none")["bag_of_concepts_floor"] == 0


def test_queries_of_the_true_vectors_recognize_and_their_order_matters():
    of_one = np.eye(200)[: CLEVR.n_objects]
    embedded = of_one[CLEVR.slots].sum(axis=1)
    values = CLEVR.values_of_objects
    concepts = [
        np.stack([of_one[values[:, k] == v].sum(axis=0) for v in range(size)])
        for k, size in enumerate(CLEVR.sizes)
    ]
    readout = queries(concepts, of_one, CLEVR.present)
    apart = CLEVR.take(~CLEVR.shared)
    assert np.all(readout.concept_hits(embedded[~CLEVR.shared], apart) == 1)
    assert np.all(readout.object_hits(7 * embedded, CLEVR) == 1)
    exchanged = queries(concepts, of_one[::-1], CLEVR.present)
    assert exchanged.object_hits(embedded, CLEVR).mean() < 0.1


def test_what_could_not_be_reconstructed_is_dropped_and_counted():
    z = planted.lookup(CLEVR, planted.PlantedVectors(64))
    readout = fit_probes(z, CLEVR, np.arange(576))
    broken = z.copy()
    broken[:10] = np.nan
    accuracy = accuracy_of(recognize(readout, broken, CLEVR), "object")
    assert (accuracy["n_scenes"], accuracy["n_skipped"]) == (566, 10)


def test_objects_that_no_training_scene_holds_are_counted():
    z = planted.lookup(CLEVR, planted.PlantedVectors(64))
    train = np.nonzero((CLEVR.slots < 20).all(axis=1))[0]
    assert fit_probes(z, CLEVR, train).unseen == 4


@pytest.mark.parametrize("value", [np.nan, 0.0, 3.0])
def test_embeddings_without_meaning_are_refused(value):
    with pytest.raises(InputError, match="not finite, or are all the same"):
        fit_probes(np.full((576, 4), value), CLEVR, np.arange(100))
