"""The transformers adapter against transformers' own forward passes and processors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_towers import KINDS, OVERRIDES, WITHOUT_CLS, library_forward, library_model
from torch import nn

from bindscope.config.models import Pretrained
from bindscope.core.errors import ModelError
from bindscope.models.hf_adapter import FAMILIES
from bindscope.models.loading import load_model
from bindscope.testing import check_model

PIN = "@" + "0" * 40


def configuration(kind: str, **changes: Any) -> Pretrained:
    fields: dict[str, Any] = {
        "name": "tiny",
        "source": "hf:some/model" + PIN,
        "n_layers": 3,
        "pretrained": False,
        "seed": 7,
        "overrides": {"model_type": kind, **OVERRIDES[kind]},
    }
    return Pretrained(**{**fields, **changes})


def local(folder: Path, **changes: Any) -> Pretrained:
    return Pretrained(**{"name": "tiny", "source": f"hf:path:{folder}", "n_layers": 3, **changes})


def scenes(side: int = 32, n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("px", [32, 48])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_equals_the_librarys_bit_for_bit(kind: str, px: int) -> None:
    model = load_model(configuration(kind, input_px=px), None, "cpu")
    pixels = model.preprocess(scenes(px))
    theirs = library_forward(kind, library_model(kind), pixels)
    ours = dict(model.residual_stream(pixels, [0, 1, 2, 3, "final"]))

    assert len(theirs.hidden_states) == 4
    for layer, hidden in enumerate(theirs.hidden_states):
        assert torch.equal(ours[layer], hidden), layer
    if kind == "clip_vision_model":  # the library's last hidden state is before its final norm
        assert torch.equal(ours[3], theirs.last_hidden_state)
        assert torch.allclose(ours["final"][:, 0], theirs.pooler_output, rtol=0, atol=1e-6)
    else:
        assert torch.equal(ours["final"], theirs.last_hidden_state)
    assert not torch.equal(ours[3], ours["final"])

    tokens, has_cls = model.token_map, "siglip" not in kind
    registers = 3 if kind == "dinov2_with_registers" else 0
    assert (tokens.grid, tokens.patch_px) == ((px // 8, px // 8), 8)
    assert (tokens.prefix, tokens.registers) == (registers + has_cls, registers)
    assert tokens.has_cls is has_cls


def by_hooks(kind: str, model: Any, pixels: torch.Tensor) -> dict[Any, torch.Tensor]:
    """Return what enters the first block, and what each block gives, in the library's own pass."""
    layers: dict[Any, torch.Tensor] = {}
    blocks = model.get_submodule(FAMILIES[kind].blocks)
    blocks[0].register_forward_pre_hook(lambda m, inputs: layers.update({0: inputs[0].clone()}))
    for number, block in enumerate(blocks, start=1):
        block.register_forward_hook(
            lambda m, inputs, out, n=number: layers.update(
                {n: (out if isinstance(out, torch.Tensor) else out[0]).clone()}
            )
        )
    inputs: dict[str, Any] = {"pixel_values": pixels}
    if kind not in ("dinov3_vit", "aimv2_vision_model"):
        inputs["interpolate_pos_encoding"] = pixels.shape[-1] != 32
    layers["final"] = model(**inputs).last_hidden_state
    if kind == "metaclip_2_vision_model":
        layers["final"] = model.post_layernorm(layers["final"])
    return layers


