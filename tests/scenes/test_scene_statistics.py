"""How much is hidden: from a store with known fractions to the table, by the workflow's scripts."""

import json
from pathlib import Path

import numpy as np
import pytest
from jobs_by_hand import ci_graph, job_by_hand, script
from solid_scenes import OCCLUSION

from bindscope.core.errors import StoreError
from bindscope.core.store.writer import write_arrays
from bindscope.scenes.statistics import scene_statistics
from bindscope.studies.datasets.tables import SCENE_STATISTICS
from bindscope.tables.write import read_table


def _shard(path: Path, visible: list[list[float]]) -> Path:
    arrays = {"visible": np.array(visible, np.float32)}
    write_arrays(path.with_suffix(".zarr"), path, arrays, spec="{}", code="a:b")
    return path


def test_statistics_by_hand(tmp_path: Path) -> None:
    first = _shard(tmp_path / "0.json", [[1.0, 0.5, -1.0], [0.0, -1.0, -1.0]])
    second = _shard(tmp_path / "1.json", [[1.0, 1.0, 0.25]])
    empty = _shard(tmp_path / "2.json", [[-1.0]])
    train, test = scene_statistics({"train": [first, second], "test": [second]})
    assert train == {
        "split": "train",
        "n_scenes": 3,
        "n_objects": 6,
        "mean_occlusion": 1 - 3.75 / 6,
        "hidden_ratio": 1 / 6,
    }
    assert test["mean_occlusion"] == 0.25
    with pytest.raises(StoreError, match="no scene holds an object"):
        scene_statistics({"val": [empty]})


def test_from_scenes_to_the_table(tmp_path: Path) -> None:
    render = {
        "kind": "solids",
        "size_px": 32,
        "fixed": {"size": "small"},
        "backend": {"kind": "raycast", "antialias": 1},
    }
    four = {"train": 4, "val": 4, "test": 4}
    common = {
        "space": OCCLUSION,
        "split": {"rule": "random"},
        "n_scenes": four,
        "shard_size": four,
    }
    datasets = [
        {"name": f"height-{i}", **common, "render": {**render, "camera_height": height}}
        for i, height in enumerate((1.0, 3.2))
    ]
    datasets.append({"name": "trained-on", **common, "render": render})  # has no test scenes
    model = {
        "name": "vit",
        "source": "controlled:objects",
        "architecture": {"n_layers": 1, "width": 4, "patch_px": 8},
        "training": {"dataset": "trained-on", "steps": 1},
    }
    fit = {
        "name": "all",
        "datasets": ["height-0", "height-1"],
        "models": ["vit"],
        "probes": ["linear"],
    }
    graph = ci_graph(
        datasets=datasets,
        models=[model],
        study={
            "fits": [fit],
            "probes": [{"name": "linear", "family": "linear"}],
            "learning_curves": [],
        },
    )
    assert len(graph.select("figure", figure="occlusion")) == 1
    (sheet,) = graph.select("figure", figure="scenes")
    assert json.loads(sheet.spec)["content"]["groups"]["height-0"] == [
        {"name": "color", "values": ["gray", "red", "blue", "green"]},  # not the other renderer's
        {"name": "shape", "values": ["cube", "sphere", "cylinder"]},
    ]
    (target,) = graph.select("table", table="scene_statistics")
    for product in [*graph.select("scenes", "scene_statistics"), target]:
        script(product.rule).main(job_by_hand(product, tmp_path))
    table = read_table(tmp_path / target.path(), SCENE_STATISTICS.schema)
    assert list(table["split"]) == [*["train", "val", "test"] * 2, "train", "val"]
    assert list(table["camera_height"][:6]) == [1.0] * 3 + [3.2] * 3
    assert set(table["backend"]) == {"raycast"}
    hidden = table.groupby("dataset")["mean_occlusion"].mean()
    assert hidden["height-0"] > 1.5 * hidden["height-1"] > 0  # a low camera hides more
