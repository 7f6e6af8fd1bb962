"""Every column of a row from losses written by hand."""

import json
import math

import numpy as np
import pytest

from bindscope.core.errors import StoreError
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import (
    ESTIMATES,
    LOSSES,
    estimate,
    lower_bound_probe,
)
from bindscope.studies.binding_information.flags import above_prior
from bindscope.studies.binding_information.probes.base import FitResult

N, SIZES = 40, (2, 3)
N_FEATURES, N_CELLS = 5, 6
PRIOR = {
    "h_object_bits": 10.0,
    "h_feature_bits": 3.0,
    "h_object_given_feature_bits": 7.0,
    "split_gap_bits": 0.0,
}
CONFIG = Information(bootstrap_samples=300)


def codes():
    rng = np.random.default_rng(0)
    objects = rng.integers(0, 2, (N, N_CELLS)).astype(np.uint8)
    features = rng.integers(0, 2, (N, N_FEATURES)).astype(np.uint8)
    return objects, features


def losses(object_=4.0, feature=1.0, anchored=3.5, chained=(0.5, 2.5), spread=0.0):
    """Per-scene losses with these means."""
    means = dict(zip(LOSSES, (object_, feature, anchored, *chained), strict=True))
    return {name: mean + spread * np.resize([1.0, -1.0], N) for name, mean in means.items()}


HEADS = {
    "object": np.ones(N_CELLS), "feature": np.ones(N_FEATURES),
    "object_anchored": np.ones(N_CELLS), "chained": np.ones(N_FEATURES + N_CELLS),
}  # fmt: skip


def result(val=(3.6, 3.1), flags=(), **options):
    return FitResult(
        seed=7,
        losses=losses(**options),
        head_losses=HEADS,
        val_loss_bits={"object": 4.0, "feature": 1.0, "object_anchored": val[0], "chained": val[1]},
        accuracy_object=0.9,
        exact_match_object=0.5,
        accuracy_feature=0.95,
        history=[],
        weights={},
        metadata={},
        steps=400,
        flags=flags,
        feature_probe="linear",
    )


def row_of(fit, prior=PRIOR, **options):
    return estimate(fit, prior, *codes(), CONFIG, **options)


def test_exact_arithmetic():
    row = row_of(result())
    expected = {
        **PRIOR,
        "seed": 7,
        "status": "ok",
        "reason": None,
        "loss_object_bits": 4.0,
        "loss_feature_bits": 1.0,
        "loss_object_given_feature_bits": 2.5,
        "binding_bits": 6.0,
        "binding_ratio": 0.6,
        "conditional_binding_bits": 4.0,
        "conditional_binding_ratio": 4 / 7,
        "binding_lower_bound_bits": 7.0,
        "conditional_binding_lower_bound_bits": 4.5,
        "accuracy_object": 0.9,
        "exact_match_object": 0.5,
        "accuracy_feature": 0.95,
        "feature_probe": "linear",
        "steps": 400,
        "flags": "",
    }
    for name, value in expected.items():
        assert row[name] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)
    intervals = {f"{name}_{end}" for name in ESTIMATES for end in ("low", "high")}
    assert set(row) == set(expected) | intervals
    for name in ESTIMATES:  # losses without spread have intervals without width
        assert row[f"{name}_low"] == pytest.approx(row[name], abs=1e-9)
        assert row[f"{name}_high"] == pytest.approx(row[name], abs=1e-9)
    json.dumps(row, allow_nan=False)


def test_the_identities_of_the_definitions():
    row = row_of(result(spread=0.3))
    assert row["binding_bits"] == pytest.approx(row["h_object_bits"] - row["loss_object_bits"])
    assert row["conditional_binding_bits"] == pytest.approx(
        row["h_object_given_feature_bits"] - (row["loss_object_bits"] - row["loss_feature_bits"])
    )
    # Both parts of the chained bound add up to a bound on the whole (Lemma 2.21).
    chained = row["h_feature_bits"] - 0.5 + row["conditional_binding_lower_bound_bits"]
    assert row["binding_lower_bound_bits"] == pytest.approx(chained, abs=1e-5)


@pytest.mark.parametrize(
    ("val", "expected"),
    [((3.6, 3.1), 7.0), ((3.0, 3.1), 6.5), ((3.1, 3.1), 6.5), ((math.nan, 3.1), 7.0),
     ((3.1, math.nan), 6.5)],
)  # fmt: skip
def test_validation_chooses_the_bound_and_test_does_not(val, expected):
    # On test the chained probe (3.0 bits) is better than the anchored one (3.5) throughout.
    assert row_of(result(val=val))["binding_lower_bound_bits"] == pytest.approx(expected, abs=1e-5)


def test_the_choice_names_the_losses_that_make_up_the_bound():
    assert lower_bound_probe({"object_anchored": 1, "chained": 2}) == ("object_anchored",)
    assert lower_bound_probe({"object_anchored": 2, "chained": 1}) == (
        "chained_feature", "chained_object",
    )  # fmt: skip


