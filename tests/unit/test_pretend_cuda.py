"""Everything that may run on CUDA, on a pretended device: no mixing, and the CPU's very result.

`pretend_cuda` says what is tested here and what only a GPU can test (`benchmarks/cuda.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from activations_by_hand import store
from pretend_cuda import OnDevice, pretend_cuda
from probe_problems import FAMILIES, probe, problem

from bindscope.activations.extraction import extract_patches, extract_pooled
from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled, Pretrained
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model
from bindscope.models.training import train, write_training
from bindscope.scenes.render import render_scenes
from bindscope.studies.binding_information.fit import run_fit
from bindscope.studies.binding_information.probes import protocols

SHORT = {"steps": 3, "batch_size": 16}
BUDGET = {
    "linear": {"l2": [0.01], "steps": 5}, "dnn": {"hidden": 2, **SHORT},
}  # fmt: skip


def fit(family, device, **fields):
    config = probe(family, device=device, **{**BUDGET.get(family, SHORT | {"rank": 2}), **fields})
    tokens = 2 if family == "attention_quadratic" else 0
    data = problem(n=(40, 16, 16), dim=3, sizes=(2, 2), tokens=tokens)
    return run_fit(config, data, [0], "none")


def agree(expected, found):
    for here, there in zip(expected, found, strict=True):
        assert here.history == there.history
        for name, losses in here.losses.items():
            np.testing.assert_array_equal(losses, there.losses[name])
        for name, losses in here.head_losses.items():
            np.testing.assert_array_equal(losses, there.head_losses[name])
        assert here.weights.keys() == there.weights.keys()
        for name, values in here.weights.items():
            assert type(there.weights[name]) is np.ndarray
            np.testing.assert_array_equal(values, there.weights[name])


def test_the_pretended_device_refuses_what_cuda_refuses():
    here = torch.ones(3)
    with pretend_cuda():
        there = here.to("cuda")
        assert (there.device.type, (2 * there).device.type) == ("cuda", "cuda")
        assert isinstance(torch.arange(3, device="cuda"), OnDevice)
        torch.testing.assert_close((there + 1).cpu(), here + 1)
        with pytest.raises(RuntimeError, match="same device"):
            there + here
        with pytest.raises(RuntimeError, match="same device"):
            here[torch.arange(3, device="cuda")]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        with pytest.raises(RuntimeError, match="generator"):
            torch.randn(3, device="cuda", generator=torch.Generator())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_on_the_device_is_the_fit_on_the_cpu(family):
    expected = fit(family, "cpu")
    with pretend_cuda():
        found = fit(family, "cuda")
    agree(expected, found)


def test_the_papers_protocol_too(monkeypatch):
    monkeypatch.setattr(protocols, "PAPER_EPOCHS", 2)
    expected = fit("quadratic", "cpu", protocol="paper")
    with pretend_cuda():
        found = fit("quadratic", "cuda", protocol="paper")
    agree(expected, found)


SCENES = SceneDistribution.model_validate(
    {
        "name": "easy", "split": {"rule": "random"},
        "space": {"kind": "uniform", "min_objects": 1, "max_objects": 2,
                  "groups": [{"name": "color", "size": 2}, {"name": "shape", "size": 2}]},
        "render": {"kind": "shapes", "size_px": 16, "object_px": 6, "margin_px": 1,
                   "placement": "grid"},
    }
)  # fmt: skip
CONTROLLED = Controlled.model_validate(
    {
        "name": "vit", "source": "controlled:objects", "extraction": {"batch_size": 4},
        "architecture": {"n_layers": 2, "width": 8, "n_heads": 2, "patch_px": 8},
        "training": {"dataset": "easy", "steps": 3, "batch_size": 8},
    }
)  # fmt: skip
TIMM = {
    "source": "timm:vit_tiny_patch16_224", "n_layers": 1,
    "overrides": {"depth": 1, "embed_dim": 8, "num_heads": 2, "img_size": 16, "patch_size": 8},
}  # fmt: skip
HF = {
    "source": f"hf:some/model@{'0' * 40}", "n_layers": 1, "input_px": 16,
    "overrides": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "intermediate_size": 8, "image_size": 16, "patch_size": 8},
}  # fmt: skip


def scenes(n):
    objects = sample_codes(SCENES, "train", 0, n)
    return objects, render_scenes(SCENES, "train", 0, objects)["images"]


def trained(device):
    objects, images = scenes(16)
    split = dict.fromkeys(("train", "val"), images)
    return train(CONTROLLED, SCENES, split, dict.fromkeys(split, objects), device)


def extracted(config, weights, device, folder):
    """Arrays of all layers pooled, and of the last layer's patches, by way of the stores."""
    model = load_model(config, weights, device, 16)
    arrays, images = {}, scenes(6)[1]
    for name, extract in (
        ("pooled", lambda writer: extract_pooled(model, images, writer, config.extraction)),
        ("patches", lambda writer: extract_patches(model, 1, images, writer, config.extraction)),
    ):
        path = folder / device.replace(":", "") / name
        with store(path) as writer:
            extract(writer)
        opened = open_store(path.with_suffix(".json"))
        arrays |= {f"{name}.{array}": opened.read(array) for array in opened.names}
    return arrays


def test_a_training_on_the_device_is_the_training_on_the_cpu():
    expected = trained("cpu")
    with pretend_cuda():
        found = trained("cuda:0")
    assert expected.history == found.history
    for name, values in expected.weights.items():
        assert not isinstance(found.weights[name], OnDevice)
        torch.testing.assert_close(values, found.weights[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "kind", ["controlled", "timm", "dinov2", "vit_mae", "siglip2_vision_model"]
)
def test_an_extraction_on_the_device_is_that_on_the_cpu(kind, tmp_path):
    config, weights = CONTROLLED, None
    if kind == "controlled":
        weights = tmp_path / "vit.json"
        paths = (tmp_path / "vit.safetensors", tmp_path / "history.json", weights)
        write_training(trained("cpu"), *paths, spec="{}", code="c")
    else:
        fields = TIMM if kind == "timm" else HF
        overrides = fields["overrides"] | ({} if kind == "timm" else {"model_type": kind})
        if kind == "siglip2_vision_model":
            overrides = overrides | {"num_patches": 4}
            del overrides["image_size"]
        config = Pretrained.model_validate(
            {**fields, "name": "m", "pretrained": False, "overrides": overrides,
             "extraction": {"batch_size": 4, "device": "cuda"}}
        )  # fmt: skip
    expected = extracted(config, weights, "cpu", tmp_path)
    with pretend_cuda():
        found = extracted(config, weights, "cuda:0", tmp_path)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(values, found[name])
