"""On a real CUDA device: what is computed there agrees with the CPU, and memory is freed.

Skipped where torch sees no device. ``BINDSCOPE_TEST_DEVICE=cpu`` rehearses the tests on the CPU,
with one thread more for the second of two results, so that sums are split in another way.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import encoded_problems
from activations_by_hand import store
from known_answers import dataset, model
from pair_problems import planted_splits
from planted_patches import Planted
from probe_problems import FAMILIES, probe, problem
from pydantic import TypeAdapter

from bindscope.activations.extraction import extract
from bindscope.config.codes import SceneDistribution
from bindscope.config.model_entry import Extraction
from bindscope.config.models import Controlled, Pretrained
from bindscope.core.devices import hold_device
from bindscope.core.registries import OBJECTIVES
from bindscope.core.store.reader import open_store
from bindscope.models.known_answer import encode
from bindscope.models.known_answer_truth import truth
from bindscope.models.loading import load_model
from bindscope.models.training import train
from bindscope.models.training_scenes import FreshScenes
from bindscope.studies.binding_id.engine import (
    Add,
    Condition,
    Knockout,
    Replace,
    Rotate,
)
from bindscope.studies.binding_id.tasks.scenes import question
from bindscope.studies.binding_information.config import Information
from bindscope.studies.binding_information.estimates import estimate
from bindscope.studies.binding_information.fit import run_fit
from bindscope.studies.same_object.config import FAMILIES as SCORERS
from bindscope.studies.same_object.config import AnyScorer
from bindscope.studies.same_object.fit import fit_probe

DEVICE = os.environ.get("BINDSCOPE_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(), reason="torch sees no CUDA device"
    ),
]

ACCURACY = 0.002  # the tolerance of the accuracy of pairs across machines
LOG_PROBABILITY = 1e-3  # nats, of interventions in float32
BITS = 0.02  # the tolerance of the reference tables across machines, in bits per scene
# Root mean square of the difference as a share of that of the CPU's float32 activations, in the
# worst layer: sums in another order; bfloat16 has 8 bits of mantissa.
OF_THE_RMS = {"float32": 1e-4, "bfloat16": 3e-2}
SCENES = SceneDistribution.model_validate(
    {
        "name": "easy",
        "split": {"rule": "random"},
        "space": {
            "kind": "uniform",
            "min_objects": 1,
            "max_objects": 3,
            "groups": [{"name": "color", "size": 4}, {"name": "shape", "size": 4}],
        },
        "render": {
            "kind": "shapes",
            "size_px": 32,
            "object_px": 8,
            "margin_px": 1,
            "placement": "grid",
            "area": "released",
        },
    }
)


@contextmanager
def other_threads() -> Iterator[None]:
    """Compute with one thread more: what a rehearsal on the CPU compares with."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + (DEVICE == "cpu"))
    yield
    torch.set_num_threads(before)


def fitted(family: str, device: str, **fields: Any) -> Any:
    tokens = 9 if family == "attention_quadratic" else 0
    data = problem((1000, 200, 200), 32, (3, 3), tokens=tokens)
    steps = {} if family == "linear" else {"steps": 60}
    (result,) = run_fit(probe(family, device=device, **steps, **fields), data, [0], "none")
    return result


def assert_same_losses(expected: Any, actual: Any) -> None:
    assert expected.losses.keys() == actual.losses.keys()
    for target, losses in expected.losses.items():
        assert actual.losses[target].mean() == pytest.approx(losses.mean(), abs=BITS), target
    assert all(type(values) is np.ndarray for values in actual.weights.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fit_on_the_device_is_that_on_the_cpu(family: str) -> None:
    expected = fitted(family, "cpu")
    with other_threads():
        assert_same_losses(expected, fitted(family, DEVICE))


def test_so_is_one_that_streams_its_tokens() -> None:
    expected = fitted("attention_quadratic", "cpu", memory_mb=1)
    with other_threads():
        assert_same_losses(expected, fitted("attention_quadratic", DEVICE, memory_mb=1))


@pytest.mark.parametrize("encoder", ["zero", "features", "identity"])
def test_known_answers_are_found_on_the_device(encoder: str) -> None:
    scenes = dataset((4, 4), (4, 4))
    data, prior = encoded_problems.problem(
        scenes, lambda split, codes: encode(model(encoder), scenes, split, 0, codes)["cls"]
    )
    (result,) = run_fit(probe("linear", device=DEVICE), data, [0], "none")
    row = estimate(result, prior, data.test.objects, data.test.features, Information())
    known = truth(model(encoder), scenes)[0]
    assert known is not None
    error = row["binding_lower_bound_bits"] - known
    assert -0.01 * row["h_object_bits"] <= error <= BITS  # docs/known_answers.md


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_controlled_training_on_the_device_is_that_on_the_cpu(objective: str) -> None:
    """Few steps: a long training on another kind of processor ends at other weights."""
    config = Controlled.model_validate(
        {
            "name": "vit",
            "source": f"controlled:{objective}",
            "architecture": {"n_layers": 2, "width": 32, "n_heads": 2, "patch_px": 8},
            "training": {"dataset": "easy", "steps": 30, "batch_size": 32},
        }
    )
    fresh = FreshScenes(SCENES, 32, 0)
    expected = train(config, SCENES, fresh, "cpu")
    with hold_device(DEVICE) as device, other_threads():
        actual = train(config, SCENES, fresh, device)
    assert all(weights.device.type == "cpu" for weights in actual.weights.values())
    here, there = (
        [row["loss_bits"] for row in training.history] for training in (expected, actual)
    )
    assert here[0] > here[-1]  # it learned something
    np.testing.assert_allclose(there, here, rtol=0, atol=BITS)


def extracted(folder: Path, precision: str, device: str) -> dict[str, Any]:
    """Pooled arrays of all layers and patches of the last one, layers first, by way of stores."""
    extraction = Extraction.model_validate(
        {"batch_size": 16, "dtype": "float32", "precision": precision, "device": device}
    )
    config = Pretrained(
        name="vit",
        source="timm:vit_tiny_patch16_224",
        n_layers=4,
        pretrained=False,
        overrides={"depth": 4, "embed_dim": 128, "num_heads": 2, "img_size": 64, "patch_size": 16},
        extraction=extraction,
    )
    images = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)
    paths = {name: folder / f"{device}-{precision}-{name}" for name in ("pooled", "patches")}
    with hold_device(device) as reserved:
        vit = load_model(config, None, reserved)
        with store(paths["pooled"]) as pooled, store(paths["patches"]) as patches:
            extract(vit, images, extraction, pooled=pooled, patches={4: patches})
    arrays = {}
    for name, path in paths.items():
        opened = open_store(path.with_suffix(".json"))
        for array in opened.names:
            values = opened.read(array).astype(np.float64)
            arrays[f"{name} {array}"] = values if name == "pooled" else values[None]
    return arrays


