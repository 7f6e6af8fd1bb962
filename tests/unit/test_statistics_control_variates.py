"""What is known of a sample makes a mean less noisy, and moves it nowhere."""

import numpy as np
import pytest

from bindscope.statistics.control_variates import controlled

N = 400


def draw(rng, share):
    """A control of mean 3, and values of mean 5 that follow it by `share`."""
    control = 3.0 + rng.normal(size=N)
    return 5.0 + share * (control - 3.0) + 0.5 * rng.normal(size=N), control


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_mean_is_kept_and_its_noise_is_that_of_what_is_left(share):
    rng = np.random.default_rng(0)
    means = []
    for _ in range(2000):
        values, control = draw(rng, share)
        means.append(controlled(values, control, 3.0).mean())
    error = 0.5 / np.sqrt(N)  # of the part that has nothing to do with the control
    assert np.mean(means) == pytest.approx(5.0, abs=4 * error / np.sqrt(2000))
    assert np.std(means) == pytest.approx(error, rel=0.1)


def test_what_equals_the_control_has_its_exact_mean():
    control = np.random.default_rng(1).normal(size=N)
    assert controlled(control, control, 0.0) == pytest.approx(np.zeros(N))
    assert controlled(2.0 + control, control, 0.0) == pytest.approx(np.full(N, 2.0))


def test_the_coefficient_stays_between_0_and_1():
    control = np.random.default_rng(2).normal(size=N) + 0.5
    assert controlled(-control, control, 0.0) == pytest.approx(-control)
    assert controlled(3.0 * control, control, 0.0) == pytest.approx(2.0 * control)


def test_a_control_that_does_not_move_says_nothing():
    values = np.arange(4.0)
    assert controlled(values, np.full(4, 7.0), 7.0) == pytest.approx(values)
    assert controlled(values, np.full(4, 8.0), 7.0) == pytest.approx(values)
