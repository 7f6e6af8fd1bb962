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


CONTROL = np.random.default_rng(1).normal(size=N)


@pytest.mark.parametrize(
    ("values", "control", "mean", "expected"),
    [
        (CONTROL, CONTROL, 0.0, np.zeros(N)),  # what equals the control has its exact mean
        (2.0 + CONTROL, CONTROL, 0.0, np.full(N, 2.0)),
        (-CONTROL, CONTROL + 0.5, 0.0, -CONTROL),  # the coefficient stays between 0 and 1
        (3.0 * CONTROL, CONTROL + 0.5, 0.0, 2.0 * CONTROL - 0.5),
        (np.arange(4.0), np.full(4, 7.0), 7.0, np.arange(4.0)),  # a control that does not move
        (np.arange(4.0), np.full(4, 8.0), 7.0, np.arange(4.0)),
    ],
)
def test_values_follow_their_control_up_to_all_of_it(values, control, mean, expected):
    assert controlled(values, control, mean) == pytest.approx(expected)
