"""Counts of weights, tokens, floats and what single steps hold, against the arrays themselves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

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
from bindscope.statistics import bootstrap
from bindscope.studies.binding_id import cost as vlm
from bindscope.studies.binding_information import cost as fits
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import TARGETS, Target
from bindscope.studies.binding_information.probes.module import InputShape
from bindscope.studies.concepts import cost as concepts
from bindscope.studies.concepts.config import Encoder
from bindscope.studies.concepts.dual import encoders

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


@pytest.mark.parametrize("shape", [(2, 40_000, 24), (1, 10, 7)])
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
        {"kind": "balanced", "n_objects": 9, "chosen": [3, 3], "sizes": [6, 6]},
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


def test_a_proof_that_codes_differ_holds_all_differences() -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (36, 26))
    model = {"source": "known-answer:hadamard", "dim": 26}
    counted = shared_cost._proof_bytes(model, 36)
    peak = peak_of(lambda: known_answer.injective(signs, 9, 9))
    assert 0.9 * peak < counted + 1e5 < 1.6 * peak + 2e5
    assert shared_cost._proof_bytes(model | {"source": "known-answer:rotated"}, 36) == 0


def test_intervals_hold_what_is_drawn() -> None:
    values = np.random.default_rng(0).normal(size=(2000, 3))
    peak = peak_of(lambda: bootstrap.resampled_means(values, 1000, 0))
    assert fits._resampled(2000 * 1000) == pytest.approx(peak, rel=0.15)
