"""Toys in the zoo: what is committed holds its gates, and how a training comes there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bindscope.commands.zoo import write_zoo
from bindscope.config import zoo as files
from bindscope.config.loading import load_config, load_file
from bindscope.config.zoo import TOY
from bindscope.core.digests import write_digests
from bindscope.core.errors import BindscopeError
from bindscope.core.keys import CLONE
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.tasks.scenes import Rule
from bindscope.studies.binding_id.toys import LAYERS, PATCH_PX, TOWER_WIDTH, WIDTH, training
from bindscope.studies.binding_id.toys import model as stored
from bindscope.studies.binding_id.toys.adapter import load
from bindscope.studies.binding_id.toys.model import build
from bindscope.studies.binding_id.toys.tasks import Vocabulary
from bindscope.studies.binding_id.toys.training import TrainedToy
from bindscope.studies.build import build as build_graph

COMMITTED = [
    path
    for path in sorted(files.ZOO.glob("*.json"))
    if json.loads(path.read_text()).get("kind") == TOY
]
RULE = Rule("sprites", 2, "independent")
UNSEEN = 1000  # a seed that no training had: fresh scenes and images
SCENES = 96
SECTION = {
    "tasks": [{"name": "nine", "layout": "sprites", "order": "independent"}],
    "toys": [{"name": "made", "seed": 3}, {"name": "kept", "source": "zoo:made"}],
    "suites": [{"name": "s", "tasks": ["nine"], "toys": ["kept"]}],
}


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_what_is_committed_passes_its_gates_on_fresh_scenes(path: Path) -> None:
    manifest = json.loads(path.read_text())
    interchange = manifest["objective"] == "interchange"
    toy = stored.load(path)
    accuracies = training.measure_accuracies(toy, UNSEEN, SCENES, interchange=interchange)
    training.check_gates(path.stem, accuracies, "-")
    training.check_gates(path.stem, manifest["accuracies"], "-")
    assert interchange == ("object_all_replaced" in accuracies)
    assert path.stem.endswith(f"-{manifest['seed']}")
    assert path.with_suffix(".safetensors").stat().st_size < 1e6


def test_the_zoo_has_the_toys_that_its_preset_trains() -> None:
    preset = load_file(CLONE / "config/presets/zoo.yaml")
    recipes = {
        product.wildcards["toy"]: json.loads(product.spec)["toy"]
        for product in build_graph(preset).select("toy_vlm")
    }
    shared = {"width": WIDTH, "n_layers": LAYERS, "tower_width": TOWER_WIDTH, "patch_px": PATCH_PX}
    assert {path.stem for path in COMMITTED} == set(recipes)
    for path in COMMITTED:
        recipe = json.loads(path.read_text())["recipe"]["model"]
        expected = {"name": path.stem, **recipes[path.stem], **shared}
        expected["training"] = recipe["training"] | expected["training"]  # older ones have more
        assert recipe == recipe | expected


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty zoo; the working directory is one beside it."""
    folder = tmp_path / "zoo"
    monkeypatch.setattr(files, "ZOO", folder)
    monkeypatch.chdir(tmp_path)
    files._read.cache_clear()
    return folder


def test_a_training_comes_into_the_zoo_and_is_read_from_there(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toys = {"studies": {"binding_id": {"toys": SECTION["toys"][:1]}}, "datasets": []}
    graph = build_graph(load_config(toys, "toys.yaml"))
    assert write_zoo(graph, zoo) == 1
    assert "made                             not trained yet" in capsys.readouterr().out
    (product,) = graph.select("toy_vlm")
    config = Toy(name="made", seed=3)
    trained = TrainedToy(build(3, Vocabulary.of_splits()), [], {"cross_2": 1.0})
    Path(product.path()).parent.mkdir(parents=True)
    stored.write(
        trained,
        config,
        product.path("weights"),
        product.path("manifest"),
        code="own:chained",
        spec=product.spec,
    )
    with pytest.raises(BindscopeError, match="not finished"):
        write_zoo(graph, zoo)
    write_digests([product.path("weights"), product.path("manifest")], product.keys)
    assert write_zoo(graph, zoo) == 0

    manifest = json.loads((zoo / "made.json").read_text())
    assert (manifest["kind"], manifest["objective"], manifest["seed"]) == (TOY, "free", 3)
    assert (manifest["code"], manifest["accuracies"]) == ("own:chained", {"cross_2": 1.0})
    assert len(manifest["lock"]) == 64
    assert "spec" not in manifest
    engine, _ = load({"name": "kept", "source": "zoo:made"}, RULE, None)
    toy, expected = engine.adapter.toy, trained.toy.trained_parameters()
    assert all(
        torch.equal(value, expected[name].half().float())
        for name, value in toy.trained_parameters().items()
    )
    _decides_the_key(zoo, manifest)
    _is_named_where_damaged(zoo)


def _decides_the_key(zoo: Path, manifest: dict[str, Any]) -> None:
    """Other weights under the same name are another product; nothing is trained for it."""

    def jobs() -> set[str]:
        files._read.cache_clear()
        graph = build_graph(load_config({"studies": {"binding_id": content}, "datasets": []}, "s"))
        assert not graph.select("toy_vlm")
        return {product.path() for product in graph.select("binding_id_interventions")}

    content = {**SECTION, "toys": SECTION["toys"][1:]}
    before = jobs()
    (zoo / "made.json").write_text(json.dumps(manifest | {"cpu_seconds": 3}))
    assert jobs() == before
    (zoo / "made.json").write_text(json.dumps(manifest | {"sha256": "0" * 64}))
    assert jobs().isdisjoint(before)


def _is_named_where_damaged(zoo: Path) -> None:
    model = {"name": "kept", "source": "zoo:made"}
    with pytest.raises(BindscopeError, match=r"made\.safetensors(.|\n)*make zoo"):
        load(model, RULE, None)
    (zoo / "made.json").write_text("{")
    with pytest.raises(BindscopeError, match=r"made\.json: is missing or damaged(.|\n)*make zoo"):
        load(model, RULE, None)


def test_what_is_no_toy_is_refused_with_those_that_are() -> None:
    with pytest.raises(BindscopeError, match=r"is a vision transformer.*\n.*zoo:toy-free-0"):
        files.read_manifest("zoo:matching-none-0", TOY)
