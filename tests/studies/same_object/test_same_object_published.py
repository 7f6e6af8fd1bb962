"""The paper's numbers: which are drawn next to ours, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from bindscope.config.loading import load_file
from bindscope.core.keys import CLONE
from bindscope.studies.same_object.protocol import ABLATION, PROBES, comparable, paper_name
from bindscope.studies.same_object.published import (
    NOT_COMPARED,
    describe_undrawn,
    published_next_to,
    read_ablation,
    read_attention,
    read_comparison,
    read_table_1,
    select_drawn,
)


def preset(name: str) -> dict[str, Any]:
    config = load_file(CLONE / f"config/presets/{name}.yaml")
    return dict(config.model_dump(mode="json"))


def compared(content: dict[str, Any]) -> pd.DataFrame:
    rows = comparable(content["datasets"], content["models"], content["studies"]["same_object"])
    return read_comparison(rows, {"same_object": str(CLONE / PROBES)})


def test_layers_are_counted_from_one_and_the_tables_hold_what_they_say() -> None:
    table = read_table_1(str(CLONE / PROBES)).set_index("name")
    assert table.loc["DINOv2-L/14", "accuracy"] == pytest.approx(0.902)
    assert table.loc["DINOv2-L/14", "layer"] == 19  # its layer 18
    assert table.loc["DINOv2-S/14", "layer"] == 12
    assert read_attention(str(CLONE / PROBES)) == (0.163, 0.201)
    ablation = read_ablation(str(CLONE / ABLATION))
    assert ablation.groupby("quantity")["strength"].count().max() == 5
    assert paper_name("hf:facebook/dinov2-large@47b7") == "DINOv2-L/14"
    assert paper_name("zoo:matching-objects-0") == ""


def test_numbers_are_drawn_for_the_released_protocol_alone() -> None:
    content = preset("same_object_published")
    rows = compared(content)
    marks = select_drawn(rows)
    assert set(marks["model"]) == {
        "dinov2-small",
        "dinov2-base",
        "dinov2-large",
        "dinov2-giant",
        "supervised-large",
        "clip-large",
    }
    assert set(marks["dataset"]) == {"ade20k-518", "ade20k-224", "ade20k-592"}
    assert "MAE" in describe_undrawn(rows)  # whose labels are of other patches in the released code
    assert "CLIP" not in describe_undrawn(rows)
    assert "dinov2" not in describe_undrawn(rows)  # which are drawn for another dataset
    whole = rows[(rows["dataset"] == "ade20k-whole") & (rows["model"] == "dinov2-large")]
    assert "whole images, not crops" in whole["differs"].iloc[0]
    ours = compared(preset("same_object"))
    assert len(ours) == 7
    assert not len(select_drawn(ours))
    assert "dinov2-large 90.2 %" in describe_undrawn(ours)
    assert "4,000 of 20,455 training images" in describe_undrawn(ours)


def test_a_run_without_the_papers_models_has_no_comparison() -> None:
    rows = compared(preset("same_object_published_small"))
    for table in (rows, NOT_COMPARED):
        marks = select_drawn(table)
        assert not len(marks[marks["model"] == "distilled"])
        assert describe_undrawn(table) == ""
        assert published_next_to(pd.DataFrame(columns=["family"]), table).empty


def test_pixels_of_other_models_are_normalized_as_for_dinov2() -> None:
    content = preset("same_object_published")
    del content["models"][5]["preprocessing"]
    rows = compared(content)
    assert content["models"][5]["name"] == "clip-large"
    assert "as for DINOv2" in describe_undrawn(rows)
    assert "clip-large" not in set(select_drawn(rows)["model"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("unlabelled", "drop"), ("min_purity", 0.5), ("stuff", "drop"), ("n_patches", 64)],
)
def test_every_deviation_is_named(key: str, value: Any) -> None:
    content = preset("same_object_published")
    content["studies"]["same_object"]["sampling"][key] = value
    assert not len(select_drawn(compared(content)))


def test_ours_stands_next_to_it_at_both_layers() -> None:
    rows = compared(preset("same_object_published"))
    about = {"dataset": "ade20k-518", "model": "dinov2-large", "family": "quadratic"}
    fits = pd.DataFrame(
        [
            {**about, "layer": "19", "accuracy": 0.89},
            {**about, "layer": "20", "accuracy": 0.91},
            {**about, "layer": "21", "accuracy": 0.99, "family": "identity_pointwise"},
        ]
    )
    table = published_next_to(fits, rows)
    (line,) = table.to_dict("records")
    assert (line["accuracy"], line["ours_there"], line["ours"]) == (0.902, 0.89, 0.91)
    assert (line["layer"], line["our_layer"]) == (19, "20")
    assert published_next_to(fits[:0], rows).empty
