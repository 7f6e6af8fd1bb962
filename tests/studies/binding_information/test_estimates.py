"""Every column of a row from losses written by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from bindscope.core.errors import StoreError
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import (
    estimate,
)
from bindscope.studies.binding_information.flags import above_prior
from bindscope.studies.binding_information.probes.base import FitResult
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    ESTIMATES,
    FEATURES,
    LOSSES,
    PAIRING,
    QUANTITIES,
    WHOLE,
)

N, SIZES = 40, (2, 3)
N_FEATURES, N_CELLS, N_COUNTS = 5, 6, 3
PRIOR = {
    "h_object_bits": 10.0,
    "h_feature_bits": 3.0,
    "h_object_given_feature_bits": 7.0,
    "h_counts_given_feature_bits": 4.0,
    "h_object_given_counts_bits": 3.0,
    "split_gap_bits": 0.0,
    "method": "exact",
    "counts_reason": None,
}
COLUMNS = {k: v for k, v in PRIOR.items() if k not in ("method", "counts_reason")}
# No scene is more surprising than the others, if a test does not say so.
PRIOR |= {f"largest_{quantity.prior_loss}": PRIOR[quantity.entropy] for quantity in QUANTITIES}
ANCHORS = {
    "object_anchored": 10.0,
    "chained_feature": 3.0,
    "chained_counts": 4.0,
    "chained_object": 3.0,
}
CONFIG = Information(bootstrap_samples=300)


def codes():
    rng = np.random.default_rng(0)
    objects = rng.integers(0, 2, (N, N_CELLS)).astype(np.uint8)
    features = rng.integers(0, 2, (N, N_FEATURES)).astype(np.uint8)
    return objects, features


def losses(object_=4.0, feature=1.0, anchored=3.5, chained=(0.5, 1.5, 1.0), spread=0.0):
    """Per-scene losses with these means."""
    means = dict(zip(LOSSES, (object_, feature, anchored, *chained), strict=True))
    return {name: mean + spread * np.resize([1.0, -1.0], N) for name, mean in means.items()}


HEADS = {
    "object": np.ones(N_CELLS),
    "feature": np.ones(N_FEATURES),
    "object_anchored": np.ones(N_CELLS),
    "chained": np.ones(N_FEATURES + N_COUNTS + N_CELLS),
}


def result(val=(3.6, 3.1), flags=(), prior_spread=0.0, weight=2.0**-6, control=1.0, **options):
    """One fit; what the prior loses goes up and down from scene to scene by `prior_spread`.

    The prior has this weight in the mixtures, so no scene gains less than its log.
    """
    up_and_down = prior_spread * np.resize([1.0, -1.0], N)
    return FitResult(
        seed=7,
        losses=losses(**options),
        anchor_losses={name: mean + up_and_down for name, mean in ANCHORS.items()},
        head_losses=dict(HEADS),
        val_loss_bits={
            "object": 4.0,
            "feature": 1.0,
            "object_anchored": val[0],
            "chained": val[1],
            "chained_feature": 0.6,
            "chained_counts": 1.5,
            "chained_object": 1.0,
        },
        shares={
            "accuracy_object": 0.9,
            "exact_match_object": 0.5,
            "accuracy_feature": 0.95,
            "exact_match_feature": 0.7,
        },
        history=[],
        weights={},
        metadata={},
        steps=400,
        flags=flags,
        feature_probe="linear",
        target_flags={"object": flags} if flags else {},
        prior_weights=dict.fromkeys(ANCHORS, weight),
        control_coefficients=dict.fromkeys(ANCHORS, control),
    )


def quantile(worst, gain, n_scenes=1, n=N, samples=CONFIG.bootstrap_samples):
    """The lower limit of gains that are alike: w gain + (1 - w) worst, w of n in n + 1 scenes."""
    w = np.random.Generator(np.random.PCG64(np.random.SeedSequence([0])))
    w = w.standard_exponential((samples, n + 1))
    share = w[:, :-1].sum(1) / w.sum(1)
    return float(np.quantile(share * gain + (1 - share) * worst, 0.025))


def row_of(fit, prior=PRIOR, **options):
    return estimate(fit, prior, *codes(), CONFIG, **options)


def test_exact_arithmetic():
    row = row_of(result())
    expected = {
        **COLUMNS,
        "seed": 7,
        "status": "ok",
        "reason": None,
        "loss_object_bits": 4.0,
        "loss_feature_bits": 1.0,
        "loss_object_anchored_bits": 3.5,
        "loss_chained_feature_bits": 0.5,
        "loss_counts_given_feature_bits": 1.5,
        "loss_object_given_counts_bits": 1.0,
        "loss_object_given_feature_bits": 2.5,
        "prior_loss_object_bits": 10.0,
        "prior_loss_feature_bits": 3.0,
        "prior_loss_counts_given_feature_bits": 4.0,
        "prior_loss_object_given_counts_bits": 3.0,
        "prior_loss_object_given_feature_bits": 7.0,
        "binding_bits": 6.0,
        "binding_ratio": 0.6,
        "conditional_binding_bits": 4.0,
        "conditional_binding_ratio": 4 / 7,
        "feature_lower_bound_bits": 2.5,
        "count_lower_bound_bits": 2.5,
        "count_ratio": 2.5 / 4,
        "pairing_lower_bound_bits": 2.0,
        "pairing_ratio": 2 / 3,
        "binding_lower_bound_bits": 7.0,
        "conditional_binding_lower_bound_bits": 4.5,
        "val_loss_object_bits": 4.0,
        "val_loss_feature_bits": 1.0,
        "val_loss_object_anchored_bits": 3.6,
        "val_loss_chained_feature_bits": 0.6,
        "val_loss_chained_counts_bits": 1.5,
        "val_loss_chained_object_bits": 1.0,
        "accuracy_object": 0.9,
        "exact_match_object": 0.5,
        "accuracy_feature": 0.95,
        "feature_probe": "linear",
        "steps": 400,
        "flags": "",
        "pairing_evidence": 2.0 * N,
        "parts": {"flags": {}, "anchored": pytest.approx([6.5, quantile(-6.0, 6.5), 6.5])},
    }
    assert {loss.validation for loss in LOSSES.values()} <= set(expected)
    for name, value in expected.items():
        assert row[name] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)
    intervals = {end for quantity in ESTIMATES for end in (quantity.low, quantity.high)}
    assert set(row) == set(expected) | intervals
    for quantity in ESTIMATES:  # losses without spread have a bootstrap without width
        assert row[quantity.high] == pytest.approx(row[quantity.value], abs=1e-9)
    for name in ("binding_bits", "conditional_binding_bits"):
        assert row[f"{name}_low"] == pytest.approx(row[name], abs=1e-9)
    json.dumps(row, allow_nan=False)


def test_a_limit_has_a_further_scene_at_the_worst_gain_of_each_part():
    row = row_of(result())
    for name, parts in (
        ("feature", 1),
        ("count", 1),
        ("pairing", 1),
        ("conditional_binding", 2),
        ("binding", 3),
    ):
        bound = row[f"{name}_lower_bound_bits"]
        limit = quantile(-6.0 * parts, bound)
        assert row[f"{name}_lower_bound_bits_low"] == pytest.approx(limit, abs=1e-9)
        assert bound - 1.5 * parts < limit < bound - 0.3


def test_what_a_loss_shares_with_the_prior_is_taken_off():
    # The sample's codes are 1 bit more surprising than the space's, the probe pays for that too.
    rare = result(spread=0.5, prior_spread=0.5)
    for name in ANCHORS:
        rare.anchor_losses[name] += 1.0
        rare.losses[name] += 1.0
    row = row_of(rare)
    for name, bound in (("count", 2.5), ("pairing", 2.0), ("feature", 2.5), ("binding", 7.0)):
        for end in ("", "_high"):  # what goes up and down in both cancels
            assert row[f"{name}_lower_bound_bits{end}"] == pytest.approx(bound, abs=1e-9)
    # Half of it was shared on validation, and half is subtracted.
    rare.control_coefficients.update(dict.fromkeys(ANCHORS, 0.5))
    row = row_of(rare)
    assert row["pairing_lower_bound_bits"] == pytest.approx(2.0 - 0.5)
    assert row["pairing_lower_bound_bits_high"] - row["pairing_lower_bound_bits"] > 0.05
    assert row["prior_loss_feature_bits"] == pytest.approx(4.0)
    # The paper's formula stays: entropy minus loss.
    assert row["binding_bits_high"] - row["binding_bits_low"] > 0.1


def test_a_prior_of_the_space_does_not_know_the_split():
    # On a split with half of the feature codes the anchors pay one bit that no probe can save.
    fit = result()
    for name in ("object_anchored", "chained_feature"):
        fit.anchor_losses[name] += 1.0
    row = row_of(fit, PRIOR | {"split_gap_bits": 1.0})
    assert row["feature_lower_bound_bits"] == pytest.approx(2.5)
    assert row["feature_lower_bound_bits_low"] == pytest.approx(quantile(-7.0, 2.5))
    assert row["binding_lower_bound_bits"] == pytest.approx(7.0)
    assert row["prior_loss_feature_bits"] == pytest.approx(3.0)


def test_an_estimated_prior_is_held_against_its_entropy():
    prior = PRIOR | {"method": "train_cross_entropy", "counts_reason": "not known"}
    prior |= {"h_counts_given_feature_bits": None, "h_object_given_counts_bits": None}
    fit = result(prior_spread=3.0)
    for values in (fit.losses, fit.anchor_losses):
        del values["chained_counts"]
    fit.losses["chained_object"][:] = 2.5
    row = row_of(fit, prior)
    assert row["prior_loss_object_given_feature_bits"] == 7.0
    assert row["conditional_binding_lower_bound_bits"] == pytest.approx(4.5)
    for name in ("count", "pairing"):
        assert row[f"{name}_ratio"] is row[f"{name}_lower_bound_bits"] is None
        assert row[f"{name}_lower_bound_bits_low"] is None
    assert (row["status"], row["reason"]) == ("ok", "no counts: not known")


def test_counts_that_follow_from_the_features_cost_and_gain_nothing():
    prior = PRIOR | {"h_counts_given_feature_bits": 0.0, "h_object_given_counts_bits": 7.0}
    fit = result()
    for values in (fit.losses, fit.anchor_losses, fit.val_loss_bits):
        del values["chained_counts"]
    fit.anchor_losses["chained_object"][:] = 7.0
    row = row_of(fit, prior)
    assert row["count_lower_bound_bits"] == row["loss_counts_given_feature_bits"] == 0.0
    assert row["count_lower_bound_bits_low"] == row["count_lower_bound_bits_high"] == 0.0
    assert row["pairing_lower_bound_bits"] == row["conditional_binding_lower_bound_bits"] == 6.0
    assert row["val_loss_chained_counts_bits"] is row["count_ratio"] is None
    assert (row["status"], row["reason"]) == (
        "ok",
        "H(M|F) = 0 bits, so count_ratio has no meaning",
    )


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [
        (("object", "feature"), ("binding_bits", "conditional_binding_bits", "loss_feature_bits")),
        (
            ("chained_feature", "chained_counts", "chained_object", "chained"),
            (
                "feature_lower_bound_bits",
                "pairing_lower_bound_bits",
                "count_ratio",
                "conditional_binding_lower_bound_bits",
                "loss_object_given_counts_bits",
            ),
        ),
    ],
)
def test_targets_that_were_not_fitted_are_null_with_a_reason(left_out, missing):
    fit = result()
    for values in (fit.losses, fit.anchor_losses, fit.val_loss_bits, fit.head_losses):
        for name in left_out:
            values.pop(name, None)
    row = row_of(fit)
    assert row["status"] == "ok"
    assert row["reason"].startswith("not fitted (targets)")
    for name in missing:
        assert row[name] is None
    assert math.isfinite(row["binding_lower_bound_bits"])
    json.dumps(row, allow_nan=False)


def test_ignoring_what_says_nothing_is_no_collapse():
    fit = result(flags=("collapsed", "not_converged"))
    assert row_of(fit)["flags"] == "collapsed;not_converged"
    row = row_of(fit, nothing_to_learn=True)
    assert row["flags"] == "not_converged"
    assert row["parts"]["flags"] == {"object": ["not_converged"]}


@pytest.mark.parametrize(
    ("val", "expected"),
    [((3.6, 3.1), 7.0), ((3.1, 3.1), 6.5), ((math.nan, 3.1), 7.0), ((4.1, 4.2), 6.5)],
)
def test_validation_chooses_the_bound_and_test_does_not(val, expected):
    # On test the chained probe (3.0 bits) is better than the anchored one (3.5) throughout.
    assert row_of(result(val=val))["binding_lower_bound_bits"] == pytest.approx(expected, abs=1e-5)


def test_near_duplicates_are_one_piece_of_evidence():
    """Scenes of a group are not independent: each group counts once, with its mean."""
    groups = np.arange(N) // 4
    row = row_of(result(), groups=groups)
    assert row["pairing_evidence"] == pytest.approx(2.0 * len(np.unique(groups)))


def test_negative_estimates_of_the_paper_are_kept_and_bounds_end_at_nothing():
    row = row_of(
        result(object_=12.0, feature=1.0, anchored=10.2, chained=(3.1, 4.1, 3.1), val=(10, 11))
    )
    assert row["binding_bits"] == pytest.approx(-2.0, abs=1e-5)
    assert row["binding_ratio"] == pytest.approx(-0.2, abs=1e-5)
    assert row["conditional_binding_bits"] == pytest.approx(-4.0, abs=1e-5)
    assert row["loss_object_given_counts_bits"] == pytest.approx(3.1)  # nothing is hidden
    assert row["pairing_evidence"] == pytest.approx(-0.1 * N)
    for quantity in QUANTITIES:
        assert [row[f"{quantity.value}{end}"] for end in ("", "_low", "_high")] == [0, 0, 0]
    assert row["pairing_ratio"] == 0
    assert (row["status"], row["flags"]) == ("ok", "above_prior")


def test_intervals_end_at_nothing_and_at_all_there_is():
    row = row_of(result(chained=(0.1, 3.8, 0.1), spread=2.0))
    for quantity in QUANTITIES:
        low, high = (row[f"{quantity.value}{end}"] for end in ("_low", "_high"))
        assert 0 <= low < high <= row[quantity.entropy]
    assert row[f"{PAIRING.value}_high"] == row[PAIRING.entropy]
    assert row["count_lower_bound_bits_low"] == 0
    # Parts below nothing take nothing from the others.
    row = row_of(result(chained=(3.5, 1.5, 1.0)))
    assert row[FEATURES.value] == 0
    assert row[WHOLE.value] == row[BEYOND.value] == pytest.approx(4.5)


def test_a_scene_that_was_not_seen_could_be_the_worst_that_the_prior_allows():
    """Without a control variate the prior's largest loss counts, with all of it not at all."""
    prior = PRIOR | {f"largest_{PAIRING.prior_loss}": 8.0}
    for control, worst in ((1.0, -6.0), (0.4, -6.0 - 0.6 * 5.0), (0.0, -11.0)):
        row = row_of(result(control=control), prior)
        assert row[f"{PAIRING.value}_low"] == pytest.approx(max(quantile(worst, 2.0), 0.0))
    # Of an estimated prior it is the largest loss of the test scenes.
    fit = result()
    fit.anchor_losses["chained_object"][0] = 9.0
    row = row_of(fit, PRIOR | {"method": "train_cross_entropy"})
    assert row[f"{PAIRING.value}_low"] == pytest.approx(max(quantile(-6.0 - 6.0, 2.0), 0.0))
    assert row["pairing_evidence"] is None


