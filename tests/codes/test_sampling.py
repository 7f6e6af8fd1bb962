"""Sampling: numbers are uniform, numbering is a bijection, hence codes are uniform."""

from collections import Counter

import numpy as np
import pytest
from codes_by_hand import (
    SPACES,
    all_codes,
    as_array,
    balanced,
    name_of,
    ranked,
    uniform,
)
from datasets_by_hand import dataset
from scipy.stats import chisquare

from bindscope.codes.ranks import uniform_integers, unrank, unrank_free
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import build_space
from bindscope.codes.splits import feature_codes
from bindscope.core.errors import ConfigError

HASHED = {"rule": "hashed_feature_codes", "buckets": 3, "test": [0], "val": [1]}


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_unrank_is_a_bijection_onto_the_covers_of_every_feature_code(config):
    space, codes = build_space(config), all_codes(config)
    numbers = Counter()
    ranks = np.zeros(len(codes), np.int64)
    for i, feature in enumerate(codes.values()):
        ranks[i] = numbers[feature]
        numbers[feature] += 1
    # The codes are listed in lexicographic order, and so are the ranks.
    written = unrank(space, as_array(codes.values()), ranks)
    np.testing.assert_array_equal(written, as_array(codes))


@pytest.mark.parametrize("config", [s for s in SPACES if s.kind == "uniform"], ids=name_of)
def test_unrank_free_is_a_bijection_onto_the_space(config):
    codes = all_codes(config)
    written = unrank_free(build_space(config), np.arange(len(codes)))
    np.testing.assert_array_equal(written, as_array(codes))


@pytest.mark.parametrize("total", [1, 784, 2**63 - 1, 2**63, 3 * 2**90])
def test_integers_are_below_the_total_and_of_one_stream(total):
    numbers = uniform_integers((1, 2), total, 0, 300)
    assert numbers.dtype == (np.int64 if total < 2**63 else object)
    assert numbers.min() >= 0
    assert numbers.max() < total
    pieces = [uniform_integers((1, 2), total, a, b) for a, b in [(0, 7), (7, 7), (7, 300)]]
    np.testing.assert_array_equal(numbers, np.concatenate(pieces))
    if total > 300:
        third = Counter(int(3 * int(n) // total) for n in numbers)
        assert chisquare([third[0], third[1], third[2]]).pvalue > 1e-3


def test_integers_are_redrawn_where_a_remainder_would_favour_small_numbers():
    # A total just above half of 2^64 rejects almost half of the words.
    total = 2**63 - 2**61
    numbers = uniform_integers((0,), total, 0, 4000)
    counts = np.bincount((numbers // (total // 4)).clip(max=3).astype(int), minlength=4)
    assert chisquare(counts).pvalue > 1e-3
    # Taking remainders without rejection would put 2/3 more on the first third.
    raw = np.random.default_rng(0).integers(0, 2**64, 4000, dtype=np.uint64) % np.uint64(total)
    biased = np.bincount((raw // np.uint64(total // 4)).clip(max=3).astype(int), minlength=4)
    assert chisquare(biased).pvalue < 1e-6


CASES = [
    (uniform((3, 2), 1, 4), None),
    (uniform((3, 2), 1, 4), HASHED),
    (balanced((4, 3), (3, 2), 3), ranked(6, 3, 3)),
    (balanced((2, 3, 2), (2, 2, 1), 3), HASHED),
]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(("config", "rule"), CASES)
def test_codes_are_uniform_over_the_split(config, rule, split):
    data = dataset(config, rule, seed=3)
    mine = set(map(tuple, feature_codes(data, split).tolist()))
    support = [code for code, feature in all_codes(config).items() if feature in mine]
    drawn = sample_codes(data, split, 0, 40 * len(support))
    assert drawn.dtype == np.uint8
    sampled = Counter(map(tuple, drawn.tolist()))
    assert set(sampled) <= set(support)
    assert chisquare([sampled[code] for code in support]).pvalue > 1e-3


def test_splits_and_seeds_have_their_own_streams():
    space = uniform((6, 6), 9, 9)
    a = {split: sample_codes(dataset(space), split, 0, 200) for split in ("train", "val", "test")}
    b = sample_codes(dataset(space, seed=1), "train", 0, 200)
    rows = [{row.tobytes() for row in part} for part in (*a.values(), b)]
    assert sum(map(len, rows)) == len(set.union(*rows))  # 800 of 94 million codes


def test_spaces_beyond_64_bits():
    for config in (uniform((9, 9), 1, 81), balanced((9, 9), (9, 9), 40)):
        objects = sample_codes(dataset(config), "test", 0, 50)
        again = sample_codes(dataset(config), "test", 25, 50)
        np.testing.assert_array_equal(objects[25:], again)
        assert len(np.unique(objects, axis=0)) == 50
        assert 30 < objects.sum(axis=1).mean() < 50


def test_an_empty_split_cannot_be_sampled():
    # The only feature code is in one split; a hash decides in which.
    data = dataset(uniform((1, 1), 1, 1), {"rule": "hashed_feature_codes"})
    assert sample_codes(data, "train", 0, 2).tolist() == [[1], [1]]
    for split in ("val", "test"):
        with pytest.raises(ConfigError, match=rf"toy\.split\.{split}(?s:.*)remedy"):
            sample_codes(data, split, 0, 2)
