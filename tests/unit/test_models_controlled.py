"""Controlled models: the transformer, its training, and the frozen model made of its weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import bindscope
from bindscope.codes.sampling import sample_codes
from bindscope.codes.space import feature_code
from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Architecture, Controlled
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Model
from bindscope.fitting.checkpoint import Checkpoint
from bindscope.models.controlled import load
from bindscope.models.stream import FrozenViT
from bindscope.models.training import Trained, one_cycle, train, write_training
from bindscope.models.vit import ViT, build, resized_positions, transform
from bindscope.scenes.render import render_scenes

CPU = torch.device("cpu")
TINY = {"n_layers": 2, "width": 32, "n_heads": 2, "patch_px": 8}
EASY = SceneDistribution.model_validate(
    {
        "name": "easy",
        "space": {
            "kind": "uniform",
            "groups": [{"name": "color", "size": 2}, {"name": "shape", "size": 2}],
            "min_objects": 1,
            "max_objects": 2,
        },
        "split": {"rule": "random"},
        "render": {
            "kind": "shapes", "size_px": 32, "object_px": 13, "margin_px": 1, "placement": "grid",
        },
    }
)  # fmt: skip
N = {"train": 256, "val": 64}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def scenes() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    objects = {split: sample_codes(EASY, split, 0, n) for split, n in N.items()}
    images = {split: render_scenes(EASY, split, 0, o)["images"] for split, o in objects.items()}
    return images, objects


def _config(objective: str = "objects", seed: int = 0, **training: Any) -> Controlled:
    schedule = {"dataset": "easy", "steps": 4, "batch_size": 32, "learning_rate": 5e-3}
    return Controlled.model_validate(
        {
            "name": "vit",
            "source": f"controlled:{objective}",
            "architecture": TINY,
            "training": schedule | training,
            "seed": seed,
        }
    )


def _write(trained: Trained, folder: Path) -> Path:
    manifest = folder / "vit.json"
    write_training(
        trained,
        folder / "vit.safetensors",
        folder / "vit.history.json",
        manifest,
        spec="{}",
        code="c",
    )
    return manifest


@pytest.fixture
def frozen(scenes: Any, tmp_path: Path) -> FrozenViT:
    config = _config()
    return load(config, _write(train(config, EASY, *scenes), tmp_path), CPU)


@pytest.mark.parametrize(("objective", "steps"), [("objects", 120), ("features", 100)])
def test_training_learns_an_easy_set(scenes: Any, objective: str, steps: int) -> None:
    trained = train(_config(objective, steps=steps), EASY, *scenes)
    loss = {(line["split"], line["step"]): line["loss_bits"] for line in trained.history}
    assert loss["val", 0] > 2.5
    assert loss["val", steps] < 0.3 * loss["val", 0]
    assert loss["train", steps] < 0.3 * loss["val", 0]
    steps_seen = [line["step"] for line in trained.history if line["split"] == "val"]
    assert steps_seen == [0, *(steps * i // 10 for i in range(1, 11))]


def test_the_readout_starts_at_the_log_odds_of_the_training_scenes(scenes: Any) -> None:
    images, objects = scenes
    for objective, codes in (
        ("objects", objects),
        ("features", {split: feature_code(o, (2, 2)) for split, o in objects.items()}),
    ):
        history = train(_config(objective, steps=1), EASY, images, objects).history
        p = (codes["train"].sum(0) + 0.5) / (N["train"] + 1)
        surprise = -np.where(codes["val"], np.log2(p), np.log2(1 - p)).sum(1)
        assert history[0]["loss_bits"] == pytest.approx(surprise.mean(), rel=1e-6)


def test_weights_reproduce_the_last_loss_of_the_history(scenes: Any, tmp_path: Path) -> None:
    images, objects = scenes
    trained = train(_config(), EASY, images, objects)
    frozen = load(_config(), _write(trained, tmp_path), CPU)
    ((_, tokens),) = frozen.residual_stream(frozen.preprocess(images["val"]), ["final"])
    logits = tokens[:, 0] @ trained.weights["head.weight"].T + trained.weights["head.bias"]
    nats = functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(objects["val"]).float(), reduction="sum"
    )
    assert trained.history[-1]["split"] == "val"
    assert trained.history[-1]["loss_bits"] == pytest.approx(
        float(nats) / N["val"] / log(2), rel=1e-5
    )


def test_seeds_reproduce_weights_bitwise(scenes: Any) -> None:
    torch.manual_seed(1)
    first = train(_config(), EASY, *scenes)
    torch.manual_seed(2)
    again, other = train(_config(), EASY, *scenes), train(_config(seed=1), EASY, *scenes)
    assert first.history == again.history
    assert first.weights.keys() == again.weights.keys()
    assert all(torch.equal(value, again.weights[name]) for name, value in first.weights.items())
    assert not torch.equal(first.weights["embed.weight"], other.weights["embed.weight"])


def test_rates_are_those_of_torch() -> None:
    for steps in (2, 5, 11, 60, 400):
        optimiser = torch.optim.AdamW([torch.zeros(1)], lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, 3e-4, total_steps=steps, pct_start=0.1, cycle_momentum=False
        )
        for step in range(steps):
            assert one_cycle(3e-4, step, steps) == optimiser.param_groups[0]["lr"]
            optimiser.step()
            if step + 1 < steps:
                schedule.step()


# Trains as the rule's script does; argv: folder for the products.
TRAINING = """
import sys
from pathlib import Path
import test_models_controlled as own
from bindscope.fitting.checkpoint import Checkpoint
folder = Path(sys.argv[1])
own.torch.set_num_threads(1)
objects = {s: own.sample_codes(own.EASY, s, 0, n) for s, n in own.N.items()}
images = {s: own.render_scenes(own.EASY, s, 0, o)["images"] for s, o in objects.items()}
checkpoint = Checkpoint(folder / "vit.safetensors.checkpoint", "keys")
trained = own.train(own._config(steps=600), own.EASY, images, objects, None, checkpoint)
own._write(trained, folder)
checkpoint.remove()
"""


def test_a_training_that_is_killed_goes_on_and_ends_in_the_same_weights(tmp_path: Path) -> None:
    def begin(folder: Path) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        path = f"{Path(bindscope.__file__).parents[1]}:{Path(__file__).parent}"
        return subprocess.Popen(
            [sys.executable, "-c", f"import logging; logging.basicConfig(level=20)\n{TRAINING}",
             str(folder)],
            env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = begin(killed)
    checkpoint = killed / "vit.safetensors.checkpoint"
    read = Checkpoint(checkpoint, "keys").read
    while process.poll() is None and ((found := read()) is None or found[1]["step"] < 120):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "vit.safetensors").exists()
    for folder in (killed, whole):
        process = begin(folder)
        said = process.communicate()[1]
        assert process.returncode == 0, said
        assert ("going on after step" in said) == (folder == killed)
        assert not (folder / checkpoint.name).exists()
    for product in ("vit.safetensors", "vit.history.json", "vit.json"):
        assert (killed / product).read_bytes() == (whole / product).read_bytes()


def test_random_init_is_where_the_trained_twins_started(scenes: Any) -> None:
    untrained = train(_config("none", seed=3), EASY, *scenes)
    assert untrained.history == []
    assert not any(name.startswith("head") for name in untrained.weights)
    still = train(_config("objects", seed=3, learning_rate=1e-30, steps=2), EASY, *scenes)
    for name, value in untrained.weights.items():
        torch.testing.assert_close(still.weights[name], value, rtol=0, atol=1e-20)


def test_initialisation_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    vit = build(Architecture(), 96, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    x = torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    assert vit.tokens(x).shape == (4, 65, 96)
    assert float(vit(x).detach().std()) == pytest.approx(1, abs=0.05)


def test_divergence_is_reported(scenes: Any) -> None:
    with pytest.raises(ModelError, match=r"diverged at step \d+(.|\n)*learning_rate"):
        train(_config(learning_rate=1e30, steps=50), EASY, *scenes)


def test_vit_agrees_with_a_written_out_forward_pass() -> None:
    """Norms, heads, residuals and patch order against plain tensor algebra in float64."""
    config = Architecture.model_validate(TINY)
    vit = build(config, 24, torch.Generator().manual_seed(0)).double()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in vit.parameters():  # biases and norms that do something
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    pixels = torch.randn(2, 3, 24, 24, generator=rng, dtype=torch.float64)
    w = dict(vit.named_parameters())

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    corners = [(top, left) for top in (0, 8, 16) for left in (0, 8, 16)]
    squares = [pixels[:, :, top : top + 8, left : left + 8] for top, left in corners]
    patches = torch.stack([linear(square.flatten(1), "embed") for square in squares], dim=1)
    x = torch.cat([w["cls"].expand(2, 1, 32), patches], 1) + w["positions"]
    for i in range(2):
        h = norm(x, f"blocks.{i}.norm1")
        query = linear(h, f"blocks.{i}.attention.query")
        key, value = linear(h, f"blocks.{i}.attention.key_value").split(32, dim=-1)
        heads = []
        for s in (slice(0, 16), slice(16, 32)):
            attention = (query[..., s] @ key[..., s].mT / 4).softmax(-1)
            heads.append(attention @ value[..., s])
        x = x + linear(torch.cat(heads, -1), f"blocks.{i}.attention.out")
        h = linear(norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.expand")
        x = x + linear(0.5 * h * (1 + torch.erf(h / 2**0.5)), f"blocks.{i}.out")
    expected = norm(x, "norm")
    torch.testing.assert_close(vit(pixels), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(vit.final_cls(pixels), expected[:, 0], rtol=1e-9, atol=1e-9)


def test_final_cls_has_the_gradients_of_the_whole_forward_pass() -> None:
    vit = build(Architecture.model_validate(TINY), 24, torch.Generator().manual_seed(0)).double()
    pixels = torch.randn(2, 3, 24, 24, dtype=torch.float64)
    gradients = []
    for cls in (vit(pixels)[:, 0], vit.final_cls(pixels)):
        vit.zero_grad()
        cls.pow(3).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in vit.parameters()])
    for whole, short in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, short, rtol=1e-9, atol=1e-12)


def test_frozen_model_keeps_the_protocol(frozen: FrozenViT, scenes: Any) -> None:
    assert isinstance(frozen, Model)
    assert (frozen.n_layers, frozen.dim) == (2, 32)
    tokens = frozen.token_map
    assert (tokens.prefix, tokens.registers, tokens.grid, tokens.patch_px, tokens.has_cls) == (
        1, 0, (4, 4), 8, True,
    )  # fmt: skip
    pixels = frozen.preprocess(scenes[0]["val"][:5])
    expected = torch.from_numpy(scenes[0]["val"][:5]).permute(0, 3, 1, 2) / 127.5 - 1
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-6)
    layers = list(frozen.residual_stream(pixels, ["final", 2, 0, 1]))
    assert [layer for layer, _ in layers] == [0, 1, 2, "final"]
    assert all(values.shape == (5, 17, 32) for _, values in layers)
    assert not layers[-1][1].requires_grad


def test_stream_is_the_modules_own_forward_pass(frozen: FrozenViT, scenes: Any) -> None:
    pixels = frozen.preprocess(scenes[0]["val"])
    stream = dict(frozen.residual_stream(pixels, [0, 2, "final"]))
    vit = frozen.forward
    assert isinstance(vit, ViT)
    torch.testing.assert_close(stream[0], vit.tokens(pixels), rtol=0, atol=0)
    torch.testing.assert_close(vit.norm(stream[2]), vit(pixels), rtol=0, atol=0)
    torch.testing.assert_close(stream["final"], vit(pixels), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("layers", "expected"), [([0], 0), ([1], 1), ([0, 2], 2), (["final"], 2), ([], 0)]
)
def test_no_block_runs_beyond_the_deepest_layer(
    frozen: FrozenViT, scenes: Any, layers: list[Any], expected: int
) -> None:
    vit = frozen.forward
    assert isinstance(vit, ViT)
    calls = []
    for block in vit.blocks:
        block.attention.register_forward_hook(lambda *_: calls.append(1))
    pixels = frozen.preprocess(scenes[0]["val"][:2])
    assert [layer for layer, _ in frozen.residual_stream(pixels, layers)] == layers
    assert len(calls) == expected


def test_layers_that_do_not_exist_are_refused(frozen: FrozenViT) -> None:
    with pytest.raises(ModelError, match="there is no layer 3"):
        list(frozen.residual_stream(torch.zeros(1, 3, 32, 32), [3]))


def test_products_on_disk(scenes: Any, tmp_path: Path) -> None:
    trained = train(_config(), EASY, *scenes)
    manifest = json.loads(_write(trained, tmp_path).read_text())
    assert manifest["weights"] == "vit.safetensors"
    assert manifest["input_px"] == 32
    on_disk = load_file(tmp_path / "vit.safetensors")
    assert on_disk.keys() == trained.weights.keys()
    assert json.loads((tmp_path / "vit.history.json").read_text()) == trained.history


def test_damaged_missing_and_foreign_weights_are_refused(scenes: Any, tmp_path: Path) -> None:
    manifest = _write(train(_config("none"), EASY, *scenes), tmp_path)
    wide = _config("none").model_copy(update={"architecture": Architecture(patch_px=8, width=64)})
    with pytest.raises(ModelError, match="of another architecture"):
        load(wide, manifest, CPU)
    weights = tmp_path / "vit.safetensors"
    content = bytearray(weights.read_bytes())
    content[-7] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, match=r"not what its manifest describes(.|\n)*--forcerun"):
        load(_config("none"), manifest, CPU)
    weights.unlink()
    with pytest.raises(ModelError, match="is missing"):
        load(_config("none"), manifest, CPU)
    with pytest.raises(ModelError, match="its weights are not there"):
        load(_config("none"), None, CPU)


def test_patches_must_divide_the_image() -> None:
    with pytest.raises(ModelError, match="20 px is not a whole number of patches of 8 px"):
        build(Architecture.model_validate(TINY), 20, torch.Generator())


def test_other_image_sizes_are_resized(frozen: FrozenViT) -> None:
    assert frozen.preprocess(np.zeros((2, 48, 48, 3), np.uint8)).shape == (2, 3, 32, 32)
    values = transform(24)(np.full((1, 24, 24, 3), 255, np.uint8), CPU, "here")
    assert float(values.min()) == float(values.max()) == pytest.approx(1)


def test_position_embeddings_are_interpolated() -> None:
    rng = torch.Generator().manual_seed(0)
    positions = torch.randn(1, 1 + 16, 3, generator=rng)
    assert resized_positions(positions, 4) is positions
    larger = resized_positions(positions, 8)
    assert larger.shape == (1, 65, 3)
    torch.testing.assert_close(larger[:, 0], positions[:, 0], rtol=0, atol=0)
    # A plane that rises along columns: bicubic interpolation keeps it away from the border.
    ramp = torch.arange(8.0).repeat(8).view(1, 64, 1)
    found = resized_positions(torch.cat([torch.zeros(1, 1, 1), ramp], 1), 16)[0, 1:, 0].view(16, 16)
    expected = (torch.arange(16) + 0.5) / 2 - 0.5
    torch.testing.assert_close(found[:, 4:12], expected[4:12].expand(16, 8), rtol=0, atol=1e-5)


def test_a_model_runs_at_another_input_size(scenes: Any, tmp_path: Path) -> None:
    config = _config()
    manifest = _write(train(config, EASY, *scenes), tmp_path)
    usual = load(config, manifest, CPU)
    larger = load(config.model_copy(update={"input_px": 64}), manifest, CPU)
    assert (larger.token_map.grid, larger.token_map.patch_px) == ((8, 8), 8)
    assert larger.weights_sha256 == usual.weights_sha256
    pixels = larger.preprocess(scenes[0]["val"][:4])
    assert pixels.shape == (4, 3, 64, 64)
    ((_, tokens),) = larger.residual_stream(pixels, [0])
    ((_, before),) = usual.residual_stream(usual.preprocess(scenes[0]["val"][:4]), [0])
    torch.testing.assert_close(tokens[:, 0], before[:, 0], rtol=0, atol=0)  # [CLS] and its place
    vit = larger.forward
    assert isinstance(vit, ViT)
    torch.testing.assert_close(
        vit.positions, resized_positions(usual.forward.positions, 8), rtol=0, atol=0
    )
    with pytest.raises(ModelError, match="set `input_px: 56` or `input_px: 64`"):
        load(config.model_copy(update={"input_px": 60}), manifest, CPU)


def test_training_at_another_size_resizes_the_scenes(scenes: Any, tmp_path: Path) -> None:
    config = _config(input_px=16)
    frozen = load(config, _write(train(config, EASY, *scenes), tmp_path), CPU)
    assert frozen.token_map.grid == (2, 2)
    assert frozen.preprocess(scenes[0]["val"][:2]).shape == (2, 3, 16, 16)