@torch.no_grad()
@pytest.mark.parametrize("px", [32, 48])
@pytest.mark.parametrize("kind", sorted({*OVERRIDES} - {*KINDS}))
def test_every_layer_equals_what_hooks_capture(kind: str, px: int) -> None:
    if (kind, px) == ("aimv2_vision_model", 48):
        with pytest.raises(ModelError, match="are for 32 px only"):
            load_model(configuration(kind, input_px=px), None, "cpu")
        return
    model: Any = load_model(configuration(kind, input_px=px), None, "cpu")
    pixels = model.preprocess(scenes(px))
    expected = by_hooks(kind, library_model(kind), pixels)
    ours = dict(model.residual_stream(pixels, [0, 1, 2, 3, "final"]))
    assert set(expected) == set(ours)
    assert all(torch.equal(ours[layer], tokens) for layer, tokens in expected.items())
    tokens, registers = model.token_map, 3 if kind == "dinov3_vit" else 0
    has_cls, distilled = kind not in WITHOUT_CLS, int(kind == "deit")
    assert (tokens.prefix, tokens.registers) == (has_cls + distilled + registers, registers)
    assert (tokens.grid, tokens.has_cls) == ((px // 8, px // 8), has_cls)
    check_model(model, resized=px != 32)
    weights = dict(model.attention(pixels, [3]))[3].weights()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_a_siglip_whose_input_is_no_whole_number_of_patches() -> None:
    """As so400m at 384 px: the library drops the last pixels, and labels would not."""
    larger = {
        "model_type": "siglip_vision_model",
        **OVERRIDES["siglip_vision_model"],
        "image_size": 36,
    }
    with pytest.raises(ModelError, match=r"36 px is not a whole(.|\n)*`input_px: 32`"):
        load_model(configuration("siglip_vision_model", overrides=larger), None, "cpu")
    config = configuration("siglip_vision_model", overrides=larger, input_px=32)
    model: Any = load_model(config, None, "cpu")
    pixels = model.preprocess(scenes())
    ((_, ours),) = model.residual_stream(pixels, ["final"])
    padded = torch.nn.functional.pad(pixels, (0, 4, 0, 4))
    with torch.no_grad():
        assert torch.equal(ours, model.network(pixel_values=padded).last_hidden_state)


def test_the_tower_inside_of_a_vision_language_model(tmp_path: Path) -> None:
    import transformers

    tower = {**OVERRIDES["clip_vision_model"], "model_type": "clip_vision_model"}
    small = {
        "model_type": "llama",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "vocab_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = transformers.LlavaConfig(vision_config=tower, text_config=small)
    whole = transformers.LlavaForConditionalGeneration(config)
    whole.save_pretrained(tmp_path / "whole")
    with pytest.raises(
        ModelError, match=r"inside of a model of type 'llava'(.|\n)*save_pretrained"
    ):
        load_model(local(tmp_path / "whole"), None, "cpu")
    whole.model.vision_tower.save_pretrained(tmp_path / "tower")
    model: Any = load_model(local(tmp_path / "tower"), None, "cpu")
    pixels = model.preprocess(scenes())
    ((_, ours),) = model.residual_stream(pixels, [3])
    with torch.no_grad():
        theirs = whole.eval().model.vision_tower(pixel_values=pixels).last_hidden_state
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip2_vision_model", "vit", "vit_mae"])
def test_attention_is_the_librarys_eager_one(kind: str) -> None:
    model = load_model(configuration(kind), None, "cpu")
    pixels = model.preprocess(scenes(n=2))
    library = library_model(kind)
    library.set_attn_implementation("eager")
    expected: list[torch.Tensor] = []
    for name, module in library.named_modules():
        if name.endswith(("attention", "self_attn")) and "head" not in name:
            module.register_forward_hook(lambda m, i, output: expected.append(output[1]))
    with torch.no_grad():
        library_forward(kind, library, pixels)
    attention = dict(model.attention(pixels, [3, 1, 2]))
    assert list(attention) == [1, 2, 3]
    assert len(expected) == 3
    for block, maps in zip(attention, expected, strict=True):
        weights = attention[block].weights()
        n = model.token_map.n_tokens
        assert weights.shape == maps.shape == (2, 2, n, n)
        torch.testing.assert_close(weights, maps, rtol=0, atol=1e-5)
    assert not torch.allclose(expected[0], expected[1], atol=1e-2)


def decoded_share(tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of labels (n, T) that a ridge fit on half of the images reads off tokens (n, T, d)."""
    half = len(tokens) // 2
    x = torch.cat([tokens, torch.ones_like(tokens[..., :1])], dim=-1).double()
    train, test = x[:half].flatten(0, 1), x[half:].flatten(0, 1)
    targets = nn.functional.one_hot(labels[:half].flatten(), 4).double()
    gram = train.T @ train + 1e-3 * torch.eye(train.shape[1], dtype=torch.float64)
    guessed = (test @ torch.linalg.solve(gram, train.T @ targets)).argmax(dim=-1)
    return float((guessed == labels[half:].flatten()).double().mean())


@pytest.mark.parametrize("layer", [0, 3])
def test_maes_tokens_carry_the_labels_of_their_own_patches(layer: int) -> None:
    """Every patch is one of four colors, and a linear map of its own token says which.

    The released code of the IsSameObject paper takes MAE's tokens as the library gives them,
    shuffled in each image: labels are at the wrong tokens then.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, (120, 4, 4))
    palette = rng.integers(0, 256, (4, 3), dtype=np.uint8)
    pictures = palette[labels].repeat(8, axis=1).repeat(8, axis=2)
    model = load_model(configuration("vit_mae"), None, "cpu")
    pixels = model.preprocess(pictures)
    ((_, stream),) = model.residual_stream(pixels, [layer])
    tokens = stream[:, model.token_map.patches]
    planted = torch.from_numpy(labels).reshape(120, 16)
    assert decoded_share(tokens, planted) > 0.95
    for shift in (1, 4):  # a column, a row
        assert decoded_share(tokens, planted.roll(shift, dims=1)) < 0.4

    library = library_model("vit_mae")
    torch.manual_seed(0)
    hidden = library(pixel_values=pixels, output_hidden_states=True).hidden_states[layer]
    assert hidden.shape[1] == 17  # nothing is masked, and still
    assert decoded_share(hidden[:, 1:], planted) < 0.4


@pytest.mark.parametrize(
    ("whole", "kind"),
    [
        ("CLIPModel", "clip_vision_model"),
        ("SiglipModel", "siglip_vision_model"),
        ("ViTForImageClassification", "vit"),
        ("ViTMAEForPreTraining", "vit_mae"),
        ("Dinov2ForImageClassification", "dinov2"),
        ("MetaClip2Model", "metaclip_2_vision_model"),
    ],
)
def test_towers_of_saved_checkpoints(whole: str, kind: str, tmp_path: Path) -> None:
    """Checkpoints hold more than the tower, under other names, in half precision and in shards."""
    import transformers

    torch.manual_seed(1)
    if kind.endswith("_vision_model"):
        small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.AutoConfig.for_model(
            kind.removesuffix("_vision_model"), vision_config=OVERRIDES[kind], text_config=small
        )
    else:
        config = transformers.AutoConfig.for_model(kind, **OVERRIDES[kind])
    full = getattr(transformers, whole)(config).half()
    full.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = load_model(local(tmp_path), None, "cpu")

    pixels = model.preprocess(scenes())
    full.float().eval()
    tower = next(
        getattr(full, name) for name in ("vision_model", "vit", "dinov2") if hasattr(full, name)
    )
    tower.config.mask_ratio = 0.0
    with torch.no_grad():
        hidden = library_forward(kind, tower, pixels).hidden_states
    for layer, tokens in model.residual_stream(pixels, [0, 1, 2, 3]):
        assert torch.equal(tokens, hidden[layer]), layer
    assert model.revision.startswith("local files, content ")
    assert len(model.weights_sha256) == 64


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    library = library_model("dinov2")
    library.config.quantization_config = {"quant_method": "bitsandbytes"}
    library.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"its weights are quantized \(bitsandbytes\)"):
        load_model(local(tmp_path), None, "cpu")


def test_missing_weights_are_an_error_not_a_random_layer(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    library_model("vit").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    dropped = sorted(name for name in state if ".1." in name)[0]
    save_file({k: v for k, v in state.items() if k != dropped}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="1 weights are missing from the files"):
        load_model(local(tmp_path), None, "cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_px": 30}, "30 px is not a whole number of patches of 8 px(.|\n)*input_px: 24"),
        ({"n_layers": 4}, "3 blocks, the configuration says 4(.|\n)*set `n_layers: 3`"),
        ({"overrides": {"model_type": "bert"}}, "'bert' are not supported(.|\n)*dinov2"),
        (
            {"overrides": {"model_type": "vit", **OVERRIDES["vit"], "num_channels": 4}},
            "reads images of 4 channels, not 3",
        ),
        (
            {"overrides": {"model_type": "vit", **OVERRIDES["vit"], "image_size": [32, 48]}},
            r"its image_size is \[32, 48\], not a square",
        ),
    ],
)
def test_errors_name_the_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(configuration("vit", **changes), None, "cpu")


