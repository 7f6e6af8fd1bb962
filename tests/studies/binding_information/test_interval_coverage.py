"""Lower ends of bounds: above the information, where it is known, in 2.5 % of test sets at most."""

import pytest
from interval_coverage import POPULATIONS, bootstrapped_ends, lower_ends
from representatives import one_of

N_TEST = (20, 60, 200, 2000)
MOST = 0.035  # of 1,000 test sets, where 2.5 % are nominal


def share_above(ends, value):
    return (ends > value + 1e-9).mean()


def check(population):
    for n in N_TEST:
        ends = lower_ends(population, n)
        assert share_above(ends, population.truth) <= MOST, n
        # Of the mixture, which is harder.
        assert share_above(ends, population.mixed.gains.mean()) <= MOST, n


def test_rare_errors_are_covered_which_a_bootstrap_does_not_see():
    population = POPULATIONS["one-hot, 3 % wrong"]()
    assert share_above(bootstrapped_ends(population, 20), population.truth) > 0.4
    check(population)
    # The probe is fitted to a few errors, and the mixture gains by expecting more of them.
    assert population.alone.mean() + 0.05 < population.mixed.gains.mean() <= population.truth


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", one_of([name for name in POPULATIONS if "3 %" not in name], "superposed")
)
def test_lower_ends_are_covered(name):
    check(POPULATIONS[name]())


@pytest.mark.whole
@pytest.mark.slow
def test_a_probe_that_does_not_expect_heavy_tails_gains_by_the_mixture():
    population = POPULATIONS["O + heavy tails, over-confident"]()
    assert population.alone.mean() + 0.2 < population.mixed.gains.mean() <= population.truth
