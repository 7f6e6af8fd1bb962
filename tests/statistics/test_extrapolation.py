"""Asymptotes of curves that are known, and curves that have none."""

import numpy as np
import pytest

from bindscope.statistics.extrapolation import EXPONENTS, fit_power_laws

N = np.array([1000, 2000, 4000, 8000])


def law(a, b, c):
    return a - b * (N / N[-1]) ** -c


@pytest.mark.parametrize(("a", "b", "c"), [(9.0, 1.0, 0.5), (3.0, 0.2, 1.0), (-1.0, 2.0, 2.5)])
def test_a_power_law_is_found(a, b, c):
    curve = law(a, b, c)
    fits = fit_power_laws(N, curve[None])
    close = 0.005 * np.ptp(curve)
    assert fits.ends.all()
    assert fits.exponent[0] == pytest.approx(c, rel=0.01)
    assert fits.asymptote[0] == pytest.approx(a, abs=close)
    assert fits.factor[0] == pytest.approx(b, abs=close)
    assert fits.residual[0] < close


def test_what_does_not_end_says_so():
    fits = fit_power_laws(N, np.array([np.log2(N), N / 1000.0]))
    assert not fits.ends.any()
    np.testing.assert_array_equal(fits.exponent, EXPONENTS[0])


def test_a_slow_curve_with_little_left_ends_nevertheless():
    nearly_flat = 5 + 0.001 * np.log2(N)[None]
    assert not fit_power_laws(N, nearly_flat).ends[0]
    assert fit_power_laws(N, nearly_flat, negligible=0.05).ends[0]


@pytest.mark.parametrize("curve", [[5.0, 5.0, 5.0, 5.0], [4.0, 3.0, 2.0, 1.0]])
def test_a_curve_that_does_not_rise_ends_at_its_mean(curve):
    fits = fit_power_laws(N, np.array([curve]))
    assert fits.factor[0] == 0
    assert fits.asymptote[0] == np.mean(curve)


def test_an_end_is_not_above_what_there_is():
    curve = law(9.0, 1.0, 0.5)
    free, bound = fit_power_laws(N, curve[None]), fit_power_laws(N, curve[None], most=8.6)
    assert free.asymptote[0] > 8.6
    assert bound.asymptote[0] == 8.6
    assert bound.residual[0] > free.residual[0]
    np.testing.assert_array_equal(
        fit_power_laws(N, curve[None], most=20.0).asymptote, free.asymptote
    )


def test_curves_are_fitted_one_by_one():
    curves = np.array([law(9.0, 1.0, 0.5), law(3.0, 0.2, 1.0)])
    together = fit_power_laws(N, curves)
    for i, curve in enumerate(curves):
        assert fit_power_laws(N, curve[None]).asymptote[0] == pytest.approx(together.asymptote[i])


def test_two_points_have_no_end():
    with pytest.raises(ValueError, match="3 points"):
        fit_power_laws([1, 2, 2], np.zeros((1, 3)))
