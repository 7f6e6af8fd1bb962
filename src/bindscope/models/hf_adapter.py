"""Vision towers of transformers: ViT, DeiT, BEiT, DINOv2 and 3, CLIP, SigLIP, MAE and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bindscope.config.models import Pretrained
from bindscope.core.errors import ModelError
from bindscope.core.files import read_json
from bindscope.models import images
from bindscope.models.base import TokenMap
from bindscope.models.stream import FrozenViT, freeze, state_sha256
from bindscope.models.weights import (
    LOCAL,
    UNREADABLE,
    Weights,
    parse_source,
    read_settings,
    refuse_quantized,
    resolve,
    unread,
)


@dataclass(frozen=True)
class TowerFamily:
    """An architecture of transformers: the model's class, and where its blocks and final norm are.

    `statistics` (mean and deviation of its input) and `mode` (interpolation) are for checkpoints
    without a preprocessor file. `run` is its own forward pass: (model, pixels, whether the input
    has another size than the model's own) to tokens after the final norm. `n_distilled` tokens
    stand between [CLS] and the registers; of what a block gives, the library takes the first
    element (`gives_tuples`).
    """

    model: str
    blocks: str
    norm: str
    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    mode: str
    has_cls: bool
    run: Callable[[Any, Tensor, bool], Tensor]
    n_distilled: int = 0
    gives_tuples: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def _plain(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    tokens: Tensor = model(pixel_values=pixels, interpolate_pos_encoding=resized).last_hidden_state
    return tokens


def _any_size(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    """Run DINOv2 or 3, whose positions always follow from the input's size."""
    tokens: Tensor = model(pixel_values=pixels).last_hidden_state
    return tokens


def _aimv2(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    """Run AIMv2; the library interpolates the position embeddings of none but native models."""
    if resized and not model.config.is_native:
        raise ModelError(
            "AIMv2",
            f"its position embeddings are for {model.config.image_size} px only",
            f"drop `input_px`, or set `input_px: {model.config.image_size}`",
        )
    tokens: Tensor = model(pixel_values=pixels).last_hidden_state
    return tokens


def _clip(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    """Run CLIP, and apply its final norm to all tokens (the library: to [CLS] only)."""
    tokens: Tensor = model.post_layernorm(_plain(model, pixels, resized))
    return tokens


def _mae(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    """Run MAE's encoder over every patch, in raster order.

    The library sorts patches by random numbers; rising ones leave them in place.
    """
    rows, columns = (side // model.config.patch_size for side in pixels.shape[2:])
    noise = torch.arange(rows * columns, dtype=torch.float32, device=pixels.device)
    tokens: Tensor = model(
        pixel_values=pixels, noise=noise.expand(len(pixels), -1), interpolate_pos_encoding=resized
    ).last_hidden_state
    return tokens


def _siglip2(model: Any, pixels: Tensor, resized: bool) -> Tensor:
    """Run a SigLIP 2 tower of variable resolution, which reads patches instead of images."""
    size, patch = len(pixels), model.config.patch_size
    rows, columns = (side // patch for side in pixels.shape[2:])
    patches = pixels.view(size, 3, rows, patch, columns, patch).permute(0, 2, 4, 3, 5, 1)
    shape = torch.tensor([[rows, columns]], device=pixels.device)
    tokens: Tensor = model(
        pixel_values=patches.reshape(size, rows * columns, -1),
        pixel_attention_mask=torch.ones(
            size, rows * columns, dtype=torch.int32, device=pixels.device
        ),
        spatial_shapes=shape.expand(size, -1),
    ).last_hidden_state
    return tokens


_VIT = TowerFamily(
    "ViTModel",
    "layers",
    "layernorm",
    images.HALF,
    "bilinear",
    True,
    _plain,
    options={"add_pooling_layer": False},
)
_BEIT = replace(_VIT, model="BeitModel", mode="bicubic")
_DINOV2 = TowerFamily(
    "Dinov2Model", "encoder.layer", "layernorm", images.IMAGENET, "bicubic", True, _any_size
)
_CLIP = TowerFamily(
    "CLIPVisionModel", "encoder.layers", "post_layernorm", images.CLIP, "bicubic", True, _clip
)
_SIGLIP = TowerFamily(
    "SiglipVisionModel", "encoder.layers", "post_layernorm", images.HALF, "bicubic", False, _plain
)
FAMILIES = {
    "vit": _VIT,
    "dinov2": _DINOV2,
    "dinov2_with_registers": replace(_DINOV2, model="Dinov2WithRegistersModel"),
    "dinov3_vit": TowerFamily(
        "DINOv3ViTModel", "model.layer", "norm", images.IMAGENET, "bilinear", True, _any_size
    ),
    "deit": replace(_BEIT, model="DeiTModel", statistics=images.IMAGENET, n_distilled=1),
    "beit": _BEIT,
    "data2vec-vision": replace(
        _BEIT, model="Data2VecVisionModel", blocks="encoder.layer", gives_tuples=True
    ),
    "ijepa": replace(_VIT, model="IJepaModel", statistics=images.IMAGENET, has_cls=False),
    "clip_vision_model": _CLIP,
    "metaclip_2_vision_model": replace(_CLIP, model="MetaClip2VisionModel"),
    "aimv2_vision_model": TowerFamily(
        "Aimv2VisionModel", "encoder.layers", "rms_norm", images.CLIP, "bicubic", False, _aimv2
    ),
    "siglip_vision_model": _SIGLIP,
    "siglip2_vision_model": replace(
        _SIGLIP, model="Siglip2VisionModel", mode="bilinear", run=_siglip2
    ),
    "vit_mae": TowerFamily(
        "ViTMAEModel", "layers", "layernorm", images.IMAGENET, "bicubic", True, _mae
    ),
}


# Types of checkpoints with a text tower too, whose vision tower is read.
WHOLE_FAMILIES = ("clip", "metaclip_2", "siglip", "siglip2", "aimv2")
TYPES = (*FAMILIES, *WHOLE_FAMILIES)
# Towers that vision-language models start from, by type, width and side of the input.
_RELEASED = {
    ("clip_vision_model", 1024, 336): "timm:vit_large_patch14_clip_quickgelu_336.openai",
    ("siglip_vision_model", 1152, 384): "timm:vit_so400m_patch14_siglip_384 with `input_px: 378`",
}


def load(
    config: Pretrained, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a vision tower of transformers (`bindscope.models.loading.load_model`).

    `overrides` are fields of the configuration class. ModelError if the architecture is not
    supported, the weights are missing or do not fit, or the input is not a whole number of patches.
    """
    where = f"model {config.name} ({config.source})"
    resolved = resolve(config, weights) if config.pretrained else None
    folder = resolved.folder if resolved else parse_source(config.source).path
    settings = _settings(config, folder, where)
    family = FAMILIES[settings.model_type]
    processor = _processor(folder)
    trained_px = _trained_px(settings, where)
    px = config.input_px or _own_px(settings, processor, where)
    patch = _side(settings.patch_size, "patch", where)
    as_released = config.preprocessing == "binding_problem"
    if not as_released:
        images.check_input_px(px, patch, where)
    model = _create(family, settings, config, resolved, where)
    digest = resolved.sha256 if resolved else state_sha256(model.state_dict())
    freeze(model, device)
    resized = px - px % patch != trained_px
    preprocessing = transform(processor, family, px, where)
    if as_released:
        preprocessing = images.as_in_binding_problem(preprocessing, patch)
    elif config.preprocessing == "same_object":
        preprocessing = images.as_in_same_object(preprocessing)

    def forward(pixels: Tensor) -> Tensor:
        return family.run(model, pixels, resized)

    return FrozenViT(
        where=where,
        forward=forward,
        network=model,
        blocks=list(model.get_submodule(family.blocks)),
        norm=model.get_submodule(family.norm),
        transform=preprocessing,
        token_map=_token_map(family, settings, px // patch, patch),
        dim=int(settings.hidden_size),
        revision=resolved.revision if resolved else f"random weights, seed {config.seed}",
        weights_sha256=digest,
        device=device,
        precision=config.extraction.precision,
        gives_tuples=family.gives_tuples,
    )


def transform(
    processor: Mapping[str, Any], family: TowerFamily, px: int, where: str
) -> images.Transform:
    """Return the transform that a checkpoint's preprocessor file describes, or the family's."""
    mean = _channels(processor.get("image_mean") or family.statistics[0], "image_mean", where)
    std = _channels(processor.get("image_std") or family.statistics[1], "image_std", where)
    if processor.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    for step in ("do_rescale", "do_resize"):
        if processor.get(step) is False:
            raise ModelError(
                where,
                f"its preprocessor has `{step}: false`, so its input has another range or "
                "size than that of images here",
                "if this is no mistake of the file, wrap the model in a function of your own "
                "(`source: python:<module>:<function>`)",
            )
    if abs(float(processor.get("rescale_factor", 1 / 255)) * 255 - 1) > 1e-6:
        raise ModelError(
            where,
            f"its preprocessor scales by {processor['rescale_factor']}, not by 1/255",
            "wrap the model in a function of your own (`source: python:<module>:<function>`)",
        )
    mode = images.interpolation(processor.get("resample", family.mode), where)
    return images.Transform(px, mode, mean, std)


def _channels(value: Any, what: str, where: str) -> tuple[float, ...]:
    """Return a statistic of three channels, which may be one number for all of them."""
    values = value if isinstance(value, list | tuple) else [value] * 3
    if len(values) != 3:
        raise ModelError(
            where,
            f"{what} of its preprocessor has {len(values)} values, not 3",
            "use a model of RGB images",
        )
    return tuple(float(number) for number in values)


def _settings(config: Pretrained, folder: Path | None, where: str) -> Any:
    """Return the configuration of the vision tower, with overrides, without any network."""
    try:
        settings, changes = read_settings(config.overrides, folder)
    except UNREADABLE as error:
        raise ModelError(
            where,
            f"transformers does not read its configuration ({unread(error)})",
            f"use one of {', '.join(TYPES)}",
        ) from error
    if hasattr(settings, "vision_config") and settings.model_type not in WHOLE_FAMILIES:
        raise _inside_of_another(settings, where)
    settings = getattr(settings, "vision_config", settings)
    unknown = sorted(key for key in changes if not hasattr(settings, key))
    if settings.model_type not in FAMILIES or unknown:
        raise ModelError(
            where,
            f"its configuration has no {unknown[0]!r}"
            if unknown
            else f"models of type {settings.model_type!r} are not supported",
            f"use one of {', '.join(TYPES)}, with the fields of its "
            "configuration class, or timm's model of the same weights",
        )
    for key, value in changes.items():
        setattr(settings, key, value)
    if settings.model_type == "vit_mae":
        settings.mask_ratio = 0.0
    if getattr(settings, "num_channels", 3) != 3:
        raise ModelError(
            where,
            f"it reads images of {settings.num_channels} channels, not 3",
            "use a model of RGB images",
        )
    return settings


def _inside_of_another(settings: Any, where: str) -> ModelError:
    """Say how to use the tower of a vision-language model."""
    tower = settings.vision_config
    kind = (tower.model_type, getattr(tower, "hidden_size", 0), getattr(tower, "image_size", 0))
    released = f"; if it was not fine-tuned, use {_RELEASED[kind]}" if kind in _RELEASED else ""
    return ModelError(
        where,
        f"the tower ({tower.model_type}) inside of a model of type "
        f"{settings.model_type!r} is not read from there",
        "save the tower (`model.model.vision_tower.save_pretrained(folder)`) and use "
        f"`hf:path:<folder>`{released}",
    )


def _processor(folder: Path | None) -> dict[str, Any]:
    """Return the content of the checkpoint's preprocessor file, or nothing."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        if folder is not None and (folder / name).is_file():
            remedy = "bring the file that came with the weights back"
            content: dict[str, Any] = read_json(folder / name, remedy)
            return dict(content.get("image_processor", content))
    return {}


def _side(value: Any, what: str, where: str) -> int:
    """Return the side of a square that is given as a number, a pair, or a dictionary."""
    sides = list(value.values()) if isinstance(value, Mapping) else value
    sides = list(sides) if isinstance(sides, list | tuple) else [sides]
    if len(set(sides)) != 1:
        raise ModelError(
            where,
            f"its {what} is {value}, not a square",
            "set `input_px`" if what == "input" else "use a model of square images and patches",
        )
    return int(sides[0])


def _token_map(family: TowerFamily, settings: Any, side: int, patch_px: int) -> TokenMap:
    registers = int(getattr(settings, "num_register_tokens", 0))
    return TokenMap(
        prefix=int(family.has_cls) + family.n_distilled + registers,
        registers=registers,
        grid=(side, side),
        patch_px=patch_px,
        has_cls=family.has_cls,
    )


def _trained_px(settings: Any, where: str) -> int:
    """Return the side that the position embeddings are made for."""
    if settings.model_type == "siglip2_vision_model":
        return math.isqrt(int(settings.num_patches)) * int(settings.patch_size)
    return _side(settings.image_size, "image_size", where)


def _own_px(settings: Any, processor: Mapping[str, Any], where: str) -> int:
    """Return the side that preprocessing ends in (DINOv2: 224 px; its positions: 518 px)."""
    if processor.get("do_center_crop") and processor.get("crop_size"):
        return _side(processor["crop_size"], "input", where)
    if processor.get("size"):
        return _side(processor["size"], "input", where)
    if "max_num_patches" in processor:
        return math.isqrt(int(processor["max_num_patches"])) * int(settings.patch_size)
    return _trained_px(settings, where)


def _create(
    family: TowerFamily, settings: Any, config: Pretrained, resolved: Weights | None, where: str
) -> Any:
    """Return the model in float32 on the CPU, every weight from the files or from the seed."""
    import transformers

    cls = getattr(transformers, family.model)
    if resolved is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = cls(settings, **family.options)
        model.set_attn_implementation(config.extraction.attention)
        return model
    return from_files(
        cls,
        resolved.folder,
        where,
        config=settings,
        dtype=torch.float32,
        attn_implementation=config.extraction.attention,
        **family.options,
    )


def from_files(cls: Any, folder: Path, where: str, **options: Any) -> Any:
    """Return a model of transformers with every weight from safetensors, or ModelError."""
    remedy = "check that config.json and the weights belong together"
    refuse_quantized(folder, where)
    try:
        model, report = cls.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, **LOCAL, **options
        )
    except UNREADABLE as error:
        raise ModelError(where, f"its weights do not load ({unread(error)})", remedy) from error
    missing = sorted(str(key) for key in [*report["missing_keys"], *report["mismatched_keys"]])
    if missing:
        raise ModelError(
            where,
            f"{len(missing)} weights are missing from the files, the first is {missing[0]}",
            remedy,
        )
    return model
