"""Counting object codes by inclusion-exclusion, against listing all of them."""

from collections import Counter
from itertools import product
from math import comb, log2, prod

import pytest
from codes_by_hand import SPACES, all_codes, counts_of, feature_of, name_of

from bindscope.codes.counting import by_counts, covers, n_feature_codes, subsets
from bindscope.codes.space import build_space, n_outcomes

GRIDS = [(1,), (5,), (1, 1), (1, 4), (2, 3), (3, 3), (4, 3), (2, 2, 2), (2, 3, 2), (2, 1, 2, 2)]


@pytest.mark.parametrize("sizes", GRIDS, ids=str)
def test_covers_of_every_size_agree_with_listing_all_codes(sizes):
    everything = tuple([1] * sum(sizes))
    by_hand = Counter(
        sum(code)
        for code in product((0, 1), repeat=prod(sizes))
        if feature_of(code, sizes) == everything
    )
    for size in range(prod(sizes) + 2):
        assert covers(sizes, size, size) == by_hand[size]
    assert covers(sizes, 2, 5) == sum(by_hand[size] for size in range(2, 6))


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
