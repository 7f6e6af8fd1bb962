"""The timm adapter against timm's own forward passes, and the torchvision cure it needs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bindscope.config.models import Pretrained
from bindscope.core import workarounds
from bindscope.core.errors import ModelError
from bindscope.models.loading import load_model
from bindscope.testing import check_model

workarounds.declare_torchvision_operators()
import timm  # noqa: E402  (after the cure)

_NARROW = {"depth": 3, "embed_dim": 32, "num_heads": 2}
_TINY = {**_NARROW, "img_size": 32}
# name, overrides, prefix, registers, [CLS], patch
MODELS: list[tuple[str, dict[str, Any], int, int, bool, int]] = [
    ("vit_tiny_patch16_224", {**_TINY, "reg_tokens": 4}, 5, 4, True, 16),
    ("vit_base_patch16_siglip_224", _TINY, 0, 0, False, 16),
    ("vit_base_patch16_clip_224", _TINY, 1, 0, True, 16),
    ("deit_tiny_distilled_patch16_224", _TINY, 2, 0, True, 16),
    ("vit_small_patch14_dinov2", {**_TINY, "img_size": 28}, 1, 0, True, 14),
    ("vit_small_patch16_dinov3", {**_TINY, "embed_dim": 64}, 5, 4, True, 16),
    ("vit_small_patch16_rope_mixed_224", {**_TINY, "embed_dim": 64}, 1, 0, True, 16),
    ("vit_medium_patch16_rope_reg1_gap_256", {**_TINY, "embed_dim": 64}, 1, 1, False, 16),
    ("eva02_tiny_patch14_224", {**_TINY, "img_size": 28}, 1, 0, True, 14),
    ("vit_relpos_small_patch16_224", _TINY, 0, 0, False, 16),
]
# Registers, rotary embeddings, relative positions.
OWN_ATTENTION = [
    model for model in MODELS if re.search("tiny_patch16_224|dinov3|eva02|relpos", model[0])
]


def configuration(name: str, overrides: dict[str, Any], **changes: Any) -> Pretrained:
    fields: dict[str, Any] = {
        "name": "tiny",
        "source": f"timm:{name}",
        "n_layers": 3,
        "pretrained": False,
        "seed": 7,
        "overrides": overrides,
    }
    return Pretrained(**{**fields, **changes})


def library_model(name: str, overrides: dict[str, Any]) -> Any:
    torch.manual_seed(7)
    return timm.create_model(name, pretrained=False, **overrides).eval().requires_grad_(False)


def scenes(side: int, n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("case", OWN_ATTENTION, ids=lambda case: case[0])
def test_attention_is_the_librarys_eager_one(case: Any) -> None:
    """Also with rotary embeddings, normed queries and relative positions."""
    name, overrides, *_ = case
    model = load_model(configuration(name, overrides), None, "cpu")
    eager = load_model(
        configuration(name, overrides, extraction={"attention": "eager"}), None, "cpu"
    )
    expected: list[torch.Tensor] = []
    for block in eager.blocks:
        block.attn.attn_drop.register_forward_hook(lambda m, i, output: expected.append(output))
    pixels = model.preprocess(scenes(32, 2))
    ((_, _),) = eager.residual_stream(pixels, [3])
    assert len(expected) == 3
    for block, attention in model.attention(pixels, [1, 2, 3]):
        torch.testing.assert_close(attention.weights(), expected[block - 1], rtol=0, atol=1e-5)
    if "relpos" in name:
        assert attention.bias is not None


@pytest.mark.parametrize(
    ("model", "factor"),
    [*((model, 1) for model in MODELS), *((model, 2) for model in OWN_ATTENTION)],
    ids=lambda value: value[0] if isinstance(value, tuple) else f"{value} x its size",
)
def test_every_layer_equals_timms_bit_for_bit(model: tuple[Any, ...], factor: int) -> None:
    name, overrides, prefix, registers, has_cls, patch = model
    entered: list[torch.Tensor] = []
    px = overrides["img_size"] * factor
    ours = load_model(configuration(name, overrides, input_px=px), None, "cpu")
    library = library_model(name, overrides)
    if factor == 2:
        library.set_input_size(img_size=(px, px))
    pixels = ours.preprocess(scenes(px))
    layers_read = dict(ours.residual_stream(pixels, ["final", 3, 2, 1, 0]))
    library.blocks[0].register_forward_pre_hook(
        lambda module, inputs: entered.append(inputs[0].clone())
    )

    assert list(layers_read) == [0, 1, 2, 3, "final"]
    assert torch.equal(layers_read["final"], library.forward_features(pixels))
    assert torch.equal(layers_read[0], entered[0])
    after_blocks = library.forward_intermediates(
        pixels,
        indices=3,
        output_fmt="NLC",
        intermediates_only=True,
        return_prefix_tokens=prefix > 0,
    )
    for layer, tokens in enumerate(after_blocks, start=1):
        patches, others = tokens if isinstance(tokens, tuple) else (tokens, None)
        assert torch.equal(layers_read[layer][:, prefix:], patches), layer
        assert others is None or torch.equal(layers_read[layer][:, :prefix], others), layer

    tokens = ours.token_map
    assert (tokens.prefix, tokens.registers, tokens.has_cls) == (prefix, registers, has_cls)
    assert tokens.grid == (px // patch, px // patch)
    assert tokens.patch_px == patch
    assert layers_read[0].shape == (3, tokens.n_tokens, ours.dim)


@pytest.mark.parametrize("side", [32, 47])
@pytest.mark.parametrize("case", MODELS[1:3], ids=lambda case: case[0])
def test_preprocessing_equals_timms_within_a_grey_level(case: Any, side: int) -> None:
    """Timm resizes with PIL; both work on uint8, so they differ by at most one grey level.

    SigLIP's mean equals its deviation, .5 in each channel; CLIP's numbers are all different.
    """
    name, overrides, *_ = case
    ours = load_model(configuration(name, overrides), None, "cpu")
    library = library_model(name, overrides)
    settings = timm.data.resolve_model_data_config(library)
    settings |= {"input_size": (3, 32, 32), "crop_pct": 1.0, "crop_mode": "squash"}
    theirs = timm.data.create_transform(**settings, is_training=False)
    images = scenes(side)
    expected = torch.stack([theirs(Image.fromarray(image)) for image in images])
    level = 1 / 255 / min(settings["std"])
    pixels = ours.preprocess(images)
    assert torch.allclose(pixels, expected, rtol=0, atol=(1.01 if side != 32 else 1e-4) * level)
    assert (pixels - expected).abs().mean() < 0.1 * level


def test_weights_from_a_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    library = library_model("test_vit", {}) if timm.is_model("test_vit") else None
    assert library is not None
    file = tmp_path / "weights.safetensors"
    save_file(library.state_dict(), file)
    fields = {"pretrained": True, "n_layers": len(library.blocks)}
    config = configuration("test_vit", {}, source=f"timm:test_vit:path:{file}", **fields)
    model = load_model(config, None, "cpu")
    pixels = model.preprocess(scenes(160, n=1))
    ((_, tokens),) = model.residual_stream(pixels, ["final"])
    assert torch.equal(tokens, library.forward_features(pixels))
    assert model.revision.startswith("local files, content ")

    tuned = library_model("test_vit", {"num_classes": 7})  # fine-tuned to other classes
    save_file(tuned.state_dict(), file)
    ((_, tokens),) = load_model(config, None, "cpu").residual_stream(pixels, ["final"])
    assert torch.equal(tokens, tuned.forward_features(pixels))

    wider = configuration(
        "test_vit", {}, **fields, input_px=176, source=f"timm:test_vit:path:{file}"
    )
    assert load_model(wider, None, "cpu").token_map.grid == (11, 11)

    mismatched = configuration("test_vit2", {}, **fields, source=f"timm:test_vit2:path:{file}")
    with pytest.raises(ModelError, match="are not those of test_vit2"):
        load_model(mismatched, None, "cpu")
    state = library.state_dict()
    del state["norm.bias"]
    save_file(state, file)
    with pytest.raises(ModelError, match="are not those of test_vit"):
        load_model(config, None, "cpu")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("no_such_model", {}, "no model 'no_such_model'"),
        ("vit_tiny_patch16_224", {"n_layers": 5}, "3 blocks, the configuration says 5"),
        ("swin_tiny_patch4_window7_224", {"overrides": {}}, "not a plain vision transformer"),
        ("cait_xxs24_224", {}, "tokens, but the token map counts"),
        # The stem reads 378 of 384 px: labels would cut the whole image into 27 rows.
        ("vit_so400m_patch14_siglip_384", {"overrides": _NARROW}, "384 px(.|\n)*`input_px: 378`"),
        ("vit_so400m_patch14_siglip_gap_384", {"overrides": _NARROW}, "`input_px: 378`"),
        ("vit_tiny_patch16_224", {"overrides": {**_TINY, "in_chans": 4}}, "of 4 channels, not 3"),
    ],
)
def test_errors_name_the_problem(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(configuration(name, **{"overrides": _TINY, **changes}), None, "cpu")


def test_a_size_that_the_stem_reads_whole() -> None:
    config = configuration("vit_so400m_patch14_siglip_384", _NARROW, input_px=378)
    assert load_model(config, None, "cpu").token_map.grid == (27, 27)


@pytest.mark.parametrize(
    ("name", "overrides", "warned"),
    [
        ("vitamin_small_224", {}, True),
        ("vit_tiny_r_s16_p8_224", {"depth": 2}, False),
    ],
)
def test_a_stem_that_looks_beside_its_patches_is_said(
    name: str, overrides: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    depth = len(library_model(name, overrides).blocks)
    with torch.no_grad():  # whatever the caller's mode is
        model = load_model(configuration(name, overrides, n_layers=depth), None, "cpu")
    assert ("-0.4" in caplog.text and "labels of patches are off" in caplog.text) is warned
    if not warned:  # of the other one that takes longer than all else
        check_model(model)


def test_weights_of_quick_gelu_are_refused_under_another_models_name() -> None:
    """Timm's own notes say which; each of them is there under the right name too."""
    refused = []
    for name in timm.list_models("*clip*", pretrained=True):
        config = configuration(name, {}, pretrained=True)
        with pytest.raises(ModelError) as error:  # at the latest because the weights are not here
            load_model(config, None, "cpu")
        if "QuickGELU" in error.value.problem:
            refused.append(name)
            right = error.value.remedy.removeprefix("use timm:")
            assert right in timm.list_models("*quickgelu*", pretrained=True)
    assert len(refused) >= 17
    assert "quickgelu" not in " ".join(refused)
    assert "vit_large_patch14_clip_224.openai" in refused
    assert "vit_base_patch16_clip_224.laion2b" not in refused


def test_the_cure_is_not_needed_with_cuda_or_working_operators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not workarounds.lacks_torchvision_operators(None)
    (tmp_path / "_C.so").touch()
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert workarounds.lacks_torchvision_operators(tmp_path)
    monkeypatch.setattr(torch.ops, "load_library", lambda _: None)
    assert not workarounds.lacks_torchvision_operators(tmp_path)
    monkeypatch.undo()
    for version in ("cuda", "hip"):
        monkeypatch.setattr(torch.version, version, "13.0")
        assert not workarounds.lacks_torchvision_operators(tmp_path)
        monkeypatch.undo()
