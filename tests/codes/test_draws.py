"""Scenes of independent draws, against listing all sequences of draws on small grids."""

import re
from collections import Counter, defaultdict
from itertools import product
from math import fsum, log2, prod
from pathlib import Path

import numpy as np
import pytest
from codes_by_hand import as_array, entropy, feature_of, groups, losses
from datasets_by_hand import RANDOM, dataset

from bindscope.codes.counting import covers, n_feature_codes
from bindscope.codes.draws import surjections
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space, n_outcomes
from bindscope.codes.splits import feature_codes
from bindscope.codes.type_counts import type_counts, type_counts_of
from bindscope.config.models import KnownAnswer
from bindscope.config.observed import DrawsSpace
from bindscope.models.known_answer_truth import UNKNOWN, truth
from bindscope.priors.anchors import log_odds
from bindscope.priors.entropies import entropies

GRIDS = [((1,), 3), ((4,), 1), ((2, 2), 6), ((3, 2), 4), ((2, 2, 2), 3)]


def draws(sizes, n_objects):
    return DrawsSpace(kind="draws", groups=groups(sizes), n_objects=n_objects)


CLEVR = draws((8, 3, 2, 2), 6)


def sequences(sizes, n_objects):
    """Object code -> number of sequences of draws, by listing all of them."""
    cells = prod(sizes)
    n_sequences = Counter()
    for drawn in product(range(cells), repeat=n_objects):
        n_sequences[tuple(int(cell in drawn) for cell in range(cells))] += 1
    return n_sequences


def uniform_cover_bits(space):
    """E_F[log2 number of object codes of F], the count of the paper's released code for CLEVR."""
    total = n_outcomes(space)
    return fsum(
        n_feature_codes(space.sizes, counts)
        * ways
        / total
        * log2(covers(counts, 1, space.max_objects))
        for counts, ways in space.covers().items()
    )


@pytest.mark.parametrize(("sizes", "n_objects"), GRIDS)
def test_entropies_agree_with_listing(sizes, n_objects):
    n_sequences = sequences(sizes, n_objects)
    of_feature = defaultdict(list)
    for code, n in n_sequences.items():
        of_feature[feature_of(code, sizes)].append(n)
    total = sum(n_sequences.values())
    conditional = sum(sum(ns) / total * entropy(ns) for ns in of_feature.values())
    counted = sum(sum(ns) / total * log2(len(ns)) for ns in of_feature.values())
    config = draws(sizes, n_objects)
    space = build_space(config)
    assert n_outcomes(space) == total
    for row in entropies(dataset(config)):
        assert row["h_object_bits"] == pytest.approx(entropy(n_sequences.values()), abs=1e-12)
        assert row["h_feature_bits"] == pytest.approx(
            entropy([sum(ns) for ns in of_feature.values()]), abs=1e-12
        )
        assert row["h_object_given_feature_bits"] == pytest.approx(conditional, abs=1e-12)
        assert row["n_feature_codes"] == len(of_feature)
        largest = [
            row[f"largest_prior_loss_{name}_bits"]
            for name in ("object", "feature", "object_given_feature")
        ]
        assert largest == pytest.approx(
            [
                log2(total / min(n_sequences.values())),
                log2(total / min(map(sum, of_feature.values()))),
                max(log2(sum(ns) / min(ns)) for ns in of_feature.values()),
            ],
            abs=1e-12,
        )
    assert uniform_cover_bits(space) == pytest.approx(counted, abs=1e-12)


def test_entropies_of_a_split_by_feature_codes_agree_with_listing():
    config = draws((3, 2), 4)
    data = dataset(config, {"rule": "hashed_feature_codes", "buckets": 3, "test": [0], "val": [1]})
    n_sequences = sequences((3, 2), 4)
    for row in entropies(data):
        mine = set(map(tuple, feature_codes(data, row["split"]).tolist()))
        numbers = [n for code, n in n_sequences.items() if feature_of(code, (3, 2)) in mine]
        assert row["h_object_bits"] == pytest.approx(entropy(numbers), abs=1e-12)
        gap = log2(sum(n_sequences.values()) / sum(numbers))
        assert row["split_gap_bits"] == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize(("sizes", "n_objects"), GRIDS)
def test_anchors_cost_minus_log_probability_code_by_code(sizes, n_objects):
    n_sequences = sequences(sizes, n_objects)
    features = {code: feature_of(code, sizes) for code in n_sequences}
    of_feature = Counter()
    for code, n in n_sequences.items():
        of_feature[features[code]] += n
    total = sum(n_sequences.values())
    objects = as_array(n_sequences)
    odds = log_odds(build_space(draws(sizes, n_objects)), objects)
    np.testing.assert_allclose(
        losses(odds["object"], objects), [log2(total / n) for n in n_sequences.values()], atol=1e-11
    )
    np.testing.assert_allclose(
        losses(odds["feature"], as_array(features.values())),
        [log2(total / of_feature[features[code]]) for code in n_sequences],
        atol=1e-11,
    )
    np.testing.assert_allclose(
        losses(odds["object_given_feature"], objects),
        [log2(of_feature[features[code]] / n) for code, n in n_sequences.items()],
        atol=1e-11,
    )