def test_the_plain_probe_bounds_only_where_no_other_was_fitted():
    fit = result()
    assert row_of(fit)[WHOLE.value] == 7.0
    for values in (fit.losses, fit.anchor_losses, fit.val_loss_bits, fit.head_losses):
        for name in ("object_anchored", "chained", *(n for n in ANCHORS if n in values)):
            values.pop(name, None)
    row = row_of(fit)
    assert [row[f"{WHOLE.value}{end}"] for end in ("", "_low", "_high")] == [6.0, 6.0, 6.0]
    assert row["pairing_evidence"] is None
    fit.losses["object"] += 20.0
    assert (row_of(fit)[WHOLE.value], row_of(fit)["binding_bits"]) == (0.0, -14.0)


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_held_against_its_own_prior(name):
    limit = {"object": 10.0, "feature": 3.0, **ANCHORS}[name]
    for excess, flags in ((0.1, "above_prior"), (1e-6, "")):  # 1e-6: started at the prior
        fit = result()
        for values in fit.losses.values():
            values[:] = 0.0
        fit.losses[name][:] = limit + excess
        assert row_of(fit)["flags"] == flags
    row = row_of(result())
    assert above_prior(dict.fromkeys(row)) == ()


def test_a_loss_that_is_not_finite_makes_nulls_with_a_reason():
    fit = result(flags=("diverged",))
    fit.losses["feature"][3] = math.inf
    row = row_of(fit)
    assert row["status"] == "failed"
    assert "feature" in row["reason"]
    for name in (
        "loss_feature_bits",
        "conditional_binding_bits",
        "conditional_binding_ratio",
        "conditional_binding_bits_low",
        "conditional_binding_bits_high",
    ):
        assert row[name] is None
    for name in ("binding_bits", "binding_bits_low", "binding_lower_bound_bits"):
        assert math.isfinite(row[name])  # they do not need the feature probe
    json.dumps(row, allow_nan=False)


