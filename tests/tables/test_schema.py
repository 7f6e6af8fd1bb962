"""Every rule of the schema rejects what it must."""

import math
from pathlib import Path

import pandas as pd
import pytest
from sample_tables import (
    COUNTED,
    complete,
    default_table,
    known_rows,
    make_row,
    make_table,
    priors_table,
)

from bindscope.core.errors import StoreError
from bindscope.core.registries import studies
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.datasets.tables import PRIORS
from bindscope.tables.describe import all_tables
from bindscope.tables.schema import declared, frame_of, validate

BITS = ("bits per scene", "bits per pair", "bits per patch")
ROOT = Path(__file__).parents[2]


def check(*rows, **changes):
    rows = [complete(row) | changes for row in rows]
    return validate(frame_of(rows, BINDING_SCHEMA), BINDING_SCHEMA, "table")


def test_default_table_is_valid():
    table = default_table((0, 1))
    assert len(validate(table, BINDING_SCHEMA, "table")) == 2 * 81 + 18
    validate(priors_table(), PRIORS.schema, "priors")


BROKEN = {
    "needs a reason": {"loss_feature_bits": None, "conditional_binding_bits": None},
    "reason": {"status": "failed"},
    "an ok row has an estimate": {
        "binding_bits": None,
        "binding_ratio": None,
        "conditional_binding_bits": None,
        "conditional_binding_ratio": None,
        "binding_lower_bound_bits": None,
        "conditional_binding_lower_bound_bits": None,
        "feature_lower_bound_bits": None,
        "count_lower_bound_bits": None,
        "pairing_lower_bound_bits": None,
        "reason": "left out",
    },
    "h_object_given_feature_bits = ": {"h_feature_bits": 7.0},
    "binding_bits = ": {"binding_bits": 9.0},
    "conditional_binding_bits = ": {"loss_feature_bits": 4.0},
    "is that of one part, or the sum of two": {
        "count_lower_bound_bits": None,
        "loss_object_given_feature_bits": 14.0,
        "reason": "no counts",
    },
    "feature_lower_bound_bits is between": {"loss_chained_feature_bits": 0.5},
    "count_lower_bound_bits is between": {"count_lower_bound_bits": 11.5},
    "pairing_lower_bound_bits is between": {"loss_object_given_counts_bits": 1.0},
    "h_counts_given_feature_bits + h_object": {"h_counts_given_feature_bits": 11.0},
    "count_lower_bound_bits + pairing": {"count_lower_bound_bits": 1.0},
    "the plain, the anchored or the chained": {"binding_lower_bound_bits": 1.0},
    "near its entropy": {"prior_loss_object_bits": 31.0},
    "count_ratio = ": {"count_ratio": 0.9},
    "pairing_ratio = ": {"pairing_ratio": 0.9},
    "binding_ratio = ": {"binding_ratio": 0.5},
    "conditional_binding_ratio = ": {"conditional_binding_ratio": 0.5},
    "two ends": {"binding_bits_low": 12.0},
    "two ends, low before high": {"binding_bits_low": None, "reason": "no interval"},
    "only known-answer": {"truth_bits": 3.0},
    "sorted": {"flags": "diverged;collapsed"},
    "flagged exactly": {"flags": "above_truth"},
    "flags are known, sorted": {"flags": "odd"},
    "at most n_layers": {"layer": "5"},
    "column layer": {"layer": "last"},
    "names a family": {"options": "{}"},
    "options is JSON": {"options": "rank 16"},
    "column status": {"status": "fine", "reason": "why"},
    "column control": {"control": "all"},
    "column tokens": {"tokens": "all"},
    "column model_kind": {"model_kind": "vit"},
    "column protocol": {"protocol": "fast"},
    "column spec_key": {"spec_key": "0"},
    "column dataset": {"dataset": "Color Shape"},
    "column accuracy_object": {"accuracy_object": 1.2},
    "column loss_object_bits: at least 0": {
        "loss_object_bits": -1.0,
        "binding_bits": None,
        "binding_ratio": None,
        "reason": "why",
    },
    "column h_object_bits: must not be null": {"h_object_bits": None},
    "column binding_bits_high: finite": {"binding_bits_high": math.inf},
}


