"""Loads any model of the configuration through its adapter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.config.models import AnyModel
from bindscope.core.devices import no_gpu
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Model
from bindscope.core.registries import ADAPTERS, TEXT_TOWERS, resolve


def load_model(
    config: AnyModel, weights: Path | None, device: torch.device | str, input_px: int | None = None
) -> Model:
    """Load a model, frozen, onto a device ("cpu" or "cuda:<index>", see `hold_device`).

    Parameters
    ----------
    config
        The model's configuration; the prefix of its source names the adapter.
    weights
        Manifest of the rule that made or downloaded its weights; None where there is none.
    input_px
        Side of the scenes in pixels, for models that take the size of their input from the data.
        Pretrained models do not: they resize scenes to ``config.input_px`` or to their own size.

    Raises
    ------
    ModelError
        If the device is absent, the number of layers is not the configuration's, or the adapter
        cannot load the model.
    """
    where = f"model {config.name} ({config.source})"
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise no_gpu(where)
    if getattr(config, "pretrained", False) and getattr(config, "overrides", None):
        raise ModelError(
            where,
            "`overrides` change the architecture, which pretrained weights have fixed",
            "drop `overrides`, or set `pretrained: false`",
        )
    library = config.source.partition(":")[0]
    model: Model = resolve(ADAPTERS[library])(config, weights, device, input_px)
    expected = config.depth or model.n_layers
    if model.n_layers != expected:
        raise ModelError(
            where,
            f"it has {model.n_layers} blocks, the configuration says {expected}",
            f"set `n_layers: {model.n_layers}`",
        )
    return model


class TextTower(Protocol):
    """The part of a model that reads captions, and how its image tower meets it."""

    dim: int
    revision: str
    weights_sha256: str

    def embed(self, texts: Sequence[str], words: Sequence[Any]) -> NDArray[np.float32]:
        """Return raw vectors in the joint space, float32 (n, dim).

        Captions are given as sentences, and as the words of each object, group by group
        (`scenes.captions.GroupWords`); a tower reads one of the two.
        """
        ...

    def project(self, cls: NDArray[np.floating]) -> NDArray[np.float32]:
        """Bring [CLS] tokens of the image tower's ``"final"`` layer (n, width) into that space."""
        ...


def load_texts(config: AnyModel, weights: Path | None, device: torch.device | str) -> TextTower:
    """Load a text tower, frozen, onto a device (`load_model`); ModelError if there is none."""
    library = config.source.partition(":")[0]
    if library not in TEXT_TOWERS:
        raise ModelError(
            f"model {config.name} ({config.source})",
            "reads no captions",
            f"use a model from {', '.join(f'{name}:' for name in TEXT_TOWERS)}",
        )
    tower: TextTower = resolve(TEXT_TOWERS[library])(config, weights, torch.device(device))
    return tower
