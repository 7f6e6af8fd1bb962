"""Gaffke's limit: closed forms, clusters, and how often it is above the mean."""

import numpy as np
import pytest
from scipy import stats

from bindscope.statistics.bootstrap import interval, resampled_means
from bindscope.statistics.lower_limits import lower_limit, p_above, pessimistic_means


@pytest.mark.parametrize(("ones", "n"), [(20, 20), (15, 20), (3, 10), (0, 7)])
def test_of_two_values_it_is_the_limit_of_clopper_and_pearson(ones, n):
    values = np.repeat([1.0, 0.0], [ones, n - ones])
    expected = stats.binomtest(ones, n).proportion_ci(0.95, method="exact").low
    assert lower_limit(values, 0.0, n_samples=40_000) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("ones", "n", "threshold"),
    [
        (20, 20, 0.75),
        (3, 10, 0.1),
        (1, 1, 0.3),
        (199, 200, 0.95),
        (1000, 1000, 0.75),
        (100, 200, 0.95),
    ],
)
def test_of_two_values_the_p_value_is_the_binomial_tests(ones, n, threshold):
    values = np.repeat([1.0, 0.0], [ones, n - ones])
    expected = stats.binomtest(ones, n, threshold, alternative="greater").pvalue
    assert p_above(values, 0.0, threshold) == pytest.approx(expected, rel=1e-9)


def test_the_p_value_is_the_level_at_which_the_limit_meets_the_threshold():
    values = np.random.default_rng(0).choice([-1.0, -0.5, 0.0, 1.0], 80, p=[0.05, 0.1, 0.5, 0.35])
    means = pessimistic_means(values[:, None], [-1.0], 100_000, 0)
    for threshold in (0.0, 0.1, 0.3):
        expected = (means <= threshold).mean()
        assert p_above(values, -1.0, threshold) == pytest.approx(expected, abs=0.004)
    assert p_above(values, -1.0, 1.0) == 1.0
    with pytest.raises(ValueError, match="not below"):
        p_above(values, -1.0, -1.0)


def test_sums_of_columns_share_their_weights():
    values = np.random.default_rng(0).normal(size=(50, 2))
    columns = np.column_stack([values, values.sum(1)])
    means = pessimistic_means(columns, [-4.0, -5.0, -9.0], 30, 0)
    np.testing.assert_allclose(means[:, 0] + means[:, 1], means[:, 2])


def test_the_seed_decides_and_blocks_do_not(monkeypatch):
    values = np.random.default_rng(0).normal(size=(97, 2))
    whole = pessimistic_means(values, [-4.0, -4.0], 50, 3)
    assert not np.allclose(whole, pessimistic_means(values, [-4.0, -4.0], 50, 4))
    monkeypatch.setattr("bindscope.statistics.lower_limits.BLOCK", 500)
    np.testing.assert_allclose(whole, pessimistic_means(values, [-4.0, -4.0], 50, 3), rtol=1e-12)


def test_clusters_of_one_scene_are_scenes_and_others_count_by_their_size():
    values = np.random.default_rng(0).normal(size=(40, 1))
    np.testing.assert_allclose(
        pessimistic_means(values, [-4.0], 30, 0, np.arange(40)),
        pessimistic_means(values, [-4.0], 30, 0),
    )
    # Of clusters of one size, whose scenes agree, it is that of one scene of each.
    of_fives = pessimistic_means(np.repeat(values, 5, axis=0), [-4.0], 30, 0, np.arange(200) // 5)
    np.testing.assert_allclose(of_fives, pessimistic_means(values, [-4.0], 30, 0))


def test_clusters_of_unequal_sizes_end_at_the_worst_of_the_largest():
    """Weights w of two clusters and a further one, as large as the largest: a ratio of sums."""
    values, clusters = np.array([[1.0], [2.0], [6.0]]), np.array([0, 1, 1])
    weights = np.random.Generator(np.random.PCG64(np.random.SeedSequence([0])))
    w = weights.standard_exponential((20, 3))
    expected = (w @ [1.0, 8.0, 2 * -3.0]) / (w @ [1.0, 2.0, 2.0])
    np.testing.assert_allclose(pessimistic_means(values, [-3.0], 20, 0, clusters)[:, 0], expected)


def rare_losses(rng, n):
    """One scene in 33 loses 10 bits; the others gain 4."""
    return np.where(rng.random(n) < 0.03, -10.0, 4.0), 4.0 - 0.03 * 14.0


@pytest.mark.parametrize("n", [10, 60])
def test_it_is_above_the_mean_where_the_bootstrap_is_in_most_samples(n):
    rng, above = np.random.default_rng(n), np.zeros(2)
    for i in range(300):
        values, mean = rare_losses(rng, n)
        bootstrap = interval(resampled_means(values[:, None], 200, i)[:, 0])[0]
        above += [bootstrap > mean, lower_limit(values, -10.0, 200, i) > mean]
    assert above[0] / 300 > 0.1
    assert above[1] / 300 <= 0.035


def test_clusters_keep_the_coverage():
    """Whole clusters are lost, one in 20."""
    rng, above = np.random.default_rng(1), 0
    for i in range(300):
        sizes = rng.integers(1, 6, 40)
        lost = rng.random(40) < 0.05
        values = np.repeat(np.where(lost, -10.0, 4.0), sizes)
        limit = lower_limit(values, -10.0, 200, i, np.repeat(np.arange(40), sizes))
        above += limit > 4.0 - 0.05 * 14.0
    assert above / 300 <= 0.035
