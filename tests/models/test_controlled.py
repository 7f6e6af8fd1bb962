"""Controlled models: the transformer, and the frozen model made of trained weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import EASY, TINY, configured, trained, write

from bindscope.codes.sampling import sample_codes
from bindscope.config.training import Architecture
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Model
from bindscope.models.controlled import load
from bindscope.models.stream import FrozenViT
from bindscope.models.training import untrained
from bindscope.models.vit import ViT, build, resized_positions
from bindscope.scenes.render import render_scenes

CPU = torch.device("cpu")
Images = np.ndarray


@pytest.fixture(scope="module")
def images() -> Images:
    return render_scenes(EASY, "val", 0, sample_codes(EASY, "val", 0, 64))["images"]


@pytest.fixture
def frozen(tmp_path: Path) -> FrozenViT:
    return load(configured(), write(trained(configured()), tmp_path), CPU)


def test_initialisation_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    vit = build(Architecture(), 96, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())
    x = torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    assert vit.tokens(x).shape == (4, 65, 96)
    assert float(vit(x).detach().std()) == pytest.approx(1, abs=0.05)


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

    corners = [(row, column) for row in (0, 8, 16) for column in (0, 8, 16)]
    squares = [pixels[:, :, row : row + 8, column : column + 8] for row, column in corners]
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


def test_frozen_model_keeps_the_protocol(frozen: FrozenViT, images: Images) -> None:
    assert isinstance(frozen, Model)
    assert (frozen.n_layers, frozen.dim) == (2, 32)
    tokens = frozen.token_map
    assert (tokens.prefix, tokens.registers, tokens.grid, tokens.patch_px, tokens.has_cls) == (
        1,
        0,
        (4, 4),
        8,
        True,
    )
    pixels = frozen.preprocess(images[:5])
    expected = torch.from_numpy(images[:5]).permute(0, 3, 1, 2) / 127.5 - 1
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-6)
    layers = list(frozen.residual_stream(pixels, ["final", 2, 0, 1]))
    assert [layer for layer, _ in layers] == [0, 1, 2, "final"]
    assert all(values.shape == (5, 17, 32) for _, values in layers)
    assert not layers[-1][1].requires_grad


def test_damaged_missing_and_foreign_weights_are_refused(tmp_path: Path) -> None:
    manifest = write(untrained(configured("none"), EASY), tmp_path)
    wide = configured("none").model_copy(
        update={"architecture": Architecture(patch_px=8, width=64)}
    )
    with pytest.raises(ModelError, match="of another architecture"):
        load(wide, manifest, CPU)
    weights = tmp_path / "vit.safetensors"
    content = bytearray(weights.read_bytes())
    content[-7] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, match=r"not what its manifest describes(.|\n)*--forcerun"):
        load(configured("none"), manifest, CPU)
    weights.unlink()
    with pytest.raises(ModelError, match="is missing"):
        load(configured("none"), manifest, CPU)
    with pytest.raises(ModelError, match="its weights are not there"):
        load(configured("none"), None, CPU)


def test_position_embeddings_are_interpolated() -> None:
    rng = torch.Generator().manual_seed(0)
    positions = torch.randn(1, 1 + 16, 3, generator=rng)
    assert resized_positions(positions, 4) is positions
    larger = resized_positions(positions, 8)
    assert larger.shape == (1, 65, 3)
    torch.testing.assert_close(larger[:, 0], positions[:, 0], rtol=0, atol=0)
    # A plane that rises along columns: bicubic interpolation keeps it away from the border.
    ramp = torch.arange(8.0).repeat(8).view(1, 64, 1)
    resized = resized_positions(torch.cat([torch.zeros(1, 1, 1), ramp], 1), 16)[0, 1:, 0].view(
        16, 16
    )
    expected = (torch.arange(16) + 0.5) / 2 - 0.5
    torch.testing.assert_close(resized[:, 4:12], expected[4:12].expand(16, 8), rtol=0, atol=1e-5)


def test_a_model_runs_at_another_input_size(images: Images, tmp_path: Path) -> None:
    config = configured()
    manifest = write(trained(config), tmp_path)
    usual = load(config, manifest, CPU)
    larger = load(config.model_copy(update={"input_px": 64}), manifest, CPU)
    assert (larger.token_map.grid, larger.token_map.patch_px) == ((8, 8), 8)
    assert larger.weights_sha256 == usual.weights_sha256
    pixels = larger.preprocess(images[:4])
    assert pixels.shape == (4, 3, 64, 64)
    ((_, tokens),) = larger.residual_stream(pixels, [0])
    ((_, before),) = usual.residual_stream(usual.preprocess(images[:4]), [0])
    torch.testing.assert_close(tokens[:, 0], before[:, 0], rtol=0, atol=0)  # [CLS] and its place
    vit = larger.forward
    assert isinstance(vit, ViT)
    torch.testing.assert_close(
        vit.positions, resized_positions(usual.forward.positions, 8), rtol=0, atol=0
    )
    with pytest.raises(ModelError, match="set `input_px: 56` or `input_px: 64`"):
        load(config.model_copy(update={"input_px": 60}), manifest, CPU)


def test_patches_must_divide_the_image() -> None:
    with pytest.raises(ModelError, match="20 px is not a whole number of patches of 8 px"):
        build(Architecture.model_validate(TINY), 20, torch.Generator())
