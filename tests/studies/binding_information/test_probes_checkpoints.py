"""A fit that is killed, again and again, goes on and ends in the same bits."""

import numpy as np
import pytest
from killed_jobs import killed_until_it_ends
from probe_problems import probe, problem, released_problem
from test_learning_curve import problem as curve_problem

from bindscope.core.files import temporary_path
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.fit import run_fit
from bindscope.studies.binding_information.learning_curve import learning_curve
from bindscope.studies.binding_information.probes.weights import to_safetensors

STEPS = {"steps": 6, "batch_size": 32}
PROBES = {
    "linear": probe("linear"),
    "quadratic": probe("quadratic", rank=2, **STEPS),
    "noisy": probe("dnn", hidden=8, **STEPS),
    "released": probe("quadratic", protocol="paper", targets=["plain"]),
}


def bits_of(results):
    losses = [
        (r.seed, r.steps, r.flags, r.history, {k: v.tobytes() for k, v in r.losses.items()})
        for r in results
    ]
    return to_safetensors(results), losses


@pytest.mark.parametrize(
    ("name", "control"),
    [
        ("linear", "none"),
        ("noisy", "none"),
        ("released", "none"),
        ("quadratic", "shuffled_labels"),
    ],
)
def test_killed_fits_end_in_the_same_bits(name, control, deaths, tmp_path):
    data = problem(n=(96, 48, 32), dim=6)
    if name == "released":
        data = released_problem()  # whose last epoch is not the best one
    whole = run_fit(PROBES[name], data, [0, 1], control)

    def again(checkpoints):
        return run_fit(PROBES[name], data, [0, 1], control, checkpoints)

    resumed, died = killed_until_it_ends(deaths, again, tmp_path, every=7)
    assert died > 1
    assert deaths["read"] >= died
    assert bits_of(resumed) == bits_of(whole)


@pytest.mark.slow
def test_killed_learning_curves_end_in_the_same_rows(deaths, tmp_path):
    data, prior = curve_problem(n=200)
    arguments = (PROBES["linear"], data, [0], [0.5, 1.0], prior, Information(bootstrap_samples=10))
    whole = learning_curve(*arguments)
    resumed, died = killed_until_it_ends(
        deaths,
        lambda checkpoints: learning_curve(*arguments, checkpoints=checkpoints),
        tmp_path,
        25,
    )
    assert died > 1
    np.testing.assert_equal(resumed, whole)


def test_what_a_killed_attempt_began_to_write_goes_with_the_rest(tmp_path):
    """Also of a part whose file no later attempt writes."""
    temporary_path(tmp_path / "fit.jsonl.2.1.checkpoint").write_text("half of it")
    Checkpoints(tmp_path / "fit.jsonl", "key").remove()
    assert list(tmp_path.iterdir()) == []
