"""Feature codes, and counting object codes, against listing all of them."""

from collections import Counter
from math import comb, log2, prod

import numpy as np
import pytest
from codes_by_hand import SPACES, all_codes, as_array, counts_of, name_of

from bindscope.codes.counting import by_counts, covers, n_feature_codes, subsets
from bindscope.codes.prefix import distinct_rows, integer_dtype
from bindscope.codes.space import build_space, feature_code, n_outcomes


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_feature_codes_agree_with_the_definition(config):
    codes = all_codes(config)
    features = feature_code(as_array(codes), build_space(config).sizes)
    assert features.dtype == np.uint8
    np.testing.assert_array_equal(features, as_array(codes.values()))


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"\(2, 5\), expected \(N, 6\)"):
        feature_code(np.zeros((2, 5), np.uint8), (2, 3))


@pytest.mark.parametrize("config", SPACES, ids=name_of)
def test_covers_of_a_space_agree_with_listing_all_codes(config):
    space, codes = build_space(config), all_codes(config)
    per_feature = Counter(codes.values())
    by_counts = {counts_of(f, space.sizes): n for f, n in per_feature.items()}
    assert space.covers() == by_counts
    assert n_outcomes(space) == len(codes)
    n_features = sum(n_feature_codes(space.sizes, counts) for counts in space.covers())
    assert n_features == len(per_feature)


def test_every_code_has_exactly_one_feature_code():
    # Summed over feature codes, covers are all subsets: sum_a prod C(s, a) N_k(a) = C(K, k).
    for sizes, k in [((7, 7), 16), ((8, 3, 2, 2), 6), ((6, 6), 9)]:
        table = by_counts(sizes, lambda counts, k=k: covers(counts, k, k))
        total = sum(n_feature_codes(sizes, counts) * ways for counts, ways in table.items())
        assert total == comb(prod(sizes), k)


def test_known_values():
    assert covers((6, 6), 6, 6) == 720  # one object per row and column: permutations
    assert log2(covers((6, 6), 18, 18)) == pytest.approx(32.90786873, abs=5e-9)
    assert covers((3, 3), 2, 2) == 0  # two objects cannot use three values
    assert subsets(64, 1, 64) == 2**64 - 1
    assert subsets(3, 0, 99) == 8


def test_counts_are_exact_on_both_sides_of_64_bits():
    assert integer_dtype(2**63 - 1).name == "int64"
    assert integer_dtype(2**63).name == "object"


def test_distinct_rows_is_numpy_unique():
    rng = np.random.default_rng(0)
    for columns, top in [(1, 3), (5, 4), (40, 8)]:  # 8^40 does not fit 64 bits
        rows = rng.integers(0, top, size=(300, columns))
        rows[1::2, 1:] = rows[::2, 1:]  # these differ in the first column, if at all
        rows = np.concatenate([rows, rows[::3]])
        distinct, inverse = distinct_rows(rows)
        np.testing.assert_array_equal(distinct[inverse], rows)
        assert len(distinct) == len(np.unique(rows, axis=0))
    assert distinct_rows(np.zeros((0, 3), np.int64))[0].shape == (0, 3)
