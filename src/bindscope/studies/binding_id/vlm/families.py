"""What differs between families of transformers: marks of an image, and what its tokens show."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.studies.binding_id.vlm.adapters import OWN_PROCESSOR, HuggingFace, Rotary
from bindscope.studies.binding_id.vlm.image_tokens import (
    ImageTokens,
    llava_views,
    plain_view,
    squeezed_view,
)


class SquareTower(HuggingFace):
    """A model whose vision tower reads squares of `side` pixels in patches of `patch`."""

    towers: ClassVar[tuple[str, ...]] = ("clip_vision_model", "siglip_vision_model")

    def __init__(
        self, where: str, model: Any, processor: Any, device: torch.device | str | None = "cpu"
    ) -> None:
        super().__init__(where, model, processor, device)
        vision = model.config.vision_config
        if vision.model_type not in self.towers:
            raise ModelError(
                where,
                f"its vision tower is of type {vision.model_type!r}",
                f"use a model with a tower of type {' or '.join(self.towers)}",
            )
        self.side, self.patch = _side(vision.image_size), _side(vision.patch_size)
        if (patch := getattr(processor, "patch_size", self.patch)) != self.patch:
            raise ModelError(
                where,
                f"`patch_size` of its processor is {patch}, that of the model {self.patch}",
                OWN_PROCESSOR,
            )

    def image_tokens(self, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> ImageTokens:
        """Return the views of an image; ModelError if the processor makes other squares."""
        pixels = tensors.get("pixel_values")
        if pixels is not None and pixels.shape[-2:] != (self.side, self.side):
            raise ModelError(
                self.where,
                f"its processor makes squares of {' x '.join(map(str, pixels.shape[-2:]))} "
                f"pixels, the model reads {self.side} x {self.side}",
                OWN_PROCESSOR,
            )
        return self.views_of((size[0], size[1]))

    @abstractmethod
    def views_of(self, size: tuple[int, int]) -> ImageTokens:
        """Return the views of an image of a height and width."""


def _side(number: Any) -> int:
    """Return the side of a square, which some configurations give as a pair."""
    return int(number[0] if isinstance(number, (list, tuple)) else number)


class LlavaOnevision(SquareTower):
    """LLaVA-OneVision: the whole image, then anyres crops with a newline after each row."""

    @property
    def max_crops(self) -> float:
        """Crops' worth of cells that an image may have."""
        return int(str(self.model.config.vision_aspect_ratio).removeprefix("anyres_max_"))

    def views_of(self, size: tuple[int, int]) -> ImageTokens:
        """Return the base view and the anyres view."""
        pinpoints = self.model.config.image_grid_pinpoints
        return llava_views(size, self.side, self.patch, pinpoints, self.max_crops)


class LlavaNext(LlavaOnevision):
    """LLaVA-NeXT (1.6): the same views, of which none is shrunk."""

    max_crops = math.inf


class Llava(SquareTower):
    """LLaVA 1.5: the whole image, squeezed to a square; nothing is cropped off."""

    n_views = 1

    @property
    def image_options(self) -> Mapping[str, Any]:
        """Return options that keep all of an image that is not square."""
        size = {"height": self.side, "width": self.side}
        return {"size": size, "do_center_crop": False, "do_pad": False}

    def views_of(self, size: tuple[int, int]) -> ImageTokens:
        """Return the one view."""
        view = squeezed_view(size, self.side, self.patch)
        return ImageTokens((view,), view.rows**2, view.rows**2)


class InternVL(SquareTower):
    """InternVL (`-hf` checkpoints): one tile, the whole image squeezed to a square."""

    image_text = "<IMG_CONTEXT>"
    n_views = 1
    towers = ("internvl_vision",)

    @property
    def image_options(self) -> Mapping[str, Any]:
        """Return options that keep an image in one tile."""
        return {"crop_to_patches": False}

    def views_of(self, size: tuple[int, int]) -> ImageTokens:
        """Return the one view, whose cells are several patches each."""
        cells = int(self.side // self.patch * self.model.config.downsample_ratio)
        view = plain_view("the image", 0, cells, cells, cells, size[0], size[1])
        return ImageTokens((view,), cells**2, cells**2)


class Qwen2VL(HuggingFace):
    """Qwen2-VL and Qwen2.5-VL: one view without row ends; positions have three parts."""

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
    "internvl": ("InternVLForConditionalGeneration", InternVL),
    "llava": ("LlavaForConditionalGeneration", Llava),
    "llava_next": ("LlavaNextForConditionalGeneration", LlavaNext),
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", LlavaOnevision),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", Qwen2VL),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", Qwen2VL),
}
"""By `model_type` of a configuration: the library's class, and ours."""


def refuse_family(where: str, kind: str, more: str = "") -> ModelError:
    """Return the error of a model of another family."""
    if kind.startswith("qwen3_vl"):
        more = ": features of the image enter several of its layers (deepstack)"
    return ModelError(
        where,
        f"models of type {kind!r} are not supported{more}",
        f"use one of {', '.join(FAMILIES)}",
    )
