"""Intervals of means: against scipy's own tests, and how often they cover."""

import numpy as np
import pytest
from scipy import stats

from bindscope.statistics.means import half_width, mean_interval, welch_interval


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_mean_has_students_interval(n):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    computed = mean_interval(values, level=0.9)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    np.testing.assert_allclose(computed, (values.mean(), expected.low, expected.high), rtol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (3, 9)])
def test_the_difference_has_welchs_interval(n, m):
    rng = np.random.default_rng(n * m)
    x, y = rng.normal(1.0, 0.1, n), rng.normal(0.0, 3.0, m)
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    computed = welch_interval(x, y)
    np.testing.assert_allclose(
        computed, (x.mean() - y.mean(), expected.low, expected.high), rtol=1e-12
    )


def test_a_single_value_has_no_interval():
    assert np.isnan(mean_interval([1.0])[1:]).all()
    assert mean_interval([1.0]).value == 1.0
    assert np.isnan(welch_interval([1.0], [0.0, 2.0])[1:]).all()
    assert np.isnan(half_width([1.0, 1.0], [1, 3])).tolist() == [True, False]


def test_an_interval_ends_at_what_is_possible():
    shares = [0.999, 1.0, 0.996]
    plain, bounded = mean_interval(shares), mean_interval(shares, possible=(0.0, 1.0))
    assert plain.high > 1.0 == bounded.high
    assert (bounded.value, bounded.low) == (plain.value, plain.low)


def test_values_without_spread_have_an_interval_without_width():
    assert welch_interval([2.0, 2.0], [1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_what_is_no_sample_is_refused(values):
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval(values)
