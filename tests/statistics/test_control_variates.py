"""What is known of a sample makes a mean less noisy, and moves it nowhere."""

import numpy as np
import pytest

from bindscope.statistics.control_variates import control_coefficient

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
        coefficient = control_coefficient(*draw(rng, share))
        values, control = draw(rng, share)  # other scenes than those that chose it
        means.append((values - coefficient * (control - 3.0)).mean())
    error = 0.5 / np.sqrt(N)  # of the part that has nothing to do with the control
    assert np.mean(means) == pytest.approx(5.0, abs=4 * error / np.sqrt(2000))
    assert np.std(means) == pytest.approx(error, rel=0.1)


CONTROL = np.random.default_rng(1).normal(size=N)


@pytest.mark.parametrize(
    ("values", "control", "expected"),
    [
        (CONTROL, CONTROL, 1.0),
        (2.0 + 0.3 * CONTROL, CONTROL, 0.3),
        (-CONTROL, CONTROL + 0.5, 0.0),  # between 0 and 1
        (3.0 * CONTROL, CONTROL + 0.5, 1.0),
        (np.arange(4.0), np.full(4, 7.0), 0.0),  # a control that does not move
    ],
)
def test_the_coefficient_is_that_of_a_regression_between_0_and_1(values, control, expected):
    assert control_coefficient(values, control) == pytest.approx(expected)
