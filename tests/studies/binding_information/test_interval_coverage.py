"""Lower ends of bounds: above the information, where it is known, in 2.5 % of test sets at most."""

import pytest
from interval_coverage import N_TEST, POPULATIONS, coverage

MOST = 0.035  # of 1,000 test sets, where 2.5 % are nominal


def check(population):
    for n in N_TEST:
        measured = coverage(population, n)
        assert measured.above[1] <= MOST, n
        assert measured.above_expectation[1] <= MOST, n  # of the mixture, which is harder


def test_rare_errors_are_covered_which_a_bootstrap_does_not_see():
    population = POPULATIONS["one-hot, 3 % wrong"]()
    assert coverage(population, 20).above[0] > 0.4
    check(population)
    # The probe is fitted to a few errors, and the mixture gains by expecting more of them.
    assert population.alone.mean() + 0.05 < population.mixed.gains.mean() <= population.truth


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in POPULATIONS if "3 %" not in name])
def test_lower_ends_are_covered(name):
    check(POPULATIONS[name]())


@pytest.mark.slow
def test_a_probe_that_does_not_expect_heavy_tails_gains_by_the_mixture():
    population = POPULATIONS["O + heavy tails, over-confident"]()
    assert population.alone.mean() + 0.2 < population.mixed.gains.mean() <= population.truth
