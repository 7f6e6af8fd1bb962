"""The families of transformers that the engines know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.studies.binding_id.vlm.adapters import HuggingFace, Rotary
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens, llava_views, plain_view


class LlavaOnevision(HuggingFace):
    """LLaVA-OneVision: the whole image, then anyres crops with a newline after each row."""

    def image_tokens(self, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> ImageTokens:
        """Return the base view and the anyres view."""
        settings = self.model.config
        most = int(str(settings.vision_aspect_ratio).removeprefix("anyres_max_"))
        return llava_views(
            (size[0], size[1]), settings.vision_config.image_size,
            settings.vision_config.patch_size, settings.image_grid_pinpoints, most,
        )  # fmt: skip


class Qwen2VL(HuggingFace):
    """Qwen2-VL: one view without row ends; positions have time, height and width."""

    image_text = "<|vision_start|><|image_pad|><|vision_end|>"
    n_views = 1

    def image_tokens(self, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> ImageTokens:
        """Return the one view, resized to whole cells."""
        merged = self.model.config.vision_config.spatial_merge_size
        _, rows, columns = (int(number) for number in tensors["image_grid_thw"][0])
        rows, columns = rows // merged, columns // merged
        view = plain_view("the image", 0, columns, rows, columns, size[0], size[1])
        return ImageTokens((view,), rows * columns, rows * columns)

    def _library_positions(self, positions: Tensor) -> Tensor:
        return positions.expand(3, -1, -1)

    def rotary(self, layer: int) -> Rotary:
        """Return rotations with a section for each part of a position."""
        rotary = self.language.rotary_emb
        return Rotary(rotary.inv_freq, tuple(rotary.mrope_section))


FAMILIES: dict[str, tuple[str, type[HuggingFace]]] = {
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", LlavaOnevision),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", Qwen2VL),
}
"""By `model_type` of a configuration: the library's class, and ours."""


def adapt(where: str, model: Any, processor: Any, device: torch.device | str | None) -> HuggingFace:
    """Return the adapter of a model; ModelError for unknown families and wrong processors."""
    settings = getattr(model, "config", None)
    kind = getattr(settings, "model_type", type(model).__name__)
    if kind not in FAMILIES:
        blind = ", and this one has no image tokens" * (not hasattr(settings, "image_token_id"))
        raise ModelError(
            where, f"models of type {kind!r} are not supported{blind}",
            f"use one of {', '.join(FAMILIES)}",
        )  # fmt: skip
    return FAMILIES[kind][1](where, model, processor, device)