def test_nothing_to_know_has_no_ratio():
    prior = {**PRIOR, "h_object_given_feature_bits": 0.0, "h_feature_bits": 10.0}
    prior |= {"h_counts_given_feature_bits": 0.0, "h_object_given_counts_bits": 0.0}
    row = row_of(result(), prior)
    assert row["conditional_binding_ratio"] is None
    assert row["binding_ratio"] == pytest.approx(0.6, abs=1e-5)
    assert math.isfinite(row["conditional_binding_bits"])
    assert (row["status"], row["reason"].startswith("H(O|F) = 0 bits")) == ("undefined", True)
    nothing = PRIOR | dict.fromkeys(COLUMNS, 0.0)
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


def test_a_part_of_which_the_prior_is_preferred_gives_nothing():
    """Also where splits share no feature code, so that the prior pays more than the entropy."""
    prior = PRIOR | {"split_gap_bits": 1.0}
    fit = result(chained=(4.5, 1.5, 1.0), prior_spread=0.5)
    fit.losses["chained_feature"][:] = fit.anchor_losses["chained_feature"]
    fit.prior_weights["chained_feature"] = 1.0
    fit = replace(fit, target_flags={"chained_feature": ("prior",), "chained": ("prior",)})
    row = row_of(fit, prior)
    assert [row[f"feature_lower_bound_bits{end}"] for end in ("", "_low", "_high")] == [0, 0, 0]
    assert row["loss_chained_feature_bits"] == row["prior_loss_feature_bits"] == 2.0
    assert row["pairing_lower_bound_bits"] == pytest.approx(2.0)
    assert row["flags"] == "prior"