# --- preprocessing ---------------------------------------------------------------------------

PROCESSORS: list[tuple[str, str, dict[str, Any]]] = [
    ("vit", "ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
    (
        "clip_vision_model",
        "CLIPImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}},
    ),
    ("siglip_vision_model", "SiglipImageProcessor", {"size": {"height": 32, "width": 32}}),
    (
        "dinov2",
        "BitImageProcessor",
        {
            "size": {"height": 32, "width": 32},
            "do_center_crop": False,
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
    ),
    ("deit", "DeiTImageProcessor", {"size": {"height": 32, "width": 32}, "do_center_crop": False}),
    ("beit", "BeitImageProcessor", {"size": {"height": 32, "width": 32}, "do_center_crop": False}),
    ("dinov3_vit", "DINOv3ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
    (
        "vit_mae",
        "ViTImageProcessor",
        {"size": {"height": 32, "width": 32}, "resample": 3, "do_normalize": False},
    ),
]


@pytest.mark.parametrize("side", [32, 47])
@pytest.mark.parametrize(("kind", "processor", "options"), PROCESSORS)
def test_preprocessing_equals_the_librarys(
    kind: str, processor: str, options: dict[str, Any], side: int, tmp_path: Path
) -> None:
    """Within 1e-6: the resize is the same on uint8, normalising differs in the last bit.

    DINOv3's does not round to gray levels after it resizes.
    """
    import transformers

    theirs = getattr(transformers, processor)(**options)
    theirs.save_pretrained(tmp_path)
    library_model(kind).save_pretrained(tmp_path)
    model = load_model(local(tmp_path), None, "cpu")
    images = scenes(side)
    expected = theirs(images=list(images), return_tensors="pt").pixel_values
    ours = model.preprocess(images)
    assert ours.dtype == torch.float32
    assert ours.shape == (3, 3, 32, 32)
    rounded = kind == "dinov3_vit" and side != 32
    assert torch.allclose(ours, expected, rtol=0, atol=1 / 255 / 0.224 if rounded else 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_rescale": False}, "`do_rescale: false`(.|\n)*a function of your own"),
        ({"do_resize": False}, "`do_resize: false`"),
        ({"image_mean": [0.5]}, "image_mean of its preprocessor has 1 values, not 3"),
        ({"rescale_factor": 1 / 127.5}, "scales by"),
    ],
)
def test_preprocessors_that_do_something_else_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    library_model("vit").save_pretrained(tmp_path)
    processor = {"size": {"height": 32, "width": 32}, **changes}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ModelError, match=message):
        load_model(local(tmp_path), None, "cpu")


def test_one_number_is_that_of_all_channels(tmp_path: Path) -> None:
    library_model("vit").save_pretrained(tmp_path)
    processor = {"image_mean": 0.5, "image_std": 0.25, "size": 32}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    model = load_model(local(tmp_path), None, "cpu")
    white = np.full((1, 32, 32, 3), 255, dtype=np.uint8)
    torch.testing.assert_close(model.preprocess(white), torch.full((1, 3, 32, 32), 2.0))


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path) -> None:
    library = library_model("vit")
    next(library.layers[1].parameters()).data[0] = float("nan")
    library.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is not finite(.|\n)*NaN"):
        load_model(local(tmp_path), None, "cpu")


