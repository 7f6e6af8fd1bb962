"""Loads the text tower of any model of the configuration that reads captions."""

from __future__ import annotations

from pathlib import Path

import torch

from bindscope.config.models import AnyModel
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import TextTower
from bindscope.core.registries import TEXT_TOWERS, resolve


def load_texts(config: AnyModel, weights: Path | None, device: torch.device | str) -> TextTower:
    """Load a text tower, frozen, onto a device.

    Parameters are those of `models.loading.load_model`.

    Raises
    ------
    ModelError
        If models of this source read no captions, or the tower cannot be loaded.
    """
    library = config.source.partition(":")[0]
    if library not in TEXT_TOWERS:
        raise ModelError(
            f"model {config.name} ({config.source})",
            "reads no captions",
            f"use a model from {', '.join(f'{name}:' for name in TEXT_TOWERS)}",
        )
    tower: TextTower = resolve(TEXT_TOWERS[library])(config, weights, torch.device(device))
    return tower
