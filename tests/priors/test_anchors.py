"""Anchors: conditionals by listing, and the entropies that they reproduce code by code."""

import numpy as np
import pytest
from codes_by_hand import (
    BALANCED,
    PAPER,
    PAPER_SPLIT,
    SPACES,
    all_codes,
    as_array,
    balanced,
    losses,
    name_of,
    uniform,
)
from datasets_by_hand import dataset

from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, feature_code
from bindscope.priors.anchors import anchors, log_odds
from bindscope.priors.entropies import entropies


def conditionals(sequences):
    """P(bit k = 1 | bits < k) for every sequence of a list of equally likely ones."""
    tallies = {}
    for bits in sequences:
        for k in range(len(bits)):
            n, ones = tallies.get(bits[:k], (0, 0))
            tallies[bits[:k]] = n + 1, ones + bits[k]
    return np.array(
        [
            [tallies[bits[:k]][1] / tallies[bits[:k]][0] for k in range(len(bits))]
            for bits in sequences
        ]
    )


def probability(odds):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-odds))


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_anchors_are_the_conditionals_of_all_codes(config, monkeypatch):
    monkeypatch.setattr("bindscope.codes.prefix._BLOCK", 50)  # several blocks
    codes = all_codes(config)
    odds = log_odds(build_space(config), as_array(codes))
    n = len(next(iter(codes.values())))
    expected = {
        "object": conditionals(list(codes)),
        "feature": conditionals(list(codes.values())),
        # O given F: the same question about the sequence F, O, of which the last K are asked.
        "object_given_feature": conditionals([f + o for o, f in codes.items()])[:, n:],
    }
    assert list(odds) == list(expected)
    for name, values in expected.items():
        assert odds[name].dtype == np.float64
        np.testing.assert_allclose(probability(odds[name]), values, rtol=1e-12, atol=0)


def test_the_papers_numbers_code_by_code():
    data = dataset(PAPER, PAPER_SPLIT)
    objects = sample_codes(data, "test", 0, 200)
    odds = log_odds(build_space(data.space), objects)
    o = losses(odds["object"], objects)
    pairing = losses(odds["object_given_feature"], objects)
    f = losses(odds["feature"], feature_code(objects, (8, 8)))
    # The anchors are the space's: on a split they cost its entropy and its gap.
    np.testing.assert_allclose(o, 42.52257857469, rtol=0, atol=5e-12)
    np.testing.assert_allclose(pairing, 32.90786873058, rtol=0, atol=5e-12)
    np.testing.assert_allclose(f, np.log2(784), rtol=0, atol=1e-12)
    assert max(o.std(), pairing.std(), f.std()) < 1e-13
    row = next(row for row in entropies(data) if row["split"] == "test")
    assert o.mean() == pytest.approx(row["h_object_bits"] + row["split_gap_bits"], abs=1e-12)


def test_what_probes_get_is_clipped_single_precision():
    data = dataset(PAPER)
    objects = sample_codes(data, "train", 0, 100)
    features = feature_code(objects, (8, 8))
    got = anchors(data, objects)
    shapes = {"object": (100, 64), "feature": (100, 16), "object_given_feature": (100, 64)}
    for name, shape in shapes.items():
        assert got[name].shape == shape
        assert got[name].dtype == np.float32
        assert np.abs(got[name]).max() <= 30
    # A cell outside F is empty for certain, and saying so costs nothing.
    outside = (features[:, :8, None] & features[:, None, 8:]).reshape(100, 64) == 0
    assert (got["object_given_feature"][outside] == -30).all()
    o, pairing = losses(got["object"], objects), losses(got["object_given_feature"], objects)
    np.testing.assert_allclose(o, 42.52257857, rtol=0, atol=1e-4)
    np.testing.assert_allclose(pairing, 32.90786873, rtol=0, atol=1e-4)


@pytest.mark.parametrize("config", [uniform((3, 3), 2, 6), balanced(*BALANCED[5])], ids=name_of)
def test_python_integers_give_the_same_as_64_bits(config, monkeypatch):
    objects = as_array(all_codes(config))[::7]
    wrapped = log_odds(build_space(config), objects)
    for module in ("codes.prefix", "priors.anchors"):
        monkeypatch.setattr(f"bindscope.{module}.integer_dtype", lambda largest: np.dtype(object))
    exact = log_odds(build_space(config), objects)
    for name in wrapped:
        np.testing.assert_array_equal(wrapped[name], exact[name])


def test_spaces_beyond_64_bits():
    for config in (uniform((9, 8), 1, 72), balanced((9, 9), (8, 9), 40)):
        data = dataset(config)
        objects = sample_codes(data, "train", 0, 8)
        odds = log_odds(build_space(config), objects)
        (row, *_) = entropies(data)
        o = losses(odds["object"], objects)
        np.testing.assert_allclose(o, row["h_object_bits"], rtol=0, atol=1e-12)
        f = losses(odds["feature"], feature_code(objects, build_space(config).sizes))
        pairing = losses(odds["object_given_feature"], objects)
        np.testing.assert_allclose(f + pairing, row["h_object_bits"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "cells"),
    [
        (uniform((2, 2), 1, 2), [0, 1, 2]),  # too many objects
        (uniform((2, 2), 2, 2), [3]),  # too few
        (balanced((3, 3), (2, 2), 2), [0, 1]),  # one row, two columns
    ],
)
def test_a_code_outside_the_space_is_refused(config, cells):
    objects = as_array(list(all_codes(config))[:2])
    objects[1] = 0
    objects[1, cells] = 1
    with pytest.raises(ValueError, match="scene 1 has an object code outside the space"):
        anchors(dataset(config), objects)


def test_blocks_do_not_show(monkeypatch):
    data = dataset(uniform((3, 3), 2, 6))
    objects = sample_codes(data, "train", 0, 50)
    whole = anchors(data, objects)
    monkeypatch.setattr("bindscope.priors.anchors._BLOCK", 16)
    for name, values in anchors(data, objects).items():
        np.testing.assert_array_equal(values, whole[name])
