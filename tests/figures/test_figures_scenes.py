"""The contact sheet shows the scenes themselves, and names the objects of their codes."""

from pathlib import Path

import numpy as np
from drawing import reason
from sample_tables import sheet, to_input, write_sheet

from bindscope.config.loading import load_file
from bindscope.core.interfaces import Inputs
from bindscope.figures.job import make_figure
from bindscope.sources.records import write_records
from bindscope.studies.build import build
from bindscope.studies.datasets import figures

ROOT = Path(__file__).parents[2]
Groups = tuple[tuple[str, tuple[str, ...]], ...]
GROUPS: Groups = (("color", ("red", "blue")), ("shape", ("circle", "square", "star")))
NUMBERED: Groups = (("a", ("0", "1")), ("b", ("0", "1", "2")))


def test_objects_are_named_by_their_values() -> None:
    cells = np.array([0, 5, 4, -1])
    assert figures.describe(cells, GROUPS) == ["red circle", "blue star", "blue square"]
    assert figures.describe(cells, NUMBERED) == ["a 0, b 0", "a 1, b 2", "a 1, b 1"]
    assert figures.describe(cells[3:], GROUPS) == []


def test_pixels_boxes_and_names_are_those_of_the_scenes() -> None:
    scenes = sheet()
    figure = figures.scenes.draw({"d": scenes}, {"d": GROUPS})
    for axes, image in zip(figure.axes, scenes.images, strict=True):
        assert np.array_equal(axes.images[0].get_array(), image)
        (box,) = axes.patches
        assert box.get_bbox().bounds == (1, 2, 4, 7)
        assert axes.get_xlabel() == "red circle\nred square"


def test_large_images_shrink_and_long_lists_end() -> None:
    figure = figures.scenes.draw({"d": sheet(1, side=400, n_objects=20)}, {"d": GROUPS})
    axes = figure.axes[0]
    assert axes.images[0].get_array().shape[0] < 400
    assert axes.images[0].get_extent() == [0, 400, 400, 0]
    *_, last = axes.get_xlabel().splitlines()
    assert last == "and 13 more"


def test_sheets_are_read_from_shards_and_written(tmp_path: Path) -> None:
    original = sheet(8)
    shard = to_input(write_sheet(tmp_path, original), {"dataset": "d", "split": "test"})
    content = [{"name": name, "values": list(values)} for name, values in GROUPS]
    inputs = Inputs({"scenes": [shard]}, {"groups": {"d": content}})
    figure_data = figures.scenes.read(inputs)
    assert np.array_equal(figure_data["sheets"]["d"].images, original.images[: figures.COLUMNS])
    assert figure_data["sheets"]["d"].split == "test"
    assert figure_data["groups"] == {"d": list(GROUPS)}
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    make_figure(f"{figures.__name__}:scenes", inputs, png, svg)
    assert png.stat().st_size > 1000
    assert b"<image" in svg.read_bytes()
    assert reason(figures.scenes, {}, {}) == "No dataset has images."


def test_each_dataset_with_images_has_one_shard_in_it_of_test_where_there_is_one() -> None:
    graph = build(load_file(ROOT / "config" / "config.yaml"))
    (figure,) = [p for p in graph.select("figure") if p.wildcards["figure"] == "scenes"]
    drawn = {p.wildcards["dataset"] for p in graph.select("scenes", "record_scenes")}
    shards = figure.inputs["scenes"]
    assert sorted(p.wildcards["dataset"] for p in shards) == sorted(drawn)
    splits = {(p.wildcards["dataset"], p.wildcards["split"]) for p in graph.select("scenes")}
    for product in shards:
        name = product.wildcards["dataset"]
        assert product.wildcards["split"] == "test" or (name, "test") not in splits


def test_values_of_read_datasets_have_the_names_of_their_records(tmp_path: Path) -> None:
    named = {"category": ("man", "cup"), "attribute": ("large", "striped", "no_attribute")}
    records = tmp_path / "records-0.parquet"
    write_records(records, "photos", {}, named, {})
    inputs = Inputs({"records": [to_input(records, {"dataset": "natural"})]}, {"groups": {}})
    assert figures.scenes.read(inputs)["groups"] == {"natural": list(named.items())}
    graph = build(load_file(ROOT / "config" / "presets" / "natural.yaml"))
    (figure,) = [p for p in graph.select("figure") if p.wildcards["figure"] == "scenes"]
    read = {p.wildcards["dataset"] for p in figure.inputs["records"]}
    assert read == {p.wildcards["dataset"] for p in graph.select("record_scenes")} != set()
