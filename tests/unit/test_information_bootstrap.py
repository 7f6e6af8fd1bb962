"""The bootstrap against closed forms, and its coverage where the truth is known."""

import numpy as np
import pytest

from bindscope.statistics.bootstrap import feature_clusters, interval, resampled_means


def rng(*seed):
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def test_variance_of_the_resampled_mean_is_the_sample_variance_over_n():
    values = rng(0).gamma(2.0, 3.0, (150, 2))
    means = resampled_means(values, 20_000, 1)
    assert means.shape == (20_000, 2)
    np.testing.assert_allclose(means.mean(axis=0), values.mean(axis=0), rtol=2e-3)
    np.testing.assert_allclose(means.var(axis=0), values.var(axis=0) / 150, rtol=0.04)
    covariance = np.cov(values.T, bias=True)[0, 1] / 150
    assert np.cov(means.T)[0, 1] == pytest.approx(covariance, abs=0.04 * means.var(axis=0).max())


def test_columns_share_each_resample():
    values = rng(0).normal(size=(100, 1))
    means = resampled_means(np.hstack([values, values + 5, 2 * values]), 200, 0)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 5)
    np.testing.assert_allclose(means[:, 2], 2 * means[:, 0])


def test_the_seed_decides_and_blocks_do_not():
    values = rng(0).normal(size=(97, 3)).astype(np.float32)
    clusters = rng(1).integers(0, 11, 97)
    for kind in (None, clusters):
        whole = resampled_means(values, 50, 3, kind)
        np.testing.assert_array_equal(whole, resampled_means(values, 50, 3, kind))
        np.testing.assert_allclose(whole, resampled_means(values, 50, 3, kind, block=1), rtol=1e-12)
        np.testing.assert_allclose(
            whole, resampled_means(values, 50, 3, kind, block=500), rtol=1e-12
        )
        assert not np.allclose(whole, resampled_means(values, 50, 4, kind))


def test_clusters_of_one_scene_are_the_plain_bootstrap():
    values = rng(0).normal(size=(60, 2))
    np.testing.assert_allclose(
        resampled_means(values, 30, 0, np.arange(60)), resampled_means(values, 30, 0)
    )


def test_one_cluster_never_varies():
    values = rng(0).normal(size=(60, 2))
    means = resampled_means(values, 30, 0, np.zeros(60, dtype=int))
    np.testing.assert_allclose(means, np.tile(values.mean(axis=0), (30, 1)))


def test_a_drawn_cluster_brings_all_its_scenes():
    values = np.array([[1.0], [2.0], [30.0]])
    means = resampled_means(values, 500, 0, np.array([7, 7, 2]))
    # Two draws of {1, 2} and {30}: the mean of 1.5, of (1 + 2 + 30) / 3, or of 30.
    assert set(np.round(means[:, 0], 9)) == {1.5, 11.0, 30.0}


def test_interval_is_the_percentiles():
    assert interval(np.arange(1001) / 10) == pytest.approx((2.5, 97.5))
    assert interval(np.arange(1001) / 10, level=0.5) == pytest.approx((25.0, 75.0))


def test_feature_clusters_number_the_codes():
    features = np.array([[1, 0], [0, 1], [1, 0], [1, 1]], dtype=np.uint8)
    numbers = feature_clusters(features)
    assert numbers[0] == numbers[2]
    assert len(set(numbers.tolist())) == 3


def coverage(draw, truth, repetitions=300, samples=300):
    """Share of 95 % intervals that hold the truth."""
    hits = 0
    for i in range(repetitions):
        values, clusters = draw(rng(5, i))
        low, high = interval(resampled_means(values[:, None], samples, i, clusters)[:, 0])
        hits += low <= truth <= high
    return hits / repetitions


def test_coverage_for_skewed_losses():
    # Exponential losses of mean 2: the sampling error of a coverage of 0.95 is 0.011.
    found = coverage(lambda r: (r.exponential(2.0, 300), None), 2.0)
    assert 0.91 <= found <= 0.98


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_coverage_over_clusters(spread):
    """60 feature codes of 10 scenes, whose means have standard deviation `spread`."""

    def draw(r):
        clusters = np.repeat(np.arange(60), 10)
        return r.normal(0, spread, 60)[clusters] + r.normal(0, 1, 600), clusters

    assert 0.91 <= coverage(draw, 0.0) <= 0.98
    plain = coverage(lambda r: (draw(r)[0], None), 0.0)
    if spread:
        assert plain < 0.7  # scenes of one F are no independent evidence
    else:
        assert 0.91 <= plain <= 0.98


def test_drawing_scenes_inside_drawn_clusters_would_count_their_variance_twice():
    """Why only clusters are drawn: var = (v_between + v_within / n) / G, and no more."""
    r = rng(9)
    g, n = 200, 10
    values = r.normal(size=(g, n))  # clusters do not differ
    one_stage = resampled_means(values.reshape(-1, 1), 4000, 0, np.repeat(np.arange(g), n)).var()
    two_stage = np.var(
        [values[r.integers(0, g, g)[:, None], r.integers(0, n, (g, n))].mean() for _ in range(2000)]
    )
    assert one_stage == pytest.approx(1 / (g * n), rel=0.3)
    assert two_stage / one_stage == pytest.approx(2 - 1 / n, rel=0.12)