@pytest.mark.parametrize("words", BROKEN)
def test_rule_rejects(words):
    with pytest.raises(StoreError) as error:
        check(make_row(**COUNTED), **BROKEN[words])
    assert words in str(error.value)
    assert "vit-objects" in str(error.value) or "colorshape" in str(error.value) or "Color" in words
    assert "remedy" in str(error.value)


def test_numbers_may_be_missing_with_a_reason():
    row = make_row(status="failed", reason="the loss became infinite", flags="diverged")
    missing = {column.name: None for column in BINDING_SCHEMA.columns if column.null == "reason"}
    assert pd.isna(check(row, **missing)["binding_bits"].iloc[0])


def test_duplicate_keys_are_rejected():
    with pytest.raises(StoreError, match="one row per"):
        check(make_row(), make_row(loss_object=16.0))


def test_a_bound_above_the_truth_must_be_flagged():
    row = make_row(
        "half", "0", loss_object=9.0, kind="known-answer", truth=(16.85, None), width=0.05
    )
    with pytest.raises(StoreError, match="flagged exactly"):
        check(row)
    check(row, flags="above_truth")
    wide = make_row("half", "0", loss_object=9.0, kind="known-answer", truth=(16.85, None), width=2)
    check(wide)


def test_the_papers_estimate_above_the_truth_needs_no_flag():
    table = make_table(known_rows())
    excess = table["conditional_binding_bits"] > table["truth_conditional_bits"] + 1
    assert excess.any()
    assert (table.loc[excess, "flags"] == "").all()


def test_strict_and_ordered():
    table = default_table()
    with pytest.raises(StoreError, match="column extra: not in the schema"):
        validate(table.assign(extra=1), BINDING_SCHEMA, "table")
    with pytest.raises(StoreError, match=r"column .*: not in the schema's order"):
        validate(table[list(reversed(table.columns))], BINDING_SCHEMA, "table")
    with pytest.raises(StoreError, match="column flags: missing"):
        validate(table.drop(columns="flags"), BINDING_SCHEMA, "table")


def test_a_value_of_another_type_is_named():
    with pytest.raises(StoreError, match="column n_train"):
        check(make_row(), n_train=None)
    with pytest.raises(StoreError, match=r"loss_object_bits.*'low'"):
        check(make_row(), loss_object_bits="low")
    table = default_table()
    with pytest.raises(StoreError, match="column seed: holds float64 instead of int64"):
        validate(table.assign(seed=0.5), BINDING_SCHEMA, "table")
    twice = pd.concat([table, table[["seed"]]], axis=1)
    with pytest.raises(StoreError, match="column seed: twice"):
        validate(twice, BINDING_SCHEMA, "table")


def test_priors_add_up():
    table = priors_table()
    table.loc[0, "h_feature_bits"] = 1.0
    with pytest.raises(StoreError, match="h_object_given_feature_bits"):
        validate(table, PRIORS.schema, "priors")


ENTRIES = {entry.name: entry for study in studies().values() for entry in study.tables}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_table_is_declared_in_full(name):
    schema = declared()[name]
    assert schema.name == name
    assert schema.description.endswith(".")
    assert len(schema.names) == len(set(schema.names))
    assert set(schema.order) <= set(schema.key) <= set(schema.names)
    assert schema.names[-2:] == ["spec_key", "code_key"]
    for column in schema.columns:
        assert column.meaning.endswith(".")
        assert column.source
        assert not column.name.endswith("_bits") or column.unit in BITS


def test_the_page_about_tables_lists_every_column():
    assert all_tables() in (ROOT / "docs" / "tables.md").read_text()
