"""A deviation from the reference is caught; the papers' numbers stand only where they may."""

from pathlib import Path

import pytest
from sample_tables import default_table, make_row, make_table, paper_table

from bindscope.core.errors import StoreError
from bindscope.studies.binding_information.published import (
    COLUMNS,
    TREND_COLUMNS,
    beside,
    slug,
)
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.views import last_layers, measured, over_seeds
from bindscope.tables.compare import compare as compare_any
from bindscope.tables.compare import compared, main, write_reference
from bindscope.tables.published import read_published
from bindscope.tables.write import write_table

CLONE = Path(__file__).parents[2]
PUBLISHED = CLONE / "resources" / "published"


def compare(table, reference, tolerance=0.02):
    return compare_any(table, reference, BINDING_SCHEMA, tolerance)


@pytest.fixture
def reference(tmp_path):
    write_reference(default_table(), tmp_path / "reference.csv", BINDING_SCHEMA)
    return tmp_path / "reference.csv"


def test_a_fit_that_has_not_ended_is_no_reference(tmp_path):
    table = default_table()
    table.loc[3, "flags"] = "not_converged"
    with pytest.raises(StoreError, match="a fit has not ended"):
        write_reference(table, tmp_path / "reference.csv", BINDING_SCHEMA)


def test_small_deviations_pass_and_large_ones_fail(reference):
    table = default_table()
    table.loc[3, "loss_object_bits"] += 0.019
    result = compare(table, reference)
    assert result.passed
    assert result.deviations["loss_object_bits"][0] == pytest.approx(0.019, abs=1e-6)
    table.loc[3, "loss_object_bits"] += 0.002
    result = compare(table, reference)
    assert [problem.split()[0] for problem in result.problems] == ["loss_object_bits"]
    assert compare(table, reference, tolerance=0.1).passed


def test_entropies_must_be_exact(reference):
    table = default_table()
    table["h_object_bits"] += 1e-4
    assert not compare(table, reference).passed


def test_labels_missing_rows_and_missing_numbers_fail(reference):
    table = default_table()
    table.loc[0, "status"] = "undefined"
    table.loc[1, "truth_bits"] = 3.0
    table.loc[2, "loss_feature_bits"] = None
    result = compare(table.drop(index=5), reference)
    words = " | ".join(result.problems)
    assert "is missing" in words
    assert "is undefined, not ok" in words
    assert "is 3.0, not nan" in words
    assert "is nan, not" in words
    foreign = make_table([make_row("new")])
    assert "not in the reference" in " ".join(compare(foreign, reference).problems)


def test_unstable_columns_are_left_out(reference):
    table = default_table()
    table["spec_key"] = "12" * 32
    table["binding_bits_low"] -= 1.0
    table["steps"] += 1
    assert compare(table, reference).passed
    assert not {"spec_key", "code_key", "steps", "flags", "options"} & set(compared(BINDING_SCHEMA))


def test_the_command_exits_with_what_it_found(tmp_path, reference, capsys):
    table = default_table()
    write_table(table, tmp_path / "table", BINDING_SCHEMA)
    parquet = str(tmp_path / "table.parquet")
    assert main([parquet, str(reference)]) == 0
    assert "the tables agree" in capsys.readouterr().out
    reference.write_text(reference.read_text().replace("colorshape,vit-objects,4,cls", "x,y,4,cls"))
    assert main([parquet, str(reference)]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert main([str(tmp_path / "none.parquet"), str(reference)]) == 2
    assert main([parquet, str(tmp_path / "new.csv"), "--write"]) == 0
    assert main([parquet, str(tmp_path / "new.csv")]) == 0


def test_a_bad_reference_is_refused(tmp_path):
    (tmp_path / "bad.csv").write_text("dataset,model\na,b\n")
    with pytest.raises(StoreError, match="do not match"):
        compare(default_table(), tmp_path / "bad.csv")
    with pytest.raises(StoreError, match="cannot be read"):
        compare(default_table(), tmp_path / "none.csv")


def test_published_bits_and_shares_agree():
    numbers = read_published(PUBLISHED / "binding_information.csv", COLUMNS)
    wide = numbers[numbers["table"] == "Table 3"].pivot_table(
        index="probe", columns="quantity", values="value", sort=False
    )
    wide = wide[wide.index != ""]
    assert ((39.9 - wide["loss_object_bits"] - wide["binding_bits"]).abs() < 0.15).all()
    assert ((wide["binding_bits"] / 39.94 - wide["binding_ratio"]).abs() < 0.006).all()


def test_published_numbers_stand_beside_the_same_setting_only():
    numbers = read_published(PUBLISHED / "binding_information.csv", COLUMNS)
    both = beside(paper_table(), numbers)
    assert set(both["probe"]) == {"linear", "quadratic", "dnn", "attention_quadratic"}
    loss = both[(both["quantity"] == "loss_object_bits") & (both["probe"] == "quadratic")].iloc[0]
    assert loss["value"] == 22.0
    assert loss["ours"] == pytest.approx(21.7)
    assert loss["n_seeds"] == 3
    assert not len(beside(default_table(), numbers))
    shifted = paper_table()
    shifted[["h_object_bits", "h_feature_bits"]] += 0.2
    assert not len(beside(shifted, numbers))
    assert slug("openai/clip-vit-large-patch14-336") == "clip-vit-large-patch14-336"


def test_views_take_the_deepest_layer_and_average_seeds():
    table = default_table((0, 1))
    rows = last_layers(measured(table))
    assert set(rows["layer"]) == {"4"}
    means = over_seeds(rows)
    assert set(means["n_seeds"]) == {2}
    assert len(means) * 2 == len(rows)
    assert set(measured(table, "known-answer")["model_kind"]) == {"known-answer"}
    best = table.assign(probe="best")
    assert not len(measured(best))
    assert len(measured(best, best=True)) == len(measured(table))


def test_published_numbers_name_their_source():
    numbers = read_published(PUBLISHED / "binding_information.csv", COLUMNS)
    assert numbers["value"].notna().all()
    assert set(numbers["unit"]) == {"bits", "share"}
    trends = read_published(PUBLISHED / "trends.csv", TREND_COLUMNS)
    assert numbers["table"].str.contains(r"Table \d|sections? \d").all()
    assert trends["source"].str.contains(r"section \d").all()
    for frame in (numbers, trends):
        assert frame["paper"].str.contains(r"arXiv \d{4}\.\d{5}").all()
    with pytest.raises(StoreError, match="has columns"):
        read_published(PUBLISHED / "trends.csv", COLUMNS)


def test_another_model_on_the_papers_dataset_is_not_compared():
    numbers = read_published(PUBLISHED / "binding_information.csv", COLUMNS)
    table = paper_table()
    table["model"] = "mine"
    assert not len(beside(table, numbers))
