"""The zoo: trained models as committed files, written from a training and read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from small_models import EASY, configured, trained, write

from bindscope.codes.sampling import sample_codes
from bindscope.config import zoo as files
from bindscope.config.loading import load_file
from bindscope.config.models import AnyModel, Zoo
from bindscope.core.errors import BindscopeError
from bindscope.core.graph import Graph
from bindscope.core.keys import CLONE
from bindscope.models.controlled import load as load_training
from bindscope.models.loading import load_model
from bindscope.models.stream import FrozenViT
from bindscope.models.zoo import described
from bindscope.models.zoo import write as write_to_zoo
from bindscope.scenes.render import render_scenes
from bindscope.studies.build import all_steps, build

COMMITTED = [
    path
    for path in sorted(files.ZOO.glob("*.json"))
    if "kind" not in json.loads(path.read_text())  # of toys: test_stored_toys.py
]
CPU = torch.device("cpu")


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a zoo that holds a model `small`; the training it comes from lies beside it."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    monkeypatch.setattr(files, "ZOO", folder)
    training = write(trained(configured(seed=3)), tmp_path, configured(seed=3))
    write_to_zoo(folder, "small", training, described(training), lock="1" * 64, cpu_seconds=2.5)
    files._read.cache_clear()
    return folder


def model(**fields: Any) -> Zoo:
    zoo_model: Zoo = TypeAdapter(AnyModel).validate_python(
        {"name": "mine", "source": "zoo:small", **fields}
    )
    return zoo_model


def test_a_model_is_what_was_trained_up_to_float16(zoo: Path) -> None:
    images = render_scenes(EASY, "test", 0, sample_codes(EASY, "test", 0, 16))["images"]
    zoo_model = load_model(model(), None, "cpu")
    usual = load_training(configured(seed=3), zoo.parent / "vit.json", CPU)
    assert isinstance(zoo_model, FrozenViT)
    for ours, theirs in zip(
        zoo_model.forward.parameters(), usual.forward.parameters(), strict=True
    ):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs.half().float())
    for layer in (0, 1, 2, "final"):
        ((_, ours),) = zoo_model.residual_stream(zoo_model.preprocess(images), [layer])
        ((_, theirs),) = usual.residual_stream(usual.preprocess(images), [layer])
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.02)
    assert (zoo_model.n_layers, zoo_model.dim, zoo_model.token_map.grid) == (2, 32, (4, 4))
    assert load_model(model(input_px=64), None, "cpu").token_map.grid == (8, 8)


def test_missing_and_damaged_files_are_named_with_a_remedy(zoo: Path) -> None:
    with pytest.raises(BindscopeError, match=r"absent\.json: is not there: the zoo has small"):
        load_model(model(source="zoo:absent"), None, "cpu")
    weights = zoo / "small.safetensors"
    content = bytearray(weights.read_bytes())
    content[-7] ^= 1
    weights.write_bytes(content)
    for _ in range(2):
        with pytest.raises(BindscopeError, match=r"small\.safetensors(.|\n)*make zoo"):
            load_model(model(), None, "cpu")
        weights.unlink(missing_ok=True)
    (zoo / "toy.json").write_text(
        (zoo / "small.json").read_text().replace("{", '{"kind":"toy",', 1)
    )
    with pytest.raises(BindscopeError, match=r"zoo:toy: is a toy.*\n.*choose one of zoo:small$"):
        load_model(model(source="zoo:toy"), None, "cpu")
    (zoo / "small.json").write_text("{")
    files._read.cache_clear()
    with pytest.raises(BindscopeError, match=r"small\.json: is damaged(.|\n)*git checkout"):
        load_model(model(), None, "cpu")


def test_other_weights_of_the_same_name_are_another_product(zoo: Path) -> None:
    def pooled() -> set[str]:
        config = load_file(Path(__file__).resolve().parents[2] / "config/presets/ci.yaml")
        graph = build(config.model_copy(update={"models": (model(name="vit"), config.models[1])}))
        assert not graph.select("training")
        return {product.path() for product in graph.select("pooled")}

    before = pooled()
    manifest = json.loads((zoo / "small.json").read_text())
    (zoo / "small.json").write_text(json.dumps(manifest | {"cpu_seconds": 3}))
    files._read.cache_clear()
    assert pooled() == before
    (zoo / "small.json").write_text(json.dumps(manifest | {"sha256": "0" * 64}))
    files._read.cache_clear()
    assert pooled().isdisjoint(before)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_what_is_committed_loads_and_met_its_objective(path: Path) -> None:
    zoo_model = load_model(model(source=f"zoo:{path.stem}"), None, "cpu")
    manifest = json.loads(path.read_text())
    assert path.stem.endswith(f"-{manifest['seed']}")
    images = np.full((2, manifest["input_px"], manifest["input_px"], 3), 255, np.uint8)
    ((_, tokens),) = zoo_model.residual_stream(zoo_model.preprocess(images), ["final"])
    assert torch.isfinite(tokens).all()
    if manifest["objective"] in ("objects", "features"):
        assert manifest["val_loss_bits"] < 0.05


def test_the_zoo_is_what_its_preset_trains_and_small() -> None:
    preset = load_file(CLONE / "config/presets/zoo.yaml")
    trained_by = {
        product.wildcards["model"]: json.loads(product.spec)["model"]
        for product in _plan(preset).select("training")
    }
    for path in COMMITTED:
        manifest = json.loads(path.read_text())
        assert manifest["recipe"]["model"] == trained_by[path.stem]
    assert sum(file.stat().st_size for file in files.ZOO.iterdir()) < 30 * 2**20


def _plan(config: Any) -> Graph:
    graph = build(config)
    assert set(graph.steps) == set(all_steps())
    return graph
