"""The vision side of a trained toy as a model: what tower, connector and decoder make of an image.

The image stands before all text and attention is causal, so the residual stream at image tokens is
a function of the image alone, whatever text follows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.config.models import Pixels, PythonModel, ToyVision
from bindscope.config.zoo import REMEDY, manifest_path
from bindscope.core.errors import ModelError, snakemake_command
from bindscope.models.hooked import HookedModule
from bindscope.scenes.sprite_palette import SIZE_PX
from bindscope.studies.binding_id.toys.model import ToyModel, read_manifest
from bindscope.studies.binding_id.toys.model import load as load_toy


class _OfImages(nn.Module):
    """A toy's pass over an image without text."""

    def __init__(self, toy: ToyModel) -> None:
        super().__init__()
        self.toy, self.network = toy, toy.network

    def forward(self, pixels: Tensor) -> Tensor:
        """Run tower, connector and decoder on pixels (n, 3, px, px)."""
        tokens = self.toy.look(pixels)
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        done = self.network.model.language_model(
            inputs_embeds=tokens, position_ids=places, use_cache=False,
            attention_mask=torch.ones(tokens.shape[:2], device=tokens.device),
        )  # fmt: skip
        last: Tensor = done.last_hidden_state
        return last


class ToyImages(HookedModule):
    """A toy as a `Model` of images.

    Layer 1 is what the tower gives, layer 2 what the connector makes of it (which enters decoder
    layer 0), layer 3 what decoder layer 0 gives, and so on. Patch tokens stand in raster order, and
    there is no [CLS].
    """

    def __init__(self, where: str, toy: ToyModel, device: torch.device) -> None:
        side = toy.pixels(np.zeros((1, SIZE_PX, SIZE_PX, 3), np.uint8)).shape[-1]
        decoder = toy.network.model.language_model.layers
        modules = (
            "network.model.vision_tower",
            "network.model.multi_modal_projector",
            *(f"network.model.language_model.layers.{i}" for i in range(len(decoder))),
        )
        config = PythonModel(
            name="toy", source=f"python:{__name__}:load", modules=modules,
            transform=Pixels(input_px=side),
        )  # fmt: skip
        super().__init__(where, _OfImages(toy), config, device, side)
        self._toy = toy

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Apply the toy's transform: uint8 (B, 36, 36, 3) to float32 (B, 3, px, px)."""
        if images.shape[1:] != (SIZE_PX, SIZE_PX, 3):
            height, width = images.shape[1:3]
            raise ModelError(
                self._where,
                f"it knows images of {SIZE_PX} x {SIZE_PX} px, and these have {width} x {height}",
                "use a dataset of `render: {kind: sprites}`",
            )
        return self._toy.pixels(images)


def load(
    config: ToyVision, weights: Path | None, device: torch.device, input_px: int | None = None
) -> ToyImages:
    """Load a toy of the zoo, or of the manifest `weights`, as a model of images (`load_model`).

    Raises
    ------
    ModelError
        If the toy's files are missing or damaged.
    """
    where = f"model {config.name} ({config.source})"
    if config.zoo_source:
        weights, remedy = manifest_path(config.zoo_source), REMEDY
    else:
        remedy = f"run the workflow, which trains it: `{snakemake_command('')}`"
    if weights is None:
        raise ModelError(where, "its weights are not there", remedy)
    manifest = read_manifest(weights, remedy)
    model = ToyImages(where, load_toy(weights, device, remedy), device)
    model.revision = f"{config.source}, seed {manifest['seed']}"
    model.weights_sha256 = manifest["sha256"]
    return model
