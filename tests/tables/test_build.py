"""Rows of jobs become a table, or a clear refusal."""

import json

import numpy as np
import pandas as pd
import pytest
from sample_tables import KEYS, complete, known_rows, make_row, priors_table, to_input

from bindscope.core.errors import StoreError
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.tables import BINDING_INFORMATION
from bindscope.studies.datasets.tables import PRIORS
from bindscope.tables.rows import read_rows
from bindscope.tables.rules import layer_number
from bindscope.tables.write import name_of, parquet_bytes, read_table, write_table

JOINED = (
    "null_loss_object_bits",
    "null_loss_feature_bits",
    "truth_bits",
    "truth_conditional_bits",
    "split_gap_bits",
)


class Products:
    """Files as the jobs leave them, and what a table is given of them."""

    def __init__(self, folder):
        self.folder, self.models = folder, {}
        self.given = {"fits": [], "nulls": [], "truths": [], "assignments": []}
        # Rows of priors as a job writes them: without the columns that other products fill.
        rows = priors_table().dropna(axis="columns").to_dict("records")
        self.given["priors"] = [to_input(self.json("priors.json", rows))]

    def lines(self, name, rows):
        """Write a file of rows."""
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def json(self, name, content):
        """Write a JSON file."""
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def fit(self, name, rows, role="fits", **names):
        """Write the rows of a fit, without what the table joins."""
        unjoined = [{k: v for k, v in complete(row).items() if k not in JOINED} for row in rows]
        names = {"seeds": "_".join(str(row["seed"]) for row in rows)} | names
        self.given[role].append(to_input(self.lines(name, unjoined), names))
        return self.folder / name

    def null(self, name, **fields):
        """Write the row of a null fit."""
        self.fit(name, [make_row("null", "", "null", **fields)], "nulls")

    def truth(self, model, bits, conditional):
        """Write a truth."""
        row = {"dataset": "known", "model": model, "tokens": "cls", "truth_bits": bits}
        row |= {"truth_conditional_bits": conditional} | KEYS
        self.given["truths"].append(to_input(self.json(f"{model}.json", row), {"model": model}))

    def expect(self, role, i=0, **names):
        """Let the graph expect something else of a product."""
        entry = self.given[role][i]
        self.given[role][i] = ProductFiles({**entry.names, **names}, entry.files)

    @property
    def inputs(self):
        """What the table is made from."""
        return Inputs(self.given, {"models": self.models})

    def build(self):
        """Build the table; the rows of the fits, without those of the best probe."""
        table = BINDING_INFORMATION.build(self.inputs)
        return table[table["probe"] != "best"].reset_index(drop=True)


@pytest.fixture
def products(tmp_path):
    filled = Products(tmp_path)
    filled.fit("a.jsonl", [make_row(seed=seed) for seed in (0, 1, 2)], dataset="colorshape")
    filled.fit("b.jsonl", [make_row(layer="10", n_layers=12)])
    filled.fit("d.jsonl", [make_row(layer="2", n_layers=12)])
    filled.fit("c.jsonl", [make_row(layer="final", n_layers=12)])
    return filled


def test_rows_are_ordered_with_layers_by_number(products):
    table = products.build()
    assert list(table["layer"]) == ["2", "4", "4", "4", "10", "final"]
    assert list(table["seed"])[1:4] == [0, 1, 2]
    assert list(layer_number(table["layer"]))[-1] == np.inf


def test_order_of_files_does_not_matter(products):
    first = parquet_bytes(products.build(), BINDING_SCHEMA)
    products.given["fits"].reverse()
    assert parquet_bytes(products.build(), BINDING_SCHEMA) == first


def test_null_losses_are_joined_by_dataset_probe_and_seed(products):
    products.null("n.jsonl", seed=1, loss_object=29.0, loss_feature=8.0)
    products.null("m.jsonl", seed=0, probe="linear", loss_object=27.0)
    table = products.build()
    joined = table[table["null_loss_object_bits"].notna()]
    assert list(joined["seed"]) == [1]
    assert list(joined["null_loss_object_bits"]) == [29.0]
    assert list(joined["null_loss_feature_bits"]) == [8.0]


def test_truths_are_joined_and_excess_is_flagged(products):
    for i, row in enumerate(known_rows()):
        products.fit(f"known-{i}.jsonl", [row])
    for row in known_rows()[::3]:
        bits = (row["truth_bits"], row["truth_conditional_bits"])
        products.truth(row["model"], *((1.0, None) if row["model"] == "half-the-time" else bits))
    table = products.build().set_index("model")
    assert (table.loc["half-the-time", "flags"] == "above_truth").all()
    assert table.loc["half-the-time", "truth_conditional_bits"].isna().all()
    assert (table.loc["cipher", "truth_bits"] > 26).all()
    assert table.loc["vit-objects", "truth_bits"].isna().all()
    products.given["truths"].pop()
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
    row["layer"] = "3"
    products.fit("other.jsonl", [row])
    products.models["other"] = {"model_kind": "timm", "model_seed": None, "n_layers": 6}
    table = products.build().set_index("model").loc["other"]
    assert (table["model_kind"], table["n_layers"], table["layer"]) == ("timm", 6, "3")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("spec_key", "12" * 32, "another configuration"),
        ("code_key", "12" * 8, "another version of the code"),
        ("dataset", "known", "another dataset"),
    ],
)
@pytest.mark.parametrize("role", ["fits", "nulls", "truths", "priors"])
def test_a_row_of_other_keys_is_refused(products, role, field, value, words):
    products.null("n.jsonl")
    products.truth("rotated", 3.0, 2.0)
    products.expect(role, **{field: "elsewhere" if field == "dataset" else value})
    with pytest.raises(StoreError, match=words) as error:
        products.build()
    assert f"--forcerun {products.given[role][0].path}" in str(error.value)


