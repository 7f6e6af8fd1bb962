"""Properties of the assignment priors that hold for every scene and all weights."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.priors.assignments import assignment_entropies

quick = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def problems(draw):
    n_categories, n_values = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    objects = st.tuples(st.integers(0, n_categories - 1), st.integers(0, n_values - 1))
    scene = np.array(draw(st.lists(objects, max_size=12)), np.int64).reshape(-1, 2)
    seed, spread = draw(st.integers(0, 2**32)), draw(st.sampled_from([0, 0.5, 3, 30]))
    return scene, spread * np.random.default_rng(seed).normal(size=(n_categories, n_values))


def bits(scene, log_weights):
    entropies = assignment_entropies([scene], log_weights)
    return np.array(
        [entropies.assignment_bits[0], entropies.multiset_bits[0], entropies.code_bits[0]]
    )


@quick
@given(problems())
def test_each_entropy_is_at_most_the_one_before_and_none_is_negative(problem):
    scene, log_weights = problem
    assignments, multisets, codes = bits(scene, log_weights)
    # No more than as many bits as there are objects to choose a value for.
    most = len(scene) * np.log2(max(1, len(np.unique(scene[:, 1]))))
    assert most + 1e-9 >= assignments >= multisets >= codes >= 0
    if len(np.unique(scene[:, 0])) == len(scene):  # no category twice
        assert np.allclose(assignments, [multisets, codes], atol=1e-9)


@quick
@given(problems())
def test_categories_and_values_may_change_places(problem):
    scene, log_weights = problem
    expected, exchanged = bits(scene, log_weights), bits(scene[:, ::-1], log_weights.T)
    assert np.allclose(exchanged[1:], expected[1:], atol=1e-9)
