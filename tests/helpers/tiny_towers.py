"""Tiny vision towers of transformers, one of each family that the adapter reads."""

from typing import Any

import torch

from bindscope.models.hf_adapter import FAMILIES

_TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.3,
}
_MLP = {"intermediate_size": 48}
OVERRIDES: dict[str, dict[str, Any]] = {
    "vit": {**_TINY, **_MLP},
    "dinov2": {**_TINY, "mlp_ratio": 2},
    "dinov2_with_registers": {**_TINY, "mlp_ratio": 2, "num_register_tokens": 3},
    "clip_vision_model": {**_TINY, **_MLP, "initializer_factor": 10.0},
    "siglip_vision_model": {**_TINY, **_MLP},
    "siglip2_vision_model": {**_TINY, **_MLP, "num_patches": 16},
    "vit_mae": {**_TINY, **_MLP},
}
del OVERRIDES["siglip2_vision_model"]["image_size"]
KINDS = sorted(OVERRIDES)
_RELATIVE = {"use_relative_position_bias": True}
OVERRIDES |= {
    "dinov3_vit": {**_TINY, **_MLP, "num_register_tokens": 3},
    "ijepa": {**_TINY, **_MLP},
    "deit": {**_TINY, **_MLP},
    "beit": {**_TINY, **_MLP, **_RELATIVE, "use_mean_pooling": False},
    "data2vec-vision": {**_TINY, **_MLP, **_RELATIVE, "use_mean_pooling": False},
    "aimv2_vision_model": {**_TINY, **_MLP},
    "metaclip_2_vision_model": {**_TINY, **_MLP, "initializer_factor": 10.0},
}
WITHOUT_CLS = ("siglip_vision_model", "siglip2_vision_model", "ijepa", "aimv2_vision_model")


def library_model(kind: str) -> Any:
    """Build the same tiny model with transformers alone."""
    import transformers

    settings = transformers.AutoConfig.for_model(kind, **OVERRIDES[kind])
    if kind == "vit_mae":
        settings.mask_ratio = 0.0
    torch.manual_seed(7)
    model = getattr(transformers, FAMILIES[kind].model)(settings, **FAMILIES[kind].options)
    return model.eval().requires_grad_(False)


def library_forward(kind: str, model: Any, pixels: torch.Tensor) -> Any:
    resized = pixels.shape[-1] != 32
    inputs: dict[str, Any] = {"pixel_values": pixels, "output_hidden_states": True}
    if kind == "siglip2_vision_model":
        from transformers.models.siglip2.image_processing_siglip2 import convert_image_to_patches

        side = pixels.shape[-1] // 8
        patches = torch.stack([convert_image_to_patches(image, 8) for image in pixels])
        inputs |= {
            "pixel_values": patches,
            "pixel_attention_mask": torch.ones(patches.shape[:2]),
            "spatial_shapes": torch.tensor([[side, side]] * len(pixels)),
        }
    elif "dinov2" not in kind:
        inputs["interpolate_pos_encoding"] = resized
    if kind == "vit_mae":
        inputs["noise"] = torch.linspace(0, 1, (pixels.shape[-1] // 8) ** 2).repeat(len(pixels), 1)
    return model(**inputs)