def test_rows_without_keys_or_expectations_are_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"dataset": "d"}')
    with pytest.raises(StoreError, match="spec_key is None, expected"):
        read_rows(to_input(tmp_path / "a.json"))
    (tmp_path / "a.json").write_text(json.dumps(KEYS))
    assert read_rows(to_input(tmp_path / "a.json", {"seeds": "0_1"})) == [KEYS]
    with pytest.raises(StoreError, match="expected None"):
        read_rows(ProductFiles({}, {"": str(tmp_path / "a.json")}))


def test_missing_seeds_are_noticed(products):
    products.expect("fits", seeds="3_0_1_2")
    with pytest.raises(StoreError, match=r"holds seeds \[0, 1, 2\], not \[0, 1, 2, 3\]"):
        products.build()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"dataset": "colorsha', "is not a whole row"),
        ('{"binding_bits": NaN}', "NaN is no number"),
        ("[1]", "is not a JSON object"),
        ("", "holds no row"),
    ],
)
def test_damaged_files_are_refused(products, tmp_path, text, words):
    (tmp_path / "b.jsonl").write_text(text)
    with pytest.raises(StoreError, match=words):
        products.build()
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(StoreError, match="is missing"):
        products.build()


def test_other_mistakes_are_named(products):
    products.given["fits"].append(products.given["fits"][0])
    with pytest.raises(StoreError, match="two rows for colorshape vit-objects 4 cls quadratic"):
        products.build()
    products.given["fits"].pop()
    products.fit("odd.jsonl", [make_row("odd", val_loss=1.0)])
    with pytest.raises(StoreError, match="val_loss are no columns"):
        products.build()
    row = make_row("odd")
    del row["probe"]
    for odd, words in (
        (row, "a row lacks probe"),
        (make_row("odd", h_feature_bits=7.0), r"h_feature_bits is 7.0, but the priors"),
        (make_row("odd", dataset="unknown"), "no priors"),
    ):
        products.lines("odd.jsonl", [odd])
        with pytest.raises(StoreError, match=words):
            products.build()


def test_written_tables_come_back_and_are_the_same_bytes(products, tmp_path):
    table = products.build()
    for folder in ("one", "two"):
        write_table(table, tmp_path / folder / "table", BINDING_SCHEMA)
    for ending in ("parquet", "csv", "html"):
        files = [(tmp_path / folder / f"table.{ending}").read_bytes() for folder in ("one", "two")]
        assert files[0] == files[1]
    again = read_table(tmp_path / "one" / "table.parquet", BINDING_SCHEMA)
    pd.testing.assert_frame_equal(again, table)


def test_the_schema_stands_in_the_file(products, tmp_path):
    table, path = PRIORS.build(products.inputs), tmp_path / "priors.parquet"
    write_table(table, tmp_path / "priors", PRIORS.schema)
    with pytest.raises(StoreError, match="holds priors/4, not binding_information/3"):
        read_table(path, BINDING_SCHEMA)
    assert name_of(path) == "priors"
    pd.testing.assert_frame_equal(read_table(path), table, check_dtype=False)
    moved = path.rename(tmp_path / "scene_statistics.parquet")
    with pytest.raises(StoreError, match="holds priors/4, not scene_statistics"):
        read_table(moved)
    path.write_bytes(b"PAR1")
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        read_table(path)


def test_html_holds_text_not_markup(products, tmp_path):
    table = products.build()
    table.loc[0, "reason"] = "<script>alert(1)</script>"
    write_table(table, tmp_path / "table", BINDING_SCHEMA)
    page = (tmp_path / "table.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_assignments_join_the_priors_of_their_dataset_and_split(products):
    row = {
        "dataset": "colorshape",
        "split": "test",
        "n_scenes": 9,
        "assignment_bits": 3.0,
        "multiset_bits": 2.0,
        "code_bits": 2.0,
        **KEYS,
    }
    path = products.json("assignments.json", [row])
    products.given["assignments"].append(to_input(path))
    table = PRIORS.build(products.inputs)
    assert list(table["split"]) == ["train", "val", "test"] * 2
    joined = table[table["assignment_bits"].notna()]
    assert joined[["dataset", "split"]].values.tolist() == [["colorshape", "test"]]
    assert joined[["assignment_bits", "multiset_bits", "code_bits"]].values.tolist() == [[3, 2, 2]]
    for changes, message in (
        ({"spec_key": "12" * 32}, "the row was made by another configuration"),
        ({"dataset": "other"}, "other test has no priors"),
        ({"code_bits": 2.5}, "come together and fall"),
        ({"code_bits": None}, "come together and fall"),
    ):
        path.write_text(json.dumps([row | changes]))
        with pytest.raises(StoreError, match=message):
            PRIORS.build(products.inputs)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[", "is not JSON"), ("[1]", "is not a JSON object"), ("[]", "holds no row")],
)
def test_damaged_priors_are_refused(products, tmp_path, text, words):
    (tmp_path / "priors.json").write_text(text)
    for table in (PRIORS, BINDING_INFORMATION):
        with pytest.raises(StoreError, match=words):
            table.build(products.inputs)


def test_an_invalid_table_is_not_written(products, tmp_path):
    table = products.build()
    table.loc[0, "binding_bits"] = 0.0
    with pytest.raises(StoreError, match="breaks its schema"):
        write_table(table, tmp_path / "table", BINDING_SCHEMA)
    assert not list(tmp_path.glob("table*"))
