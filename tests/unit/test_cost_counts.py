"""Counts of weights, tokens, floats and what single steps hold, against the arrays themselves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from solid_scenes import scene, solid

from bindscope.codes.space import build_space
from bindscope.config.codes import BalancedSpace, UniformSpace
from bindscope.config.training import Architecture
from bindscope.core.store.writer import write_arrays
from bindscope.core.work import stored
from bindscope.graph import cost as shared_cost
from bindscope.graph.towers import Tower
from bindscope.models import known_answer
from bindscope.models.vit import build as build_vit
from bindscope.priors.counts import count_levels, not_counted
from bindscope.scenes.solids import raycast_backend
from bindscope.sources import masks
from bindscope.statistics import bootstrap
from bindscope.studies.binding_id import cost as vlm
from bindscope.studies.binding_information import cost as fits
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import TARGETS, Target
from bindscope.studies.binding_information.probes.module import InputShape
from bindscope.studies.concepts import approximators
from bindscope.studies.concepts import cost as concepts
from bindscope.studies.concepts.config import Encoder
from bindscope.studies.concepts.dual import encoders

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "workflow" / "rules"


# --- Arithmetic against arrays -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "vision", "tokens"),
    [
        # A slot of 66 px of 384 takes 5 of 27 cells, in the whole image and in a crop.
        ("hf:llava-hf/llava-onevision-qwen2-7b-ov-hf@x", {"image_size": 384, "patch_size": 14}, 50),
        ("hf:Qwen/Qwen2-VL-2B-Instruct@x", {"patch_size": 14, "spatial_merge_size": 2}, 9),
        ("hf:Qwen/Qwen2-VL-2B-Instruct@x", {}, 9),
    ],
)
def test_tokens_of_an_object(source: str, vision: dict[str, int], tokens: int) -> None:
    assert vlm._object_tokens({"source": source}, vision) == tokens


@pytest.mark.parametrize("shape", [(3, 700, 96), (2, 40_000, 24), (1, 10, 7)])
def test_floats_of_a_store(shape: tuple[int, ...], tmp_path: Path) -> None:
    store, manifest = tmp_path / "a.zarr", tmp_path / "a.json"
    write_arrays(store, manifest, {"z": np.ones(shape, np.float32)}, spec="{}", code="c")
    files = [manifest, *(path for path in store.rglob("*") if path.is_file())]
    size = sum(path.stat().st_size for path in files)
    assert stored("float32", shape) == pytest.approx(size, rel=0.01, abs=1500)


@pytest.mark.parametrize(
    ("n_counts", "problems"),
    [(0, [(16, 14), (21, 24), (28, 12)]), (5, [(16, 14), (21, 5), (21, 24), (33, 12)])],
)
def test_linear_parts_are_counted_as_they_are_fitted(
    n_counts: int, problems: list[tuple[int, int]]
) -> None:
    """Together where they read the same bits, with a row for each bit that one of them reads."""
    heads = [part for name in TARGETS for part in Target(name, (4, 3), n_counts).parts]
    assert sorted(fits._problems(heads, 8)) == problems


def test_a_fit_of_many_bits_takes_longer_than_its_weights_say() -> None:
    """Preconditioners grow with the square of what a head reads, their factors with its cube."""
    assert fits._descent(800, 10, 8, 60) > 3 * fits._descent(400, 10, 8, 60)
    products = 60 * 100 * 4.0 * 100_000 * 20
    assert products < fits._descent(20, 100, 100_000, 60) < 1.2 * products


@pytest.mark.parametrize(
    "probe",
    [
        {"family": "linear"},
        {"family": "quadratic", "rank": 3},
        {"family": "dnn", "hidden": 8},
        {"family": "quadratic_reuse", "rank": 3},
        {"family": "set", "hidden": 8, "summed": 6},
        {"family": "attention_quadratic", "rank": 3},
    ],
    ids=lambda probe: "-".join(map(str, probe.values())),
)
def test_weights_of_a_probe(probe: dict[str, Any]) -> None:
    config = TypeAdapter(AnyProbe).validate_python({"name": "probe", **probe})
    tokens = 5 if probe["family"] in ("set", "attention_quadratic") else 0
    shape = InputShape(11, bool(tokens), *([tokens] if tokens else []))
    target = Target("object", (4, 3))
    (heads,) = target.heads(True)
    family = type(config).load()(config, heads, shape, torch.Generator())
    real = sum(p.numel() for p in family.parameters() if p.requires_grad)
    counted, _ = config.count(heads, 11, max(tokens, 1))
    assert counted == pytest.approx(real, rel=0.12)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "product", "dim": 6},
        {"kind": "mlp_set", "dim": 6, "hidden": 10},
        {"kind": "transformer", "dim": 6, "width": 8, "heads": 2, "hidden": 12, "layers": 2},
    ],
    ids=lambda options: str(options["kind"]),
)
def test_weights_of_a_dual_encoder(options: dict[str, Any]) -> None:
    config = TypeAdapter[Any](Encoder).validate_python(options)
    encoder = encoders.ENCODERS[options["kind"]]((4, 3, 2), config, 0)
    counted, _ = concepts.encoder_weights(config.model_dump(), [4, 3, 2])
    assert counted == sum(p.numel() for p in encoder.parameters())


def test_weights_of_a_transformer() -> None:
    vit = build_vit(
        Architecture(n_layers=3, width=48, n_heads=4, patch_px=8), 32, torch.Generator()
    )
    real = sum(p.numel() for p in vit.parameters())
    assert Tower(3, 48, 8, 32).weights == pytest.approx(real, rel=0.05)
    assert Tower(3, 48, 8, 32).tokens == 17


@pytest.mark.parametrize(
    "space",
    [
        {"kind": "balanced", "n_objects": 6, "chosen": [6, 6], "sizes": [8, 8]},
        {"kind": "balanced", "n_objects": 9, "chosen": [3, 3], "sizes": [6, 6]},
        {"kind": "uniform", "min_objects": 9, "max_objects": 9, "sizes": [6, 6]},
        {"kind": "uniform", "min_objects": 1, "max_objects": 3, "sizes": [4, 4]},
    ],
    ids=str,
)
def test_count_bits(space: dict[str, Any]) -> None:
    sizes = space.pop("sizes")
    groups = [{"name": f"g{i}", "size": size} for i, size in enumerate(sizes)]
    content = {**space, "groups": groups}
    kind = BalancedSpace if space["kind"] == "balanced" else UniformSpace
    scene_space = build_space(kind.model_validate(content))
    assert not_counted(scene_space) is None
    real = sum(n * len(levels) for n, levels in zip(sizes, count_levels(scene_space), strict=True))
    assert shared_cost.n_counts(content) == pytest.approx(real, rel=0.2, abs=2)


# --- Memory that arrays take, as tracemalloc counts it -----------------------------------------


def peak_of(function: Callable[[], object]) -> float:
    """Return the bytes that a call holds at most."""
    tracemalloc.start()
    try:
        function()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dim", [24, 26, 36])
def test_a_proof_that_codes_differ_holds_all_differences(dim: int) -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (36, dim))
    model = {"source": "known-answer:hadamard", "dim": dim}
    counted = shared_cost._proof_bytes(model, 36)
    peak = peak_of(lambda: known_answer.injective(signs, 9, 9))
    assert 0.9 * peak < counted + 1e5 < 1.6 * peak + 2e5
    assert shared_cost._proof_bytes(model | {"source": "known-answer:rotated"}, 36) == 0


@pytest.mark.parametrize(("n", "samples"), [(2000, 1000), (500, 100), (3000, 2000)])
def test_intervals_hold_what_is_drawn(n: int, samples: int) -> None:
    values = np.random.default_rng(0).normal(size=(n, 3))
    peak = peak_of(lambda: bootstrap.resampled_means(values, samples, 0))
    assert fits._resampled(n * samples) == pytest.approx(peak, rel=0.15)


def test_shading_holds_vectors_of_each_ray() -> None:
    picture = scene([solid("cube"), solid("sphere", 2, 2, material="metal")], size=96)
    peak = peak_of(lambda: raycast_backend._image(picture, 2))
    assert peak == pytest.approx(shared_cost._RAY * (2 * picture.size_px) ** 2, rel=0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "mlp", "widths": [20, 30]},
        {"kind": "mlp", "widths": [20]},
        {"kind": "structured", "terms": ["additive"]},
    ],
    ids=str,
)
def test_weights_of_an_approximator(options: dict[str, Any]) -> None:
    sizes, slots, dim = (5, 3), 2, 7
    generator = torch.Generator()
    learner: torch.nn.Module
    if options["kind"] == "mlp":
        learner = approximators.Perceptron(sizes, slots, dim, options["widths"], generator)
    else:
        learner = approximators.Structured(sizes, slots, dim, options["terms"], 4, generator)
    real = sum(part.numel() for part in learner.parameters() if part.ndim > 1)  # without biases
    counted, each = concepts.learner_weights(options, sizes, slots, dim)
    assert counted == real
    layers = [*options.get("widths", ()), dim]
    assert each == (sum(a * b for a, b in pairwise(layers)) if len(layers) > 1 else counted)


def test_colors_of_a_mask_become_numbers_in_place() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (500, 700, 3), np.uint8)
    numbers = masks.NUMBERS["red_green_blue"](pixels)
    assert (numbers == pixels.astype(int) @ [1, 256, 65536]).all()
    peak = peak_of(lambda: masks.NUMBERS["red_green_blue"](pixels))
    assert peak < 0.5 * shared_cost._PHOTO_PIXEL * 500 * 700
