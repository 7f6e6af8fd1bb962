"""Wilson's interval against published values, its definition and its coverage."""

import numpy as np
import pytest
from scipy.stats import norm

from bindscope.statistics.proportions import wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # R. G. Newcombe (1998), Stat. Med. 17, 857-872, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_the_ends_are_where_the_score_test_stops_rejecting():
    k, n, level = np.arange(31), 30, 0.9
    for end in wilson_interval(k, n, level):
        inside = (end > 0) & (end < 1)
        p, share = end[inside], k[inside] / n
        score = np.abs(share - p) / np.sqrt(p * (1 - p) / n)
        np.testing.assert_allclose(score, norm.ppf((1 + level) / 2), rtol=1e-9)


def test_symmetric_and_within_the_unit_interval():
    low, high = wilson_interval(np.arange(11), 10)
    np.testing.assert_allclose(low, 1 - high[::-1], atol=1e-12)
    assert low[0] == 0.0
    assert high[-1] == 1.0
    assert (low < high).all()


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="successes"):
        wilson_interval(successes, trials)
