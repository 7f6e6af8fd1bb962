"""timm's vision transformers: any model with one row of blocks of constant width."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from bindscope.config.models import Pretrained
from bindscope.core.errors import ModelError
from bindscope.models.base import TokenMap
from bindscope.models.images import Transform, check_input_px, interpolation
from bindscope.models.patch_changes import measure_offset
from bindscope.models.stream import FrozenViT, freeze, state_sha256
from bindscope.models.weights import UNREADABLE, parse_source, resolve

log = logging.getLogger(__name__)

OFFSET = 0.25  # of a patch, from which it is said
_PARTS = ("blocks", "norm", "patch_embed", "num_prefix_tokens", "forward_features")


def load(
    config: Pretrained, weights: Path | None, device: torch.device, input_px: int | None = None
) -> FrozenViT:
    """Load a timm model (`bindscope.models.loading.load_model`).

    `overrides` are arguments of ``timm.create_model``. ModelError if timm does not know the model,
    it is no plain vision transformer, its weights are missing or do not fit, or the input is not a
    whole number of patches.
    """
    where = f"model {config.name} ({config.source})"
    model, revision, digest = _create(config, weights, where)
    lacking = [part for part in _PARTS if not hasattr(model, part)]
    if not lacking and not hasattr(model.patch_embed, "grid_size"):
        lacking = ["patch_embed.grid_size"]
    if lacking:
        raise ModelError(
            where,
            f"{type(model).__name__} is not a plain vision transformer (it has no "
            f"{', '.join(lacking)})",
            "choose one of timm's ViT, DeiT, BEiT, EVA, DINOv2/v3, CLIP or SigLIP models",
        )
    px = _resize(model, config.input_px, where)
    stem = next(part for part in model.patch_embed.modules() if isinstance(part, nn.Conv2d))
    if stem.in_channels != 3:
        raise ModelError(
            where, f"it reads images of {stem.in_channels} channels, not 3", "drop `in_chans`"
        )
    freeze(model, device)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = config.extraction.attention == "sdpa"
    loaded = FrozenViT(
        where=where,
        forward=model.forward_features,
        network=model,
        blocks=list(model.blocks),
        norm=model.norm,
        transform=_transform(model, px, where),
        token_map=token_map(model, px),
        dim=int(model.embed_dim),
        revision=revision,
        weights_sha256=digest,
        device=device,
        precision=config.extraction.precision,
    )
    if hasattr(model.patch_embed, "backbone"):  # convolutions, which may be padded at one side
        below, right = measure_offset(loaded, px)
        if max(abs(below), abs(right)) > OFFSET:
            log.warning(
                "%s: patch tokens look %+.2f patches below and %+.2f right of their cells: labels "
                "of patches are off by as much; means and [CLS] are not",
                where,
                below,
                right,
            )
    return loaded


def hub_repository(name: str) -> tuple[str, str | None]:
    """Return the hub repository of a timm model, and its safetensors file where timm names one."""
    import timm

    refuse_exact_gelu(name)
    pretrained_config = timm.models.get_pretrained_cfg(name) if timm.is_model(name) else None
    if pretrained_config is None or not pretrained_config.hf_hub_id:
        raise ModelError(
            f"timm:{name}",
            "timm knows no such model"
            if pretrained_config is None
            else "its weights are not on the hub",
            "choose a name of `timm.list_models(pretrained=True)`, or `pretrained: false`",
        )
    filename = pretrained_config.hf_hub_filename
    return pretrained_config.hf_hub_id, filename if filename and filename.endswith(
        ".safetensors"
    ) else None


def refuse_exact_gelu(name: str) -> None:
    """Refuse weights that were trained with QuickGELU in a model that computes exact GELU."""
    import timm

    pretrained_config = timm.models.get_pretrained_cfg(name) if timm.is_model(name) else None
    notes = " ".join((pretrained_config and pretrained_config.notes) or ())
    if "natively QuickGELU" in notes and "quickgelu" not in name:
        raise ModelError(
            f"timm:{name}",
            "its weights were trained with QuickGELU, and this name computes exact GELU",
            f"use timm:{name.replace('_clip_', '_clip_quickgelu_')}",
        )


def token_map(model: Any, px: int) -> TokenMap:
    """Return the token map of a timm model with an input of `px` pixels."""
    rows, columns = model.patch_embed.grid_size
    registers = getattr(model, "reg_token", None)
    return TokenMap(
        prefix=int(model.num_prefix_tokens),
        registers=0 if registers is None else int(registers.shape[1]),
        grid=(int(rows), int(columns)),
        patch_px=px // int(rows),
        has_cls=getattr(model, "cls_token", None) is not None,
    )


def _create(config: Pretrained, weights: Path | None, where: str) -> tuple[Any, str, str]:
    """Return the model at its own input size, what pins it, and the hash of its weights."""
    import timm

    name = parse_source(config.source).name
    if not timm.is_model(name):
        raise ModelError(
            where,
            f"timm {timm.__version__} has no model {name!r}",
            "choose a name of `timm.list_models('*vit*')`; weights are a tag after a dot",
        )
    if not config.pretrained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            try:
                model = timm.create_model(name, pretrained=False, **config.overrides)
            except (TypeError, ValueError, AssertionError, RuntimeError) as error:
                raise ModelError(
                    where,
                    f"timm refuses the overrides {config.overrides} ({error})",
                    "use arguments of timm's VisionTransformer, such as depth and embed_dim",
                ) from error
        return model, f"random weights, seed {config.seed}", state_sha256(model.state_dict())
    refuse_exact_gelu(name)
    resolved = resolve(config, weights)
    try:  # strict: timm would only log weights that are missing from the file
        classes = _classes(resolved.tensors[0])
        model = timm.create_model(
            name,
            pretrained=True,
            pretrained_cfg_overlay={"file": str(resolved.tensors[0]), **classes},
            **classes,
        )
    except UNREADABLE as error:
        raise ModelError(
            where,
            f"the weights in {resolved.tensors[0]} are not those of {name} ({error})",
            "name the model, with its tag, that the weights were saved from",
        ) from error
    return model, resolved.revision, resolved.sha256


def _classes(path: Path) -> dict[str, Any]:
    """Return how many classes a file's head has, which fine-tuning changes; empty without one."""
    with safe_open(path, "pt") as file:
        if "head.weight" not in file.keys():  # noqa: SIM118  it is no mapping
            return {}
        return {"num_classes": int(file.get_slice("head.weight").get_shape()[0])}


def _resize(model: Any, input_px: int | None, where: str) -> int:
    """Set the side of the input, interpolating position embeddings; return it."""
    default_size, patch_px = model.patch_embed.img_size, int(model.patch_embed.feat_ratio())
    if input_px is None:
        if default_size is None or default_size[0] != default_size[1]:
            raise ModelError(
                where, f"its own input is {default_size}, not a square", "set `input_px`"
            )
        check_input_px(int(default_size[0]), patch_px, where)
        return int(default_size[0])
    check_input_px(input_px, patch_px, where)
    if default_size is not None and tuple(default_size) == (input_px, input_px):
        return input_px
    if not hasattr(model, "set_input_size"):
        raise ModelError(
            where,
            f"{type(model).__name__} cannot change the size of its input",
            f"drop `input_px` (its own is {default_size[0]})",
        )
    model.set_input_size(img_size=(input_px, input_px))
    return input_px


def _transform(model: nn.Module, px: int, where: str) -> Transform:
    from timm.data.config import resolve_model_data_config

    data_config = resolve_model_data_config(model)  # type: ignore[no-untyped-call]
    mode = interpolation(data_config["interpolation"], where)
    return Transform(px, mode, tuple(data_config["mean"]), tuple(data_config["std"]))
