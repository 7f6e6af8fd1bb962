"""The row of the best probe: who wins each part, and what its sums and intervals are."""

import json

import pytest
from sample_tables import COUNTED, complete, make_row
from zoo_tables import parts_row, parts_table

from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.result_view import best_row
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.tables.schema import frame_of, validate

H = {"feature": 7.217, "counts_given_feature": 11.292, "object_given_counts": 7.979}
LOSS = {"feature": "chained_feature"}
BOUND = {"feature": "feature", "counts_given_feature": "count", "object_given_counts": "pairing"}
VAL = {
    "feature": "chained_feature",
    "counts_given_feature": "chained_counts",
    "object_given_counts": "chained_object",
}


def row_of(probe, bounds, plain=20.0, anchored=9.0, protocol="converged", flags=None, **changes):
    """A row with bounds on F, counts and pairing; validation losses are 0.1 above those of test."""
    h = sum(H.values())
    row = make_row(
        probe=probe,
        loss_object=plain,
        loss_given=h - H["feature"] - sum(bounds[1:]),
        h=(h, H["feature"]),
        protocol=protocol,
        **COUNTED,
    )
    for (name, entropy), bits in zip(H.items(), bounds, strict=True):
        loss = entropy - bits
        row |= {
            f"{BOUND[name]}_lower_bound_bits{end}": bits + shift
            for end, shift in (("", 0.0), ("_low", -0.2), ("_high", 0.3))
        }
        row |= {f"loss_{LOSS.get(name, name)}_bits": loss, f"val_loss_{VAL[name]}_bits": loss + 0.1}
        row |= {f"prior_loss_{name}_bits": entropy}
    row |= {
        "loss_object_anchored_bits": h - anchored,
        "val_loss_object_anchored_bits": h - anchored,
        "prior_loss_object_bits": h,
        "val_loss_object_bits": plain,
        "val_loss_feature_bits": 4.0,
        "binding_lower_bound_bits": sum(bounds),
        "binding_lower_bound_bits_low": sum(bounds) - 0.4,
        "binding_lower_bound_bits_high": sum(bounds) + 0.5,
        "conditional_binding_lower_bound_bits_low": sum(bounds[1:]) - 0.25,
        "conditional_binding_lower_bound_bits_high": sum(bounds[1:]) + 0.35,
    }
    parts = {"flags": flags or {}, "anchored": [anchored, anchored - 0.1, anchored + 0.1]}
    return complete(row) | changes, parts


def best(*fits):
    rows, parts = zip(*fits, strict=True)
    (row,) = best_rows(rows, parts, {"colorshape": None})
    return row


def test_every_part_comes_from_who_validated_best():
    linear = row_of("linear", (6.0, 5.0, 2.0))
    quadratic = row_of("quadratic", (5.0, 4.0, 3.0))
    dnn = row_of("dnn", (4.0, 7.0, 1.0), plain=18.0)
    row = best(quadratic, dnn, linear)
    bounds = [row[f"{part}_lower_bound_bits"] for part in ("feature", "count", "pairing")]
    assert bounds == pytest.approx([6.0, 7.0, 3.0])
    assert row["conditional_binding_lower_bound_bits"] == pytest.approx(10.0)
    assert row["binding_lower_bound_bits"] == pytest.approx(16.0)
    # Of several fits: the ends of the parts, added up.
    for name, value in (("conditional_binding", 10.0), ("binding", 16.0)):
        n = 2 if name == "conditional_binding" else 3
        assert row[f"{name}_lower_bound_bits_low"] == pytest.approx(value - 0.2 * n)
        assert row[f"{name}_lower_bound_bits_high"] == pytest.approx(value + 0.3 * n)
    assert row["pairing_ratio"] == pytest.approx(3 / 7.979)
    assert row["loss_object_bits"] == 18.0
    assert (row["probe"], row["status"], row["reason"], row["flags"]) == ("best", "ok", None, "")
    assert json.loads(row["options"]) == {
        "family": "quadratic",
        "parts": {
            "object": "dnn",
            "object_anchored": "dnn",
            "chained_feature": "linear",
            "chained_counts": "dnn",
            "chained_object": "quadratic",
        },
    }
    whole = frame_of([linear[0], quadratic[0], dnn[0], row], BINDING_SCHEMA)
    validate(whole, BINDING_SCHEMA, "table")


def test_parts_of_one_fit_have_its_intervals():
    row = best(row_of("linear", (6.0, 5.0, 4.0)), row_of("quadratic", (5.0, 4.0, 3.0)))
    assert row["conditional_binding_lower_bound_bits_low"] == pytest.approx(8.75)
    assert row["binding_lower_bound_bits_low"] == pytest.approx(14.6)
    assert row["binding_lower_bound_bits_high"] == pytest.approx(15.5)


@pytest.mark.parametrize(
    ("options", "expected", "ends"), [({"anchored": 20.0}, 20.0, 0.1), ({"plain": 5.0}, 9.0, 0.45)]
)
def test_the_bound_on_all_is_the_better_of_anchored_and_chained(options, expected, ends):
    row = best(row_of("linear", (4.0, 3.0, 2.0), **{"anchored": 5.0} | options))
    assert row["binding_lower_bound_bits"] == pytest.approx(expected, abs=1e-9)
    width = row["binding_lower_bound_bits_high"] - row["binding_lower_bound_bits_low"]
    assert width == pytest.approx(2 * ends)


