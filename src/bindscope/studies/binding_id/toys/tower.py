"""A frozen vision model of the zoo as the vision tower of a toy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.config.models import Zoo
from bindscope.models.stream import FrozenViT
from bindscope.models.zoo import load
from bindscope.scenes.sprite_palette import SIZE_PX

STANDARDISED_OVER = 1e-6


class ZooTower(nn.Module):
    """The patch tokens of a frozen model, standardised over their width; images are resized for it.

    It has no parameters of its own, so that a toy that is stored names it and does not hold it.
    """

    def __init__(self, frozen: FrozenViT) -> None:
        super().__init__()
        self._frozen = [frozen]  # in a list, so that its weights are no state of this module
        self.width = frozen.dim

    @classmethod
    def load(cls, source: str, device: torch.device | None = None) -> ZooTower:
        """Load a model of the zoo by its source, ``zoo:<name>``."""
        config = Zoo(name="tower", source=source)
        return cls(load(config, None, device or torch.device("cpu")))

    @property
    def patch_px(self) -> int:
        """Side of the patch of a toy's image that a token stands for, in the toy's pixels."""
        return SIZE_PX // self._frozen[0].token_map.grid[0]

    def pixels(self, images: NDArray[np.uint8]) -> Tensor:
        """Return the model's input of uint8 images."""
        return self._frozen[0].preprocess(images)

    @torch.no_grad()
    def forward(self, pixel_values: Tensor, **_: Any) -> Any:
        """Return patch tokens after the final norm, as transformers' towers do."""
        from transformers.modeling_outputs import BaseModelOutput

        frozen = self._frozen[0]
        ((_layer, tokens),) = frozen.residual_stream(pixel_values, ["final"])
        patches = tokens[:, frozen.token_map.prefix :]
        patches = nn.functional.layer_norm(patches, patches.shape[-1:], eps=STANDARDISED_OVER)
        return BaseModelOutput(last_hidden_state=patches, hidden_states=(patches,))