def test_the_identities_of_the_definitions():
    row = row_of(result(spread=0.3))
    assert row["binding_bits"] == pytest.approx(row["h_object_bits"] - row["loss_object_bits"])
    assert row["conditional_binding_bits"] == pytest.approx(
        row["h_object_given_feature_bits"] - (row["loss_object_bits"] - row["loss_feature_bits"])
    )
    # The parts of the chained bound add up to a bound on the whole (Lemma 2.21).
    parts = [row[f"{part}_lower_bound_bits"] for part in ("feature", "count", "pairing")]
    assert row["binding_lower_bound_bits"] == pytest.approx(sum(parts), abs=1e-12)
    assert row["conditional_binding_lower_bound_bits"] == pytest.approx(sum(parts[1:]), abs=1e-12)


def test_whatever_the_sample_a_probe_without_a_loss_reads_the_entropy_and_the_prior_nothing():
    rare = result(prior_spread=0.5)
    for name in ANCHORS:
        rare.anchor_losses[name] += 0.3
        rare.losses[name][:] = 0.0
    row = row_of(rare)
    parts = ("feature", "count", "pairing")
    assert [row[f"{part}_lower_bound_bits"] for part in parts] == pytest.approx([3.0, 4.0, 3.0])
    for name in ANCHORS:
        rare.losses[name][:] = rare.anchor_losses[name]
    row = row_of(rare)
    assert [row[f"{part}_lower_bound_bits"] for part in parts] == pytest.approx([0.0, 0.0, 0.0])
