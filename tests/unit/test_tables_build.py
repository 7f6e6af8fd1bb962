"""Row files become a table, or a clear refusal."""

import json

import numpy as np
import pandas as pd
import pytest
from sample_tables import KEYS, known_rows, make_row, priors_table

from bindscope.core.errors import StoreError
from bindscope.tables.build import build_binding_information, build_priors, layer_number
from bindscope.tables.schema import BINDING_INFORMATION, PRIORS
from bindscope.tables.write import parquet_bytes, read_table, write_table

JOINED = (
    "null_loss_object_bits", "null_loss_feature_bits", "truth_bits", "truth_conditional_bits",
    "split_gap_bits",
)  # fmt: skip


def prior_rows():
    """Rows of priors as a job writes them: without the columns that other products fill."""
    return priors_table().dropna(axis="columns").to_dict("records")


class Products:
    """Files as the jobs leave them."""

    def __init__(self, folder):
        self.folder, self.expected = folder, {}
        self.fits, self.nulls, self.truths = [], [], []
        self.priors = [self.json("priors.json", prior_rows())]

    def lines(self, name, rows, **expected):
        """Write a file of rows and expect their keys."""
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.expected[str(path)] = KEYS | expected
        return path

    def json(self, name, content):
        """Write a JSON file."""
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def fit(self, name, rows, **expected):
        """Write the rows of a fit, without what the table joins."""
        left = [{k: v for k, v in row.items() if k not in JOINED} for row in rows]
        self.fits.append(self.lines(name, left, **expected))
        return self.fits[-1]

    def null(self, name, **fields):
        """Write the row of a null fit."""
        row = make_row("null", "", "null", **fields)
        self.nulls.append(self.lines(name, [row]))
        return self.nulls[-1]

    def truth(self, model, bits, conditional, dataset="known"):
        """Write a truth."""
        row = {"dataset": dataset, "model": model, "tokens": "cls", "truth_bits": bits}
        row |= {"truth_conditional_bits": conditional} | KEYS
        self.truths.append(self.json(f"{model}.json", row))

    def build(self, **options):
        """Build the table."""
        return build_binding_information(
            self.fits, self.nulls, self.priors, self.truths, self.expected, **options
        )


@pytest.fixture
def products(tmp_path):
    made = Products(tmp_path)
    made.fit("a.jsonl", [make_row(seed=seed) for seed in (0, 1, 2)], seeds=[2, 1, 0])
    made.fit("b.jsonl", [make_row(layer="10", n_layers=12), make_row(layer="2", n_layers=12)])
    made.fit("c.jsonl", [make_row(layer="final", n_layers=12)])
    return made


def test_rows_are_ordered_with_layers_by_number(products):
    table = products.build()
    assert list(table["layer"]) == ["2", "4", "4", "4", "10", "final"]
    assert list(table["seed"])[1:4] == [0, 1, 2]
    assert list(layer_number(table["layer"]))[-1] == np.inf


def test_order_of_files_does_not_matter(products):
    first = parquet_bytes(products.build(), BINDING_INFORMATION)
    products.fits.reverse()
    assert parquet_bytes(products.build(), BINDING_INFORMATION) == first


def test_null_losses_are_joined_by_dataset_probe_and_seed(products):
    products.null("n.jsonl", seed=1, loss_object=29.0, loss_feature=8.0)
    products.null("m.jsonl", seed=0, probe="linear", loss_object=27.0)
    table = products.build()
    joined = table[table["null_loss_object_bits"].notna()]
    assert list(joined["seed"]) == [1]
    assert list(joined["null_loss_object_bits"]) == [29.0]
    assert list(joined["null_loss_feature_bits"]) == [8.0]