def test_siglip2_reads_what_its_processor_gives() -> None:
    import transformers

    processor = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    images = scenes(50)
    inputs = processor(images=list(images), return_tensors="pt")
    library = library_model("siglip2_vision_model")
    theirs = library(**inputs).last_hidden_state
    model = load_model(configuration("siglip2_vision_model"), None, "cpu")
    ((_, ours),) = model.residual_stream(model.preprocess(images), ["final"])
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_own_size_is_the_preprocessors_not_the_position_embeddings(tmp_path: Path) -> None:
    """DINOv2: position embeddings for 518 px, preprocessor 256 px cropped to 224 px."""
    library_model("dinov2").save_pretrained(tmp_path)
    settings = {
        "do_center_crop": True,
        "crop_size": {"height": 24, "width": 24},
        "resample": 3,
        "size": {"shortest_edge": 28},
        "image_mean": [0.5, 0.5, 0.5],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    model = load_model(local(tmp_path), None, "cpu")
    assert model.token_map.grid == (3, 3)
    white = np.full((1, 28, 28, 3), 255, dtype=np.uint8)
    assert model.preprocess(white).shape == (1, 3, 24, 24)
    assert torch.allclose(model.preprocess(white)[0, 0], torch.tensor(0.5 / 0.229))


def test_whole_images_are_resized_not_cropped() -> None:
    model = load_model(configuration("clip_vision_model"), None, "cpu")
    image = np.zeros((1, 40, 80, 3), dtype=np.uint8)
    image[:, :, :4] = 255  # a bar at the left edge that a centre crop would lose
    pixels = model.preprocess(image)[0, 0]
    assert pixels[:, 0].min() > pixels[:, 5:].max() + 1


@pytest.mark.parametrize("images", [np.zeros((2, 8, 8, 3)), np.zeros((1, 3, 8, 8), np.uint8)])
def test_images_of_another_kind_are_refused(images: np.ndarray) -> None:
    model = load_model(configuration("vit"), None, "cpu")
    with pytest.raises(ModelError, match=r"not uint8 \(B, H, W, 3\)"):
        model.preprocess(images)


def test_check_finds_a_model_that_does_more_than_its_blocks() -> None:
    model: Any = load_model(configuration("vit"), None, "cpu")
    model.norm = nn.Identity()
    with pytest.raises(ModelError, match="differs from the library's own forward pass"):
        model.check()
