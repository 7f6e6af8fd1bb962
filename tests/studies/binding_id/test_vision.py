"""A toy as a model of images: its layers are those that interventions edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bindscope.config.models import ToyVision
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, ModelError
from bindscope.models.loading import load_model
from bindscope.studies.binding_id.config import Toy
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_id.toys import adapter, training
from bindscope.studies.binding_id.toys import model as stored
from bindscope.studies.binding_id.toys.model import build
from bindscope.studies.binding_id.toys.tasks import Vocabulary
from bindscope.studies.build import build as build_graph

TOWER, CONNECTOR = 1, 2


def manifest(folder: Path) -> Path:
    """Store a toy that was not trained."""
    config = Toy(name="t")
    trained = training.TrainedToy(build(0, Vocabulary.of_splits()), [], {})
    stored.write(trained, config, folder / "t.safetensors", folder / "t.json", code="c")
    return folder / "t.json"


def test_its_layers_are_what_the_engine_edits(tmp_path: Path) -> None:
    """Text comes after the image, so that a pass without text gives what a whole prompt does."""
    path = manifest(tmp_path)
    model = load_model(ToyVision(name="m", source="toy:t", n_layers=5), path, "cpu", 36)
    rule = Rule("sprites", 2, "independent")
    scenes = draw_pairs(rule, "test", 3, 0).base
    engine, pictures = adapter.load({"name": "t"}, rule, path)
    state = engine.contexts(scenes, pictures(scenes))
    objects = np.stack([engine.residual(state, "object", role) for role in (0, 1)], axis=1)
    tokens = dict(model.residual_stream(model.preprocess(pictures(scenes)), range(1, 6)))
    assert list(tokens) == [1, 2, 3, 4, 5]
    rows, cells = np.arange(3)[:, None], scenes.slot
    for layer in range(3):
        features = tokens[CONNECTOR + layer].numpy()[rows, cells]
        np.testing.assert_allclose(features, objects[:, :, layer, 0], atol=1e-4)
    toy = stored.load(path)
    with torch.no_grad():
        connected = toy.network.model.multi_modal_projector(tokens[TOWER])
    torch.testing.assert_close(connected, tokens[CONNECTOR])
    assert not torch.equal(tokens[5], tokens[4])


def test_images_of_another_size_and_a_wrong_number_of_layers_are_refused(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    model = load_model(ToyVision(name="m", source="toy:t", n_layers=5), path, "cpu")
    with pytest.raises(ModelError, match="36 x 36 px, and these have 48 x 40"):
        model.preprocess(np.zeros((1, 40, 48, 3), np.uint8))
    with pytest.raises(ModelError, match="5 blocks, the configuration says 6"):
        load_model(ToyVision(name="m", source="toy:t", n_layers=6), path, "cpu")


def configured() -> dict[str, Any]:
    counts = {"train": 32, "val": 32, "test": 32}
    groups = [{"name": "color", "size": 6}, {"name": "shape", "size": 4}]
    return {
        "datasets": [
            {
                "name": "pairs",
                "split": {"rule": "random"},
                "n_scenes": counts,
                "space": {"kind": "balanced", "groups": groups, "chosen": [2, 2], "n_objects": 2},
                "shard_size": counts,
                "render": {"kind": "sprites"},
            }
        ],
        "models": [{"name": "images", "source": "toy:free"}],
        "studies": {
            "binding_information": {
                "probes": [{"name": "attention", "family": "attention_quadratic"}],
                "fits": [
                    {
                        "name": "f",
                        "datasets": ["pairs"],
                        "models": ["images"],
                        "layers": "all",
                        "tokens": ["patches"],
                        "probes": ["attention"],
                    }
                ],
            },
            "binding_id": {"toys": [{"name": "free"}]},
        },
    }


def test_activations_are_made_of_the_toy_that_the_run_trains() -> None:
    graph = build_graph(Config.model_validate(configured()))
    (toy,) = graph.select("toy_vlm")
    products = graph.select("patches")
    assert [product.wildcards["layer"] for product in products] == ["1", "2", "3", "4", "5"]
    assert all(product.inputs["weights"] == [toy] for product in products)


@pytest.mark.parametrize(
    ("toys", "words"),
    [
        (None, "no study of this configuration trains it"),
        ({"toys": [{"name": "fre"}]}, "there is no toy 'free'; did you mean"),
    ],
)
def test_a_toy_that_nobody_trains_is_named(toys: dict[str, Any] | None, words: str) -> None:
    content = configured()
    content["studies"]["binding_id"] = toys
    with pytest.raises(ConfigError, match=words):
        build_graph(Config.model_validate(content))
