"""Holm's correction by hand, against the step-down procedure itself, and its error rate."""

import numpy as np
import pytest

from bindscope.statistics.multiple_tests import holm


def test_an_example_by_hand():
    # Sorted: 0.005 x 4 = 0.02; 0.01 x 3 = 0.03; 0.03 x 2 = 0.06; 0.04 x 1 = 0.04, not below 0.06.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_one_test_stays_and_nothing_exceeds_one():
    assert holm([0.2]) == pytest.approx([0.2])
    assert holm([0.9, 0.6, 0.8]).tolist() == [1.0, 1.0, 1.0]
    assert holm([]).shape == (0,)


def rejected_step_by_step(p, alpha):
    """Holm (1979): reject the smallest while it is at most alpha over the number that are left."""
    remaining, rejected = list(range(len(p))), set()
    while remaining:
        best = min(remaining, key=lambda i: p[i])
        if p[best] > alpha / len(remaining):
            break
        remaining.remove(best)
        rejected.add(best)
    return rejected


def test_the_adjusted_values_reject_what_the_procedure_rejects():
    rng = np.random.default_rng(0)
    for _ in range(300):
        p = np.round(rng.beta(0.3, 1.0, rng.integers(1, 8)), 3)  # with ties
        for alpha in (0.011, 0.053, 0.21):
            assert set(np.flatnonzero(holm(p) <= alpha)) == rejected_step_by_step(p, alpha)


@pytest.mark.parametrize("bad", [[0.5, 1.1], [-0.1], [np.nan], [[0.1]]])
def test_what_is_no_probability_is_refused(bad):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm(bad)