def test_truths_are_joined_and_excess_is_flagged(products):
    products.fit("known.jsonl", known_rows())
    for row in known_rows()[::3]:
        products.truth(row["model"], row["truth_bits"], row["truth_conditional_bits"])
    products.truths[3] = products.json(
        "lower.json",
        {"dataset": "known", "model": "half-the-time", "tokens": "cls", "truth_bits": 1.0,
         "truth_conditional_bits": None},
    )  # fmt: skip
    table = products.build().set_index("model")
    assert (table.loc["half-the-time", "flags"] == "above_truth").all()
    assert table.loc["half-the-time", "truth_conditional_bits"].isna().all()
    assert (table.loc["cipher", "truth_bits"] > 26).all()
    assert table.loc["vit-objects", "truth_bits"].isna().all()
    products.truths.pop()
    with pytest.raises(StoreError, match=r"truth of .* has no truth file"):
        products.build()


def test_shuffled_labels_have_truth_zero(products):
    row = make_row("half", "0", kind="known-answer", dataset="known", loss_object=26.5)
    row |= {"control": "shuffled_labels", "loss_object_given_feature_bits": 19.28}
    row |= {"conditional_binding_lower_bound_bits": 26.488 - 7.217 - 19.28}
    row |= {"binding_lower_bound_bits": -0.01}
    products.fit("s.jsonl", [row])
    table = products.build()
    assert list(table.loc[table["control"] != "none", "truth_bits"]) == [0.0]


def test_what_the_job_does_not_know_is_joined_from_the_models(products):
    row = make_row("other")
    for name in ("model_kind", "model_seed", "n_layers"):
        del row[name]
    row["options"] = {"family": "quadratic", "rank": 8}
    row["flags"] = ["not_converged", "collapsed"]
    row["layer"] = 3
    products.fit("other.jsonl", [row])
    facts = {"other": {"model_kind": "timm", "model_seed": None, "n_layers": 6}}
    table = products.build(models=facts).set_index("model").loc["other"]
    assert (table["model_kind"], table["n_layers"], table["layer"]) == ("timm", 6, "3")
    assert table["flags"] == "collapsed;not_converged"
    assert json.loads(table["options"]) == {"family": "quadratic", "rank": 8}


def test_a_file_that_was_not_asked_for_is_refused(products):
    path = products.fits[0]
    del products.expected[str(path)]
    with pytest.raises(StoreError, match="belongs to no fit") as error:
        products.build()
    assert str(path) in str(error.value)
    assert "remedy" in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("spec_key", "12" * 32, "another configuration"),
        ("code_key", "12" * 8, "another version of the code"),
        ("dataset", "known", "another dataset"),
    ],
)
def test_a_row_of_other_keys_is_refused(products, field, value, words):
    path = products.fits[1]
    products.expected[str(path)] |= {field: value}
    with pytest.raises(StoreError, match=words) as error:
        products.build()
    assert f"--forcerun {path}" in str(error.value)


def test_a_null_row_of_other_keys_is_refused(products):
    path = products.null("n.jsonl")
    products.expected[str(path)] |= {"code_key": "12" * 8}
    with pytest.raises(StoreError, match="another version of the code"):
        products.build()


def test_a_prior_of_other_keys_is_refused(products):
    with pytest.raises(StoreError, match="another configuration"):
        build_priors(products.priors, {str(products.priors[0]): KEYS | {"spec_key": "12" * 32}})


def test_missing_seeds_are_noticed(products):
    products.expected[str(products.fits[0])]["seeds"] = [0, 1, 2, 3]
    with pytest.raises(StoreError, match=r"holds seeds \[0, 1, 2\], not \[0, 1, 2, 3\]"):
        products.build()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"dataset": "colorsha', "is not a whole row"),
        ('{"binding_bits": NaN}', "NaN is no number"),
        ("[1]", "is not a JSON object"),
        ("", "holds seeds"),
    ],
)
def test_damaged_files_are_refused(products, text, words):
    products.fits[1].write_text(text)
    with pytest.raises(StoreError, match=words):
        products.build()
    products.fits[1].unlink()
    with pytest.raises(StoreError, match="is missing"):
        products.build()


