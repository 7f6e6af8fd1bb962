"""The mixture with the prior: its optimum by brute force, its worst gain, and its e-value."""

import numpy as np
import pytest

from bindscope.statistics.prior_mixtures import fit_prior_weight, mixture_gains


def objective(gains, weights):
    mixed = np.log2((1 - weights[:, None]) * 2.0**gains + weights[:, None])
    return mixed.sum(1) + np.log2(weights)


@pytest.mark.parametrize("mean", [-3.0, -0.1, 0.0, 0.3, 2.0])
def test_the_weight_is_the_best_of_a_grid(mean):
    gains = np.random.default_rng(0).normal(mean, 1.5, 60)
    grid = np.arange(1, 20_001) / 20_000
    weight = fit_prior_weight(gains)
    assert weight == pytest.approx(grid[objective(gains, grid).argmax()], abs=1e-4)


def test_the_weight_is_at_least_that_of_one_scene_more():
    for n in (1, 10, 1000):
        assert fit_prior_weight(np.full(n, 30.0)) == pytest.approx(1 / (n + 1), rel=1e-6)
        assert fit_prior_weight(np.full(n, 2000.0)) == pytest.approx(1 / (n + 1))  # 2^g overflows


@pytest.mark.parametrize("gains", [np.zeros(5), np.full(5, -1.0), np.full(5, -np.inf)])
def test_where_nothing_is_gained_the_prior_stands(gains):
    assert fit_prior_weight(gains) == 1.0
    np.testing.assert_array_equal(mixture_gains(gains, 1.0), 0.0)


def test_no_scene_loses_more_than_the_weight_says():
    gains = np.array([-np.inf, -1e9, -3.0, 0.0, 5.0, 1500.0])
    mixed = mixture_gains(gains, 0.25)
    assert mixed[:2] == pytest.approx(-2.0)
    assert mixed[3] == pytest.approx(0.0)
    assert mixed[2] == pytest.approx(np.log2(0.75 / 8 + 0.25))
    assert (mixed[4:] >= gains[4:] + np.log2(0.75) - 1e-12).all()


def test_gains_so_far_give_the_mixtures_gains_so_far():
    """The mixture of whole codes is a probe too: its heads' probabilities add up to 1."""
    rng = np.random.default_rng(0)
    prior, probe = rng.dirichlet(np.ones(4), 2)  # of two bits
    first = mixture_gains(np.log2(probe[:2].sum() / prior[:2].sum()), 0.3)
    both = mixture_gains(np.log2(probe / prior), 0.3)
    assert 2.0**first * prior[:2].sum() == pytest.approx((2.0**both * prior)[:2].sum())
    assert (2.0**both * prior).sum() == pytest.approx(1.0)


def test_the_product_over_scenes_is_an_e_value():
    """Codes of 8 that have nothing to do with what the probe says, which is sure of itself."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(20_000, 12, 8))
    gains = np.log2(np.exp(logits[..., 0]) / np.exp(logits).sum(-1) * 8)
    evidence = mixture_gains(gains, 0.3).sum(1)
    for bits in (1.0, 3.0, 5.0):
        assert (evidence > bits).mean() < 2.0**-bits


def test_a_probe_that_is_too_sure_of_itself_gains_by_the_mixture():
    """3 % errors, each of which costs 20 bits; and losses with a heavy tail."""
    rng, entropy = np.random.default_rng(0), np.log2(24)
    wrong = rng.random((2, 1000)) < 0.03
    for validation, test in (
        np.where(wrong, entropy - 20.0, entropy - 0.001),
        9.5 - np.exp(rng.normal(0.0, 2.2, (2, 1000))),
    ):
        mixed = mixture_gains(test, fit_prior_weight(validation))
        assert mixed.mean() > test.mean() + 0.05
        assert mixed.mean() > 0