@pytest.mark.parametrize("precision", OF_THE_RMS)
def test_an_extraction_on_the_device_is_that_on_the_cpu(tmp_path: Path, precision: str) -> None:
    expected = extracted(tmp_path / "expected", "float32", "cpu")
    with other_threads():
        actual = extracted(tmp_path / "found", precision, DEVICE)
    assert expected.keys() == actual.keys()
    for name, layers in expected.items():
        for here, there in zip(layers, actual[name], strict=True):
            share = np.sqrt(np.square(here - there).mean() / np.square(here).mean())
            assert share <= OF_THE_RMS[precision], name


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_vl"])
def test_interventions_on_the_device_are_those_on_the_cpu(family: str) -> None:
    import tiny_vlms  # not at the top: transformers takes seconds to import

    base, images = tiny_vlms.scenes(2, 0, 32)
    answers = []
    for device in ("cpu", DEVICE):
        with hold_device(device) as reserved:
            engine, _ = tiny_vlms.engines(family, device=str(reserved))
            state = engine.contexts(base, images)
            shape = engine.residual(state, "item", 0).shape[1:]
            kinds: list[tuple[Any, ...]] = [
                (),
                (Replace("object", 0, None, 1, "base"),),
                (Rotate("color", 1, 5),),
                (Add("item", 0, np.ones(shape, np.float32)),),
                (Knockout("item", 1),),
            ]
            todo = [Condition(str(i), edits) for i, edits in enumerate(kinds)]
            todo.append(Condition("anew", (Knockout("color", 0, seen_by="item"),), frozen=False))
            answers.append(engine.answers(state, None, todo, [question(base, 0)], base.item))
    np.testing.assert_allclose(*answers, atol=LOG_PROBABILITY)


@pytest.mark.skipif(DEVICE == "cpu", reason="a rehearsal on the CPU has no memory of a device")
@pytest.mark.parametrize("work", ["fit", "extraction"])
def test_the_devices_memory_is_freed(tmp_path: Path, work: str) -> None:
    """The first run leaves torch's workspaces; a second one must leave nothing more."""
    allocated = []
    for run in range(2):
        if work == "fit":
            fitted("quadratic", DEVICE)
        else:
            extracted(tmp_path / str(run), "float32", DEVICE)
        gc.collect()
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[1] <= allocated[0]


@pytest.mark.parametrize(
    ("family", "memory_mb"), [*((family, 1024) for family in SCORERS), ("quadratic", 1)]
)
def test_a_probe_of_pairs_is_as_accurate_as_on_the_cpu(family: str, memory_mb: int) -> None:
    splits = planted_splits(Planted(noise=1.0, dim=40), n=(60, 30, 40))
    fields = {"name": "p", "family": family, "memory_mb": memory_mb}
    fields |= {"steps": 50} if family == "identity_pointwise" else {}
    expected, on_device = (
        TypeAdapter(AnyScorer).validate_python(fields | {"device": device})
        for device in ("cpu", DEVICE)
    )
    here = fit_probe(expected, *splits, bootstrap_samples=20)[0].row
    with other_threads():
        there = fit_probe(on_device, *splits, bootstrap_samples=20)[0].row
    assert there["accuracy"] == pytest.approx(here["accuracy"], abs=ACCURACY)
    assert there["auc_within"] == pytest.approx(here["auc_within"], abs=ACCURACY)
