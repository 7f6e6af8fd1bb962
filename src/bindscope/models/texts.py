"""Text towers: what they do, and how that of a model of the configuration is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.config.models import AnyModel
from bindscope.core.errors import ModelError
from bindscope.core.registries import TEXT_TOWERS, resolve


class TextTower(Protocol):
    """The part of a model that reads captions, and how its image tower meets it."""

    dim: int
    revision: str
    weights_sha256: str

    def embed(self, texts: Sequence[str], words: Sequence[Any]) -> NDArray[np.float32]:
        """Return raw vectors in the joint space, float32 (n, dim).

        Captions are given as sentences, and as the words of each object, group by group
        (`scenes.captions.Words`); a tower reads one of the two.
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
