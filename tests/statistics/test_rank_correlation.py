"""Rank correlation of groups: known values, scipy as oracle, and what the interval must do."""

import numpy as np
import pytest
from scipy.stats import rankdata
from scipy.stats import spearmanr as oracle

from bindscope.statistics.rank_correlation import (
    FEWEST_GROUPS,
    average_ranks,
    rank_correlation,
    spearman,
)


def groups_of(points, members=1, scatter=0.0, seed=0):
    """Groups around given points, each with a few members."""
    rng = np.random.default_rng(seed)
    return [np.array(p) + scatter * rng.normal(size=(members, 2)) for p in points]


def test_ranks_and_correlations_are_those_of_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 4, (2, 50, 6))  # with many ties
    np.testing.assert_array_equal(average_ranks(x), rankdata(x, axis=-1))
    for a, b, correlation in zip(x, y, spearman(x, y), strict=True):
        if len(set(a)) > 1 and len(set(b)) > 1:
            assert correlation == pytest.approx(oracle(a, b).statistic)
        else:
            assert np.isnan(correlation)


@pytest.mark.parametrize("sign", [1, -1])
def test_groups_in_perfect_order_have_no_doubt_left(sign):
    correlation = rank_correlation(groups_of([(i, sign * i**3) for i in range(6)]))
    assert correlation == pytest.approx((sign, sign, sign))


def test_the_interval_holds_0_where_the_order_is_any():
    correlation = rank_correlation(groups_of([(0, 2), (1, 0), (2, 3), (3, 1), (4, 2.5), (5, 0.5)]))
    assert correlation.low < 0 < correlation.high


def test_members_that_scatter_more_than_the_groups_differ_widen_it():
    points = [(i, i) for i in range(6)]
    calm, wild = (rank_correlation(groups_of(points, 3, scatter)) for scatter in (0.01, 5.0))
    assert calm.low == pytest.approx(1)
    assert wild.low < 0.5


def test_members_count_once():
    """Copies of a member change nothing: 6 groups of 50 equal members are 6 groups."""
    points = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    alone, copied = (rank_correlation(groups_of(points, n), 4000) for n in (1, 50))
    assert copied.value == alone.value
    assert copied.low == pytest.approx(alone.low, abs=0.1)


def test_too_few_groups_have_a_value_and_no_interval():
    correlation = rank_correlation(groups_of([(i, i) for i in range(FEWEST_GROUPS - 1)]))
    assert correlation.value == 1
    assert np.isnan(correlation.low)
    assert np.isnan(rank_correlation(groups_of([(0, 0)])).value)
    same = rank_correlation(groups_of([(1, i) for i in range(6)]))
    assert np.isnan(same.value)
    assert np.isnan(same.high)
