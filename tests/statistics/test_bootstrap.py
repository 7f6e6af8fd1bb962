"""The bootstrap against closed forms, and its coverage where the truth is known."""

from itertools import product

import numpy as np
import pytest

from bindscope.statistics.bootstrap import (
    Interval,
    bootstrap,
    cluster_numbers,
    interval,
    paired_difference,
    resampled_means,
)


def rng(*seed):
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def test_columns_share_each_resample():
    values = rng(0).normal(size=(100, 1))
    means = resampled_means(np.hstack([values, values + 5, 2 * values]), 200, 0)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 5)
    np.testing.assert_allclose(means[:, 2], 2 * means[:, 0])


def test_the_seed_decides_and_blocks_do_not(monkeypatch):
    values = rng(0).normal(size=(97, 3)).astype(np.float32)
    clusters = rng(1).integers(0, 11, 97)
    for kind in (None, clusters):
        whole = resampled_means(values, 50, 3, kind)
        np.testing.assert_array_equal(whole, resampled_means(values, 50, 3, kind))
        assert not np.allclose(whole, resampled_means(values, 50, 4, kind))
        for block in (1, 500):
            with monkeypatch.context() as smaller:
                smaller.setattr("bindscope.statistics.bootstrap.BLOCK", block)
                again = resampled_means(values, 50, 3, kind)
            np.testing.assert_allclose(whole, again, rtol=1e-12)


def test_clusters_of_one_scene_are_the_plain_bootstrap():
    values = rng(0).normal(size=(60, 2))
    np.testing.assert_allclose(
        resampled_means(values, 30, 0, np.arange(60)), resampled_means(values, 30, 0)
    )


def test_interval_is_the_percentiles():
    assert interval(np.arange(1001) / 10) == pytest.approx((2.5, 97.5))
    assert interval(np.arange(1001) / 10, level=0.5) == pytest.approx((25.0, 75.0))


def test_equal_rows_are_one_cluster():
    features = np.array([[1, 0], [0, 1], [1, 0], [1, 1]], dtype=np.uint8)
    numbers = cluster_numbers(features)
    assert numbers[0] == numbers[2]
    assert len(set(numbers.tolist())) == 3


def test_means_are_those_of_all_resamples_of_clusters():
    """Three clusters have 27 resamples, equally likely: their means by brute force."""
    values, clusters = np.array([1.0, 3.0, 10.0, 20.0, 60.0]), np.array([0, 0, 1, 2, 2])
    groups = [values[clusters == c] for c in range(3)]
    every = [
        np.concatenate([groups[c] for c in drawn]).mean() for drawn in product(range(3), repeat=3)
    ]
    means = resampled_means(values[:, None], 40_000, 0, clusters)[:, 0]
    distinct, times = np.unique(np.round(means, 9), return_counts=True)
    expected, ways = np.unique(np.round(every, 9), return_counts=True)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_allclose(times / 40_000, ways / 27, atol=0.01)


def test_several_statistics_share_the_resamples():
    values = rng(0).gamma(2.0, 3.0, (200, 2))
    intervals = bootstrap(
        values,
        {
            "first": lambda m: m[:, 0],
            "more": lambda m: m[:, 0] + 7,
            "ratio": lambda m: m[:, 0] / m[:, 1],
            "same": lambda m: m[:, 1] / m[:, 1],
        },
        n_samples=500,
        seed=3,
    )
    assert intervals["first"].value == pytest.approx(values[:, 0].mean())
    assert np.subtract(intervals["more"], intervals["first"]) == pytest.approx([7, 7, 7])
    assert intervals["same"] == Interval(1.0, 1.0, 1.0)
    assert intervals["ratio"].low < intervals["ratio"].value < intervals["ratio"].high
    samples = resampled_means(values, 500, 3)
    assert intervals["ratio"][1:] == interval(samples[:, 0] / samples[:, 1])


def correlated(r, n, correlation=0.9):
    """Pairs with standard deviation 2, whose difference has variance 2 (1 - correlation) 4."""
    common = np.sqrt(correlation) * r.normal(size=n)
    independent = np.sqrt(1 - correlation) * r.normal(size=(2, n))
    return 10 + 2 * (common + independent)


def test_a_paired_interval_has_the_width_of_the_difference():
    first, second = correlated(rng(1), 2000)
    difference = paired_difference(first, second, 4000)
    assert difference.value == pytest.approx(first.mean() - second.mean())
    deviation = np.sqrt(2 * (1 - 0.9)) * 2 / np.sqrt(2000)
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * deviation, rel=0.08)
    alone = [np.diff(interval(resampled_means(x[:, None], 4000, 0)[:, 0])) for x in (first, second)]
    assert difference.high - difference.low < 0.4 * np.hypot(*alone)  # sqrt(1 - correlation) = 0.32


def test_pairs_are_of_the_same_scenes():
    with pytest.raises(ValueError, match="equal length"):
        paired_difference(np.zeros(3), np.zeros(4))


def test_coverage_of_paired_differences_over_clusters():
    hits = 0
    for i in range(300):
        r, clusters = rng(6, i), np.repeat(np.arange(60), 5)
        first, second = correlated(r, 300) + r.normal(size=(2, 60))[:, clusters]
        difference = paired_difference(first + 0.5, second, 300, i, clusters)
        hits += difference.low <= 0.5 <= difference.high
    assert 0.91 <= hits / 300 <= 0.98