def test_the_evidence_comes_with_the_pairing_that_validation_chooses():
    linear = row_of("linear", (6.0, 5.0, 2.0), pairing_evidence=300.0)
    quadratic = row_of("quadratic", (5.0, 4.0, 3.0), pairing_evidence=200.0)
    assert best(linear, quadratic)["pairing_evidence"] == 200.0


def test_a_plain_loss_that_is_not_finite_on_test_changes_no_other_choice():
    broken = row_of(
        "linear",
        (6.0, 5.0, 4.0),
        status="failed",
        loss_object_bits=None,
        binding_bits=None,
        reason="test loss is not finite: object",
    )
    row = best(broken, row_of("quadratic", (5.0, 4.0, 3.0)))
    assert row["pairing_lower_bound_bits"] == pytest.approx(4.0)


@pytest.mark.parametrize("flag", ["collapsed", "not_converged"])
def test_a_fit_that_did_not_end_well_wins_only_where_there_is_no_other(flag):
    bad = row_of("dnn", (6.0, 5.0, 3.0), flags={"chained_object": [flag]})
    good = row_of("linear", (5.0, 4.0, 2.0))
    row = best(bad, good)
    # Only the flagged part is lost, and its flag with it.
    bounds = [row[f"{part}_lower_bound_bits"] for part in ("feature", "count", "pairing")]
    assert bounds == pytest.approx([6.0, 5.0, 2.0])
    assert row["flags"] == ""
    alone = best(bad)
    assert alone["pairing_lower_bound_bits"] == pytest.approx(3.0)
    assert alone["flags"] == flag


def test_the_papers_protocol_stands_beside_ours_and_wins_nothing():
    paper = row_of("dnn", (7.0, 7.0, 7.0), plain=1.0, protocol="paper")
    row = best(paper, row_of("linear", (5.0, 4.0, 2.0)))
    assert row["pairing_lower_bound_bits"] == pytest.approx(2.0)
    assert (row["loss_object_bits"], row["protocol"]) == (20.0, "converged")
    assert best(paper)["loss_object_bits"] == 1.0  # alone it stands for itself


def test_the_papers_protocol_lends_no_part_that_ours_were_not_asked_for():
    paper = row_of("dnn", (7.0, 7.0, 7.0), plain=29.0, protocol="paper")
    ours = row_of("linear", (5.0, 4.0, 2.0))
    assert "above_prior" in best(paper)["flags"]
    ours[0].update(loss_object_bits=None, val_loss_object_bits=None, binding_bits=None)
    row = best(paper, ours)
    assert row["loss_object_bits"] is row["binding_bits"] is None
    assert row["flags"] == ""
    assert "dnn" not in row["options"]


def test_where_only_some_fits_have_a_target_the_others_give_the_rest():
    bare = row_of("dnn", (4.0, 3.0, 2.0), plain=10.0)
    left_out = (
        "loss_chained",
        "loss_counts",
        "loss_object_given",
        "loss_object_anchored",
        "val_loss_chained",
        "val_loss_object_anchored",
        "count_",
        "pairing_",
        "feature_lower",
        "prior_",
        "conditional_binding_lower",
    )
    bare[0].update({name: None for name in bare[0] if name.startswith(left_out)})
    row = best(bare, row_of("linear", (5.0, 4.0, 2.0)))
    assert row["loss_object_bits"] == 10.0
    assert row["pairing_lower_bound_bits"] == pytest.approx(2.0)
    row = best(bare)
    assert row["pairing_lower_bound_bits"] is row["count_ratio"] is None
    assert row["binding_lower_bound_bits"] == pytest.approx(26.488 - 10.0)  # there is no other
    assert row["reason"] == "not fitted (targets): anchored, chained"


def test_rows_that_differ_in_more_than_the_probe_are_apart():
    rows = [
        row_of("linear", (5.0, 4.0, 2.0), seed=seed, tokens=tokens)
        for seed in (0, 1)
        for tokens in ("cls", "mean")
    ]
    best_of_each = best_rows(*zip(*rows, strict=True), {"colorshape": None})
    assert {(row["seed"], row["tokens"]) for row in best_of_each} == {
        (0, "cls"),
        (0, "mean"),
        (1, "cls"),
        (1, "mean"),
    }


def test_a_measured_column_that_nobody_declared_is_an_error():
    linear, dnn = row_of("linear", (6.0, 5.0, 2.0)), row_of("dnn", (4.0, 7.0, 1.0))
    for row, _ in (linear, dnn):
        row["loss_of_something_bits"] = 1.0
    with pytest.raises(ValueError, match="gets loss_of_something_bits; name each"):
        best(linear, dnn)


@pytest.mark.parametrize("control", ["none", "shuffled_labels"])
def test_the_row_of_a_result_has_the_smallest_validation_loss_of_the_fits_that_ended(control):
    """Of a control as well; among flagged rows alone it is still the best of them."""
    rows = [
        parts_row(
            "matching", "mine", layer, decoded=(9.0, 0.0, pairing), flags=flags, control=control
        )
        for layer, pairing, flags in (("1", 2.0, ""), ("2", 3.0, ""), ("3", 4.0, "diverged"))
    ]
    assert best_row(parts_table(rows))["layer"] == "2"
    flagged = [row | {"flags": "not_converged"} for row in rows]
    assert best_row(parts_table(flagged))["layer"] == "3"
