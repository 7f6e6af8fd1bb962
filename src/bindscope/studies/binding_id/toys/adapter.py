"""Toys as engines (words parted by spaces, one view of an image), and as models of images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.config.models import Pixels, PythonModel, ToyVision
from bindscope.config.zoo import REMEDY, manifest_path
from bindscope.core.errors import ConfigError, InputError, ModelError, snakemake_command
from bindscope.models.hooked import HookedModule
from bindscope.scenes.sprite_palette import SIZE_PX
from bindscope.studies.binding_id.tasks.images import LayoutImages
from bindscope.studies.binding_id.tasks.prompts import IMAGE, Form, prompts
from bindscope.studies.binding_id.tasks.scenes import Pictures, Rule
from bindscope.studies.binding_id.toys.model import ToyModel, read_manifest
from bindscope.studies.binding_id.toys.model import load as load_toy
from bindscope.studies.binding_id.toys.tasks import LAYOUT
from bindscope.studies.binding_id.vlm.adapters import (
    Cut,
    Decoder,
    EmbeddedPrompt,
    ModelInputs,
    additive,
)
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.image_tokens import ImageTokens, plain_view


def engine_of(where: str, toy: ToyModel) -> VisionLanguageEngine:
    """Return a toy as an engine; `where` says in words which one it is."""
    options = Options(batch_size=1024)
    return VisionLanguageEngine(
        ToyAdapter(where, toy), partial(prompts, form=Form("short")), options
    )


def load(
    model: Mapping[str, Any], rule: Rule, weights: Path | None, device: str = "cpu"
) -> tuple[VisionLanguageEngine, Pictures]:
    """Load a toy of the zoo, or of the manifest `weights`, on the CPU, and draw its images.

    ConfigError if scenes are not those of toys, `layout: sprites`. ModelError if the toy's files
    are missing or damaged.
    """
    where = f"toy {model['name']}"
    if rule.layout != LAYOUT:
        raise ConfigError(
            where, f"it is given {rule.layout!r} scenes", f"use a task of `layout: {LAYOUT}`"
        )
    if "source" in model:
        weights = manifest_path(model["source"])
    assert weights is not None  # the graph has it
    remedy = REMEDY if "source" in model else None
    return engine_of(where, load_toy(weights, remedy=remedy)), LayoutImages(LAYOUT)


class ToyAdapter(Decoder):
    """A toy: its image first, then words."""

    image_text = IMAGE
    n_views = 1

    def __init__(self, where: str, toy: ToyModel) -> None:
        super().__init__(where, toy.network, toy.network.lm_head.weight.device)
        self.toy = toy
        self._numbers = {word: number for number, word in enumerate(toy.vocabulary.tokens)}

    def tokenize(self, texts: Sequence[str]) -> list[Cut]:
        """Return token numbers and their characters; InputError for unknown words."""
        return [self._tokenized(text) for text in texts]

    def _tokenized(self, text: str) -> Cut:
        words = list(re.finditer(r"\S+", text))
        if unknown := [word[0] for word in words if word[0] not in self._numbers]:
            raise InputError(
                f"the text {text!r}",
                f"{self.where} does not know {', '.join(unknown)}",
                "use the toy's own words and the template `short`",
            )
        return [self._numbers[word[0]] for word in words], [word.span() for word in words]

    def read(self, texts: Sequence[str], images: NDArray[np.uint8]) -> ModelInputs:
        """Cut prompts of equal length, with a token for each patch of the image in front."""
        rows = [numbers for numbers, _ in self.tokenize(texts)]
        lengths = {len(row) for row in rows}
        mark = self._numbers[IMAGE]
        places = [[place for place, number in enumerate(row) if number == mark] for row in rows]
        if len(lengths) > 1 or any(positions != [0] for positions in places):
            raise InputError(
                "the prompts of a toy",
                f"they have {sorted(lengths)} words and images at places "
                f"{sorted({place for positions in places for place in positions})}",
                f"put equally many words in each, and {IMAGE} once in front",
            )
        ids = torch.tensor(rows, dtype=torch.int64, device=self.device)
        height, width = (side // self.toy.patch_px for side in images.shape[1:3])
        view = plain_view("the image", 0, width, height, width, *images.shape[1:3])
        block = ids[:, :1].expand(-1, height * width)
        tensors = {"images": torch.from_numpy(images)}
        image = ImageTokens((view,), height * width, height * width)
        return ModelInputs(torch.cat([block, ids[:, 1:]], 1), tensors, image, 0)

    def embed(self, inputs: ModelInputs) -> EmbeddedPrompt:
        """Put the image's tokens before those of the text."""
        text = self.embed_text(inputs.ids[:, inputs.image.length :])
        hidden = torch.cat([self.toy.see(inputs.tensors["images"].numpy()), text], 1)
        n, length = hidden.shape[:2]
        positions = torch.arange(length, device=hidden.device).expand(1, n, -1)
        return EmbeddedPrompt(hidden, positions, additive(None, hidden))


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
            inputs_embeds=tokens,
            position_ids=places,
            use_cache=False,
            attention_mask=torch.ones(tokens.shape[:2], device=tokens.device),
        )
        last: Tensor = done.last_hidden_state
        return last


class ToyImages(HookedModule):
    """A toy as a `Model` of images: what tower, connector and decoder make of one.

    The image stands before all text and attention is causal, so the residual stream at its tokens
    is a function of the image alone.

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
            name="toy",
            source=f"python:{__name__}:load_vision",
            modules=modules,
            transform=Pixels(input_px=side),
        )
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


def load_vision(
    config: ToyVision, weights: Path | None, device: torch.device, input_px: int | None = None
) -> ToyImages:
    """Load a toy of the zoo, or of the manifest `weights`, as a model of images (`load_model`).

    ModelError if the toy's files are missing or damaged.
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