@pytest.mark.parametrize(
    "split", [RANDOM, {"rule": "hashed_feature_codes", "buckets": 3, "test": [0], "val": [1]}]
)
def test_sampling_has_the_probabilities_of_the_draws(split):
    data = dataset(draws((3, 2), 4), split)
    n = 40_000
    objects = sample_codes(data, "train", 0, n)
    np.testing.assert_array_equal(sample_codes(data, "train", 100, 200), objects[100:200])
    mine = set(map(tuple, feature_codes(data, "train").tolist()))
    n_sequences = {c: k for c, k in sequences((3, 2), 4).items() if feature_of(c, (3, 2)) in mine}
    sampled = Counter(map(tuple, objects.tolist()))
    assert set(sampled) == set(n_sequences)
    total = sum(n_sequences.values())
    chi2 = sum((sampled[c] - n * k / total) ** 2 / (n * k / total) for c, k in n_sequences.items())
    degrees = len(n_sequences) - 1
    assert chi2 < degrees + 5 * np.sqrt(2 * degrees)


def test_copies_number_all_sequences_of_a_code():
    for n_draws, types in [(1, 1), (4, 1), (4, 2), (5, 3), (4, 4)]:
        n = surjections(n_draws, types)
        listed = Counter(
            tuple(drawn.count(i) for i in range(types))
            for drawn in product(range(types), repeat=n_draws)
            if len(set(drawn)) == types
        )
        assert sum(listed.values()) == n
        codes = np.tile(np.array([[0, *[1] * types]], np.uint8), (n, 1))
        got = type_counts(codes, np.arange(n), n_draws)
        assert (got[:, 0] == 0).all()
        assert Counter(map(tuple, got[:, 1:].tolist())) == listed


def test_copies_of_clevr_scenes_belong_to_their_codes():
    data = dataset(CLEVR)
    objects = sample_codes(data, "test", 0, 400)
    drawn = type_counts_of(data, "test", 0, objects)
    assert (drawn.sum(axis=1) == 6).all()
    np.testing.assert_array_equal(drawn > 0, objects == 1)
    np.testing.assert_array_equal(
        type_counts_of(data, "test", 150, objects[150:160]), drawn[150:160]
    )
    # P(some type twice) = 1 - 96!/(90! 96^6) = 0.147
    repeats = 1 - prod(range(91, 97)) / 96**6
    assert (drawn.max(axis=1) > 1).mean() == pytest.approx(repeats, abs=0.07)


def test_clevr_is_counted_in_integers_and_fast():
    (row, *_) = entropies(dataset(CLEVR))
    space = build_space(CLEVR)
    numbers = {m: surjections(6, m) for m in range(1, 7)}
    by_hand = sum(
        prod(range(97 - m, 97)) / prod(range(1, m + 1)) * n / 96**6 * log2(96**6 / n)
        for m, n in numbers.items()
    )
    assert row["h_object_bits"] == pytest.approx(by_hand, abs=1e-9)
    objects = sample_codes(dataset(CLEVR), "train", 0, 100)
    odds = log_odds(space, objects)
    cost = losses(odds["object"], objects)
    np.testing.assert_allclose(
        cost, [log2(96**6 / numbers[m]) for m in objects.sum(axis=1).tolist()], atol=1e-9
    )
    printed = re.search(
        r"H\(O\) = (\S+) bits, H\(F\) = (\S+), H\(O\|F\) = (\S+)\. .*?equally likely: (\S+) bits",
        (Path(__file__).parents[2] / "docs/information.md").read_text(),
        flags=re.S,
    )
    keys = ("h_object_bits", "h_feature_bits", "h_object_given_feature_bits")
    counted = [*(row[key] for key in keys), uniform_cover_bits(space)]
    assert list(map(float, printed.groups())) == pytest.approx(counted, abs=5.01e-6)


def test_closed_forms_that_need_equal_probabilities_are_not_given():
    data = dataset(draws((2, 2), 3))
    for name in ("swaps", "half"):
        assert truth(KnownAnswer(name="a", source=f"known-answer:{name}"), data) == UNKNOWN
    (row, *_) = entropies(data)
    known = truth(KnownAnswer(name="a", source="known-answer:erasure", probability=0.5), data)
    half = row["h_object_given_feature_bits"] / 2
    assert known[:2] == pytest.approx((row["h_feature_bits"] + half, half))