def test_negative_estimates_are_kept_and_flagged():
    row = row_of(result(object_=12.0, feature=1.0, anchored=10.2, chained=(3.1, 7.2), val=(10, 11)))
    assert row["binding_bits"] == pytest.approx(-2.0, abs=1e-5)
    assert row["binding_ratio"] == pytest.approx(-0.2, abs=1e-5)
    assert row["conditional_binding_bits"] == pytest.approx(-4.0, abs=1e-5)
    assert row["binding_lower_bound_bits"] == pytest.approx(-0.2, abs=1e-5)
    assert row["conditional_binding_lower_bound_bits"] == pytest.approx(-0.2, abs=1e-5)
    assert (row["status"], row["flags"]) == ("ok", "above_prior")


def test_flags_are_sorted_and_joined():
    row = row_of(result(flags=("not_converged", "collapsed"), feature=5.0))
    assert row["flags"] == "above_prior;collapsed;not_converged"


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_held_against_its_own_entropy(name):
    entropy = {"object": 10.0, "object_anchored": 10.0, "chained_object": 7.0}.get(name, 3.0)
    quiet = dict.fromkeys(LOSSES, 0.0)
    assert above_prior({**quiet, name: entropy + 0.1}, PRIOR) == ("above_prior",)
    assert above_prior({**quiet, name: entropy + 1e-6}, PRIOR) == ()  # started at the prior
    assert above_prior(dict.fromkeys(LOSSES), PRIOR) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_makes_nulls_with_a_reason(value):
    fit = result(flags=("diverged",))
    fit.losses["feature"][3] = value
    row = row_of(fit)
    assert row["status"] == "failed"
    assert "feature" in row["reason"]
    for name in ("loss_feature_bits", "conditional_binding_bits", "conditional_binding_ratio",
                 "conditional_binding_bits_low", "conditional_binding_bits_high"):  # fmt: skip
        assert row[name] is None
    for name in ("binding_bits", "binding_bits_low", "binding_lower_bound_bits"):
        assert math.isfinite(row[name])  # they do not need the feature probe
    json.dumps(row, allow_nan=False)


def test_a_fit_that_failed_altogether():
    fit = result()
    for array in fit.losses.values():
        array[:] = np.nan
    row = row_of(fit)
    assert row["status"] == "failed"
    assert all(row[name] is None for name in row if name.endswith(("_low", "_high", "_ratio")))
    assert row["h_object_bits"] == 10.0
    json.dumps(row, allow_nan=False)


def test_nothing_to_know_has_no_ratio():
    prior = {**PRIOR, "h_object_given_feature_bits": 0.0, "h_feature_bits": 10.0}
    row = row_of(result(), prior)
    assert row["conditional_binding_ratio"] is None
    assert row["binding_ratio"] == pytest.approx(0.6, abs=1e-5)
    assert math.isfinite(row["conditional_binding_bits"])
    assert (row["status"], row["reason"].startswith("H(O|F) = 0 bits")) == ("undefined", True)
    nothing = dict.fromkeys(PRIOR, 0.0)
    row = row_of(result(), nothing)
    assert row["binding_ratio"] is row["conditional_binding_ratio"] is None
    assert row["status"] == "undefined"


def test_intervals_are_paired():
    # O and F losses go up and down together by 1 bit: their difference does not vary.
    row = row_of(result(spread=1.0))
    width = row["binding_bits_high"] - row["binding_bits_low"]
    assert width == pytest.approx(2 * 1.96 / math.sqrt(N), rel=0.25)
    assert row["conditional_binding_bits_high"] - row["conditional_binding_bits_low"] < 1e-5
    assert row["binding_bits_low"] < row["binding_bits"] < row["binding_bits_high"]


def test_the_bootstrap_seed_decides():
    fit = result(spread=1.0)
    assert row_of(fit) == row_of(fit)
    other = estimate(fit, PRIOR, *codes(), Information(bootstrap_samples=300, bootstrap_seed=1))
    assert other["binding_bits_low"] != row_of(fit)["binding_bits_low"]


def test_disjoint_splits_resample_feature_codes():
    fit, (objects, features) = result(spread=1.0), codes()
    features = np.resize(np.eye(2, N_FEATURES, dtype=np.uint8), (N, N_FEATURES))
    # Each of the two feature codes has losses of one sign only.
    apart = estimate(fit, PRIOR, objects, features, CONFIG, disjoint=True)
    assert apart["binding_bits_low"] == pytest.approx(5.0, abs=1e-5)
    assert apart["binding_bits_high"] == pytest.approx(7.0, abs=1e-5)
    mixed = estimate(fit, PRIOR, objects, features, CONFIG)
    assert mixed["binding_bits_high"] < 6.5


def test_losses_of_other_codes_are_refused():
    objects, features = codes()
    with pytest.raises(StoreError, match="losses of object"):
        estimate(result(), PRIOR, objects[:-1], features[:-1], CONFIG)
    with pytest.raises(StoreError, match="heads of object"):
        estimate(result(), PRIOR, objects[:, :-1], features, CONFIG)