def test_other_mistakes_are_named(products, tmp_path):
    products.fits.append(products.fits[0])
    with pytest.raises(StoreError, match="two rows for colorshape vit-objects 4 cls quadratic"):
        products.build()
    products.fits.pop()
    path = products.fit("odd.jsonl", [make_row("odd", val_loss=1.0)])
    with pytest.raises(StoreError, match="val_loss are no columns"):
        products.build()
    row = make_row("odd")
    del row["probe"]
    products.lines(path.name, [row])
    with pytest.raises(StoreError, match="a row lacks probe"):
        products.build()
    products.lines(path.name, [make_row("odd", h_feature_bits=7.0)])
    with pytest.raises(StoreError, match=r"h_feature_bits is 7.0, but the priors"):
        products.build()
    products.lines(path.name, [make_row("odd", dataset="unknown")])
    with pytest.raises(StoreError, match="no priors"):
        products.build()
    bad = tmp_path / "bad.json"
    bad.write_text('[{"split": "test"}]')
    with pytest.raises(StoreError, match="names no dataset"):
        build_priors([bad], {})
    bad.write_text("[")
    with pytest.raises(StoreError, match="is not JSON"):
        build_priors([bad], {})


def test_written_tables_come_back_and_are_the_same_bytes(products, tmp_path):
    table = products.build()
    for folder in ("one", "two"):
        write_table(table, tmp_path / folder / "table", BINDING_INFORMATION)
    for ending in ("parquet", "csv", "html"):
        files = [(tmp_path / folder / f"table.{ending}").read_bytes() for folder in ("one", "two")]
        assert files[0] == files[1]
    again = read_table(tmp_path / "one" / "table.parquet", BINDING_INFORMATION)
    pd.testing.assert_frame_equal(again, table)


def test_the_schema_stands_in_the_file(products, tmp_path):
    write_table(build_priors(products.priors, {}), tmp_path / "priors", PRIORS)
    with pytest.raises(StoreError, match="holds priors/2, not binding_information/1"):
        read_table(tmp_path / "priors.parquet", BINDING_INFORMATION)
    (tmp_path / "priors.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        read_table(tmp_path / "priors.parquet", PRIORS)


def test_an_invalid_table_is_not_written(products, tmp_path):
    table = products.build()
    table.loc[0, "binding_bits"] = 0.0
    with pytest.raises(StoreError, match="breaks its schema"):
        write_table(table, tmp_path / "table", BINDING_INFORMATION)
    assert not list(tmp_path.glob("table*"))


def test_html_holds_text_not_markup(products, tmp_path):
    table = products.build()
    table.loc[0, "reason"] = "<script>alert(1)</script>"
    write_table(table, tmp_path / "table", BINDING_INFORMATION)
    page = (tmp_path / "table.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_assignments_join_the_priors_of_their_dataset_and_split(products):
    row = {"dataset": "colorshape", "split": "test", "n_scenes": 9, "assignment_bits": 3.0,
           "multiset_bits": 2.0, "code_bits": 2.0, **KEYS}  # fmt: skip
    path = products.json("assignments.json", [row])
    table = build_priors(products.priors, {str(path): KEYS}, [path])
    joined = table[table["assignment_bits"].notna()]
    assert joined[["dataset", "split"]].values.tolist() == [["colorshape", "test"]]
    assert joined[["assignment_bits", "multiset_bits", "code_bits"]].values.tolist() == [[3, 2, 2]]
    with pytest.raises(StoreError, match="the row was made by another configuration"):
        build_priors(products.priors, {str(path): KEYS | {"spec_key": "12" * 32}}, [path])
    for changes, message in (
        ({"dataset": "other"}, "other test has no priors"),
        ({"code_bits": 2.5}, "come together and fall"),
        ({"code_bits": None}, "come together and fall"),
    ):
        path.write_text(json.dumps([row | changes]))
        with pytest.raises(StoreError, match=message):
            build_priors(products.priors, {}, [path])
