"""The families of transformers that the engines know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.studies.binding_id.vlm.adapters import HuggingFace
from bindscope.studies.binding_id.vlm.image_tokens import (
    Edges,
    ImageTokens,
    View,
    llava_views,
    plain_view,
)
from bindscope.studies.binding_id.vlm.rotary import Rotary


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


class Molmo2(HuggingFace):
    """Molmo 2: the whole image, then crops; each view between marks, each row with an end.

    Tokens of the image see each other in both directions.
    """

    image_text = "<|image|>"

    def _image_number(self, marked: int) -> int:
        number: int = self.processor.tokenizer.convert_tokens_to_ids("<im_patch>")
        return number

    def image_tokens(self, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> ImageTokens:
        """Return both views, with squares read off the patches that each token pools."""
        low_rows, low_columns, rows, columns = (int(x) for x in tensors["image_grids"][0])
        pool = tuple(self.processor.image_processor.pooling_size)
        low = low_rows * low_columns
        pooled = (tensors["image_token_pooling"][: low + rows * columns] >= 0).cpu().numpy()
        high_end = bool(self.processor.image_use_col_tokens)
        single = self.processor.use_single_crop_col_tokens
        low_end = high_end if single is None else bool(single)
        shapes = (
            ("the low-resolution view", pooled[:low], low_rows, low_columns, low_end),
            ("the high-resolution view", pooled[low:], rows, columns, high_end),
        )
        views, place = [], 0
        for name, valid, down, across, ends in shapes:
            y, x = _pooled_edges(valid.reshape(down, across, *pool), size)
            views.append(View(name, place + 1, across + ends, x, y))
            place += down * (across + ends) + 2
        return ImageTokens(tuple(views), place, low + rows * columns)

    def position_embeddings(self, layer: int, hidden: Tensor, positions: Tensor) -> Any:
        """Return cosines and sines, of a layer with or without scaled positions."""
        return self._rotary(layer)(hidden, position_ids=positions[0])

    def rotary(self, layer: int) -> Rotary:
        """Return the rotations of a layer with or without scaled positions."""
        return Rotary(self._rotary(layer).inv_freq)

    def _rotary(self, layer: int) -> Any:
        scaled = self.language.rope_types[layer] == "scaled"
        return self.language.rotary_emb if scaled else self.language.rotary_emb_unscaled


def _pooled_edges(valid: Any, size: tuple[int, ...]) -> tuple[Edges, Edges]:
    """Return where pooled cells begin and end, from which of their patches exist.

    Cells at the border pool fewer patches where the grid is not a whole number of cells.
    """
    down = valid.any(axis=(1, 3)).sum(axis=1)
    across = valid.any(axis=(0, 2)).sum(axis=1)
    edges = [np.append(0, np.cumsum(counts)) for counts in (down, across)]
    y, x = (edge * side / edge[-1] for edge, side in zip(edges, size, strict=True))
    return y, x


FAMILIES: dict[str, tuple[str, type[HuggingFace]]] = {
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", LlavaOnevision),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", Qwen2VL),
    "molmo2": ("Molmo2ForConditionalGeneration", Molmo2),
}
"""By `model_type` of a configuration: the library's class, and ours."""


def adapt(where: str, model: Any, processor: Any, device: torch.device | str) -> HuggingFace:
    """Return the adapter of a model.

    Raises
    ------
    ModelError
        If its family is not known here, or model and processor do not belong together.
    """
    kind = model.config.model_type
    if kind not in FAMILIES:
        raise ModelError(
            where, f"models of type {kind!r} are not supported",
            f"use one of {', '.join(FAMILIES)}",
        )  # fmt: skip
    return FAMILIES[kind][1](where, model, processor, device)
