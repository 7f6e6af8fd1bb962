"""Verdicts, case by case."""

import numpy as np
import pytest

from bindscope.statistics.verdict import verdict, verdict_of_test


@pytest.mark.parametrize(
    ("low", "high", "claim", "threshold", "expected"),
    [
        (0.1, 0.5, "above", 0.0, "holds"),
        (-0.1, 0.5, "above", 0.0, "undecided"),
        (0.0, 0.5, "above", 0.0, "undecided"),
        (-0.5, -0.1, "above", 0.0, "does not"),
        (-0.5, 0.0, "above", 0.0, "does not"),
        (0.1, 0.5, "above", 0.3, "undecided"),
        (0.1, 0.5, "above", 0.6, "does not"),
        (-0.5, -0.1, "below", 0.0, "holds"),
        (0.1, 0.5, "below", 0.0, "does not"),
        (0.0, 0.5, "below", 0.0, "does not"),
        (-0.1, 0.5, "below", 0.0, "undecided"),
        (0.1, 0.5, "below", 0.6, "holds"),
        (-0.2, 0.2, "within", 0.3, "holds"),
        (-0.4, 0.2, "within", 0.3, "undecided"),
        (-0.4, 0.4, "within", 0.3, "undecided"),
        (0.4, 0.5, "within", 0.3, "does not"),
        (-0.5, -0.4, "within", 0.3, "does not"),
        (np.nan, np.nan, "above", 0.0, "undecided"),
    ],
)
def test_by_interval(low, high, claim, threshold, expected):
    assert verdict(low, high, claim, threshold) == expected


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="empty"):
        verdict(1.0, 0.0, "above")
    with pytest.raises(ValueError, match="positive"):
        verdict(-1.0, 1.0, "within")


@pytest.mark.parametrize(
    ("effect", "p_value", "claim", "threshold", "expected"),
    [
        (0.5, 0.01, "above", 0.0, "holds"),
        (0.5, 0.05, "above", 0.0, "holds"),
        (0.5, 0.06, "above", 0.0, "undecided"),
        (-0.5, 0.01, "above", 0.0, "does not"),
        (-0.5, 0.01, "below", 0.0, "holds"),
        (0.5, 0.01, "below", 0.0, "does not"),
        (0.5, 0.01, "above", 0.6, "does not"),
        (np.nan, 0.01, "above", 0.0, "undecided"),
        (0.5, np.nan, "above", 0.0, "undecided"),
    ],
)
def test_by_test(effect, p_value, claim, threshold, expected):
    assert verdict_of_test(effect, p_value, claim, threshold) == expected
