"""docs/own_datasets.md as it is printed: from images and a table to rows of the table."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from jobs_by_hand import ROOT, make_by_hand

import bindscope
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, StoreError
from bindscope.core.graph import Graph
from bindscope.core.store.reader import open_store
from bindscope.sources.survey import with_counts
from bindscope.studies.build import build, read_graph

PAGE = (ROOT / "docs" / "own_datasets.md").read_text()


def example() -> dict[str, Any]:
    """The configuration that the page prints."""
    (text,) = re.findall(r"```yaml\n(datasets:.*?)```", PAGE, flags=re.S)
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def planned(config: dict[str, Any]) -> Graph:
    """The products of a configuration of this page."""
    return build(Config.model_validate(with_counts(config)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with the page's images; the current one while these tests run."""
    folder = tmp_path_factory.mktemp("own")
    main = runpy.run_path(str(ROOT / "docs" / "examples" / "own_images.py"))["main"]
    main(folder / "own_images")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def done(folder: Path) -> Graph:
    """The graph of the page's configuration, with its tables made."""
    graph = planned(example())
    done_paths: set[str] = set()
    for product in graph.select("table"):
        make_by_hand(product, Path(), done_paths)
    return graph


@pytest.mark.slow
def test_the_page_runs_from_images_to_a_flagged_row(done: Graph, folder: Path) -> None:
    assert not done.select("codes", "scenes", "priors", "anchors", "attention")
    table = pd.read_parquet(folder / "results/tables/binding_information.parquet")
    assert set(table["dataset"]) == {"kitchen"}
    assert (table["status"] == "ok").all()
    assert table["flags"].map(lambda flags: "assumed_prior" in flags.split(";")).all()
    priors = pd.read_parquet(folder / "results/tables/priors.parquet")
    assert set(priors["method"]) == {"train_cross_entropy"}
    test = priors.set_index("split").loc["test"]
    # 1 to 3 different objects out of 6, numbers equally likely: log2(3) + E[log2 C(6, m)].
    assert test["h_object_bits"] == pytest.approx(1.585 + (2.585 + 3.907 + 4.322) / 3, abs=0.8)
    assert (table["h_object_bits"] == test["h_object_bits"]).all()


@pytest.mark.slow
def test_images_and_labels_belong_together(done: Graph, folder: Path) -> None:
    (scenes,) = (p for p in done.select("record_scenes") if p.wildcards["split"] == "test")
    (codes,) = (p for p in done.select("record_codes") if p.wildcards["split"] == "test")
    shard = open_store(folder / scenes.path())
    objects = open_store(folder / codes.path()).read("objects")
    images, cells, boxes, masks = (
        shard.read(name) for name in ("images", "cells", "boxes", "masks")
    )
    assert images.shape == (len(objects), 16, 16, 3)
    for image, mine, places, mask, code in zip(images, cells, boxes, masks, objects, strict=True):
        present = mine[mine >= 0]
        assert sorted(present) == list(code.nonzero()[0])
        assert set(mask.ravel()) == {*range(len(present) + 1)}
        for j, (cell, (left, top, right, bottom)) in enumerate(zip(present, places, strict=False)):
            middle = image[(top + bottom) // 2, (left + right) // 2].astype(int)
            assert mask[(top + bottom) // 2, (left + right) // 2] == j + 1
            # Strongest channel of red, green and blue objects (cells: color varies slower).
            assert middle.argmax() == cell // 2


@pytest.mark.slow
def test_a_notebook_opens_it(done: Graph, folder: Path) -> None:
    Path("kitchen.yaml").write_text(yaml.safe_dump(example()))
    query = {"dataset": "kitchen", "model": "vit", "layer": 1, "configfile": "kitchen.yaml"}
    opened = bindscope.open(**query, split="test")
    assert opened.activations.shape[0] == len(opened.objects) == len(opened.features)
    assert opened.features.shape[1] == 5
    assert len(set(opened.scenes)) == len(opened.objects)
    assert all((folder / "own_images" / name).is_file() for name in opened.scenes)
    assert set(opened.read_table("binding_information")["dataset"]) == {"kitchen"}
    with pytest.raises(StoreError, match="is no table that was made; there are "):
        opened.read_table("nothing")
    (index,) = done.select("index", model="vit")
    whole = Path(index.path()).read_bytes()
    Path(index.path()).write_bytes(whole + b" ")
    with pytest.raises(StoreError, match="its digest differs"):
        bindscope.open(**query, split="test")
    Path(index.path()).write_bytes(whole)


@pytest.mark.slow
def test_xarray_names_the_dimensions(done: Graph, folder: Path) -> None:
    pytest.importorskip("xarray")
    Path("kitchen.yaml").write_text(yaml.safe_dump(example()))
    opened = bindscope.open(dataset="kitchen", model="vit", layer=1, configfile="kitchen.yaml")
    named = opened.to_xarray()
    assert dict(named.sizes) == {
        "scene": len(opened.objects),
        "layer": 1,
        "feature": 16,
        "object_type": 6,
        "value": 5,
    }
    last = named.sel(scene=opened.scenes[-1], layer="1")
    assert (last["activations"] == opened.activations[-1]).all()
    assert (last["objects"] == opened.objects[-1]).all()


def test_the_table_and_the_settings_decide_what_runs_again(folder: Path) -> None:
    def keys(config: dict[str, Any]) -> dict[str, str]:
        graph = planned(config)
        return {
            f"{p.rule} {sorted(p.wildcards)} {p.wildcards.get('split')}": p.key
            for p in graph.products.values()
        }

    before = keys(example())
    path = folder / "own_images" / "objects.csv"
    content = path.read_bytes()
    path.touch()
    assert keys(example()) == before
    path.write_bytes(content.replace(b"12,12", b"11,12", 1))
    try:
        after = keys(example())
    finally:
        path.write_bytes(content)
    changed = {name.split()[0] for name in after if after[name] != before[name]}
    assert {"records", "record_codes", "record_scenes", "counted_priors", "fit"} <= changed


def test_splits_by_feature_code_resample_feature_codes(folder: Path) -> None:
    config = example()
    for rule, disjoint in (("hashed_images", False), ("hashed_feature_codes", True)):
        config["datasets"][0]["split"] = {"rule": rule}
        (fit,) = planned(config).select("fit")
        assert json.loads(fit.spec)["disjoint"] is disjoint


def test_known_answer_encoders_do_not_go_with_scenes_that_are_read(folder: Path) -> None:
    config = example()
    config["models"].append({"name": "zero", "source": "known-answer:zero"})
    config["studies"]["binding_information"]["fits"][0]["models"].append("zero")
    with pytest.raises(ConfigError, match=r"'zero' draws the codes .* 'kitchen' are read"):
        read_graph(config, "kitchen.yaml")


def test_a_known_law_has_exact_priors_and_no_flag(folder: Path) -> None:
    config = example()
    config["datasets"][0]["space"] = {
        "kind": "uniform",
        "max_objects": 3,
        "groups": config["datasets"][0]["space"]["groups"],
    }
    graph = planned(config)
    assert not graph.select("counted_priors", "counted_anchors")
    (priors,) = graph.select("priors")
    done_paths: set[str] = set()
    make_by_hand(priors, Path(), done_paths)
    for anchors in graph.select("anchors"):
        make_by_hand(anchors, Path(), done_paths)
    row = pd.read_json(folder / priors.path()).set_index("split").loc["test"]
    assert row["method"] == "exact"
    assert row["h_object_bits"] == pytest.approx(5.357552)  # log2(6 + 15 + 20)
