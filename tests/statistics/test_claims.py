"""Verdicts on claims: what an interval says, what Holm takes back, and what is no evidence."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bindscope.statistics.claims import TRAINING_SEEDS, Claim, Effect, judge
from bindscope.statistics.means import mean_interval, welch_freedom, welch_interval

ABOVE = Claim("above", "It is above.")
EFFECT = Effect("above", "here", 2.0, 0.1, 3.5, 50, "images")


def verdict(claim: Claim, effect: Effect) -> str:
    return judge([claim], [replace(effect, claim=claim.name)])[0].verdict


@pytest.mark.parametrize(
    ("ends", "above", "below", "within"),
    [
        ((2.0, 0.1, 3.5), "holds", "does not hold", "not significant"),
        ((2.0, -0.1, 3.5), "not significant", "not significant", "not significant"),
        ((-2.0, -3.5, -0.1), "does not hold", "holds", "not significant"),
        ((0.1, -0.9, 0.9), "not significant", "not significant", "holds"),
        ((2.0, 1.1, 3.5), "holds", "does not hold", "does not hold"),
    ],
)
def test_one_claim_is_judged_by_its_interval(ends, above, below, within):
    effect = Effect("", "here", *ends, 50, "images")
    assert verdict(ABOVE, effect) == above
    assert verdict(Claim("below", "It is below.", "below"), effect) == below
    assert verdict(Claim("within", "It is small.", "within", 1.0), effect) == within


def test_p_values_of_seeds_are_those_of_students_test():
    values = np.array([0.8, 1.4, 1.1, 0.2])
    effect = Effect("above", "here", *mean_interval(values), 4, TRAINING_SEEDS)
    expected = stats.ttest_1samp(values, 0.0, alternative="greater").pvalue
    assert judge([ABOVE], [effect])[0].p_value == pytest.approx(expected)


def test_p_values_of_two_samples_are_those_of_welchs_test():
    first, second = np.array([0.8, 1.4, 1.1, 0.2]), np.array([0.1, 0.3, -0.9])
    ends, freedom = welch_interval(first, second), welch_freedom(first, second)
    effect = Effect("above", "here", *ends, 7, TRAINING_SEEDS, freedom=freedom)
    expected = stats.ttest_ind(first, second, equal_var=False, alternative="greater").pvalue
    assert judge([ABOVE], [effect])[0].p_value == pytest.approx(expected)


def test_an_exact_p_value_stands_for_that_of_the_interval():
    for p_value, verdict_of in (
        (0.02, "holds"),
        (0.03, "not significant"),
        (1.0, "not significant"),
    ):
        (judgment,) = judge([ABOVE], [replace(EFFECT, low=1.9, high=2.1, p_value=p_value)])
        assert (judgment.verdict, judgment.p_value) == (verdict_of, p_value)
    # Nothing is shown against it either, and an interval without width is no obstacle.
    below = replace(EFFECT, value=-2.0, low=-2.1, high=-1.9, p_value=1.0)
    assert judge([ABOVE], [below])[0].verdict == "not significant"
    nothing = replace(EFFECT, value=0.0, low=0.0, high=0.0, p_value=0.5)
    assert judge([ABOVE], [nothing])[0].verdict == "not significant"
    # It counts in the correction like any other.
    several = [replace(EFFECT, where=str(i), p_value=0.02) for i in range(2)]
    assert [judgment.p_value for judgment in judge([ABOVE], several)] == [0.04, 0.04]


def test_what_is_no_evidence_is_not_testable_and_says_why():
    for effect, reason in (
        (replace(EFFECT, reason="empty edit"), "empty edit"),
        (replace(EFFECT, low=np.nan, high=np.nan, resampled=TRAINING_SEEDS), "training seeds"),
        (replace(EFFECT, n=1), "one unit"),
        (replace(EFFECT, value=0.0, low=0.0, high=0.0), "in every unit"),
    ):
        (judgment,) = judge([ABOVE], [effect])
        assert judgment.verdict == "not testable"
        assert reason in judgment.reason
        assert np.isnan(judgment.p_value)
    # It takes no part in the correction either.
    empty = replace(EFFECT, reason="empty edit")
    (alone,) = judge([ABOVE], [EFFECT])
    assert judge([ABOVE], [empty, EFFECT])[1] == alone


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: judge([ABOVE], [replace(EFFECT, value=9.0)]), "does not hold the value"),
        (lambda: judge([ABOVE], [replace(EFFECT, claim="other")]), "undeclared claims: other"),
        (lambda: Claim("within", "It is small.", "within"), "positive threshold"),
    ],
)
def test_what_is_no_claim_or_effect_is_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_direction_that_was_chosen_after_the_measurement_costs_a_factor():
    (one_sided,) = judge([ABOVE], [EFFECT])
    (two_sided,) = judge([ABOVE], [replace(EFFECT, directions=2)])
    assert two_sided.p_value == pytest.approx(2 * one_sided.p_value)
    assert (one_sided.verdict, two_sided.verdict) == ("holds", "not significant")
