"""What all objectives share: a transformer, and what its objective adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bindscope.core.array_types import UInt8
from bindscope.models.vit import BESIDE, ViT

ADDED = BESIDE + "added."  # begins the names of weights of a loss beside the objective


@dataclass(frozen=True)
class TokenSources:
    """What the tokens of a batch show, as an objective cuts, hides and moves its scenes.

    `scenes`, int64 (R,), are numbers in the batch of the scenes that rows of tokens come from;
    `patches`, int64 (R, T), those of that scene, in raster order, that tokens show: -1 for [CLS],
    and for what lies beyond the scene.
    """

    scenes: Tensor
    patches: Tensor


@dataclass(frozen=True)
class Setting:
    """What an objective is made for: sizes of feature groups, and where initial weights come from.

    `objects` are codes of some training scenes, uint8 (N, K).
    """

    sizes: Sequence[int]
    objects: UInt8
    generator: torch.Generator


class Objective(nn.Module, ABC):
    """A transformer in training, with heads, decoder or teacher (`interfaces.Objective`)."""

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        self.vit = vit

    @abstractmethod
    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean loss of a batch in bits.

        Pixels are float32 (B, 3, px, px), from -1 to 1, object codes float32 (B, K), 0 or 1. The
        generator, on the CPU, is where the batch's masks, views and noise come from.
        """

    def before_step(self) -> None:
        """Do what follows from the step before, such as letting a teacher follow; once a step."""

    def visible_tokens(self, pixels: Tensor, generator: torch.Generator) -> TokenSources:
        """Return which tokens `loss_bits` makes of a batch, the generator in the same state."""
        every = torch.arange(-1, self.vit.rows**2, device=pixels.device)
        scenes = torch.arange(len(pixels), device=pixels.device)
        return TokenSources(scenes, every.expand(len(pixels), -1))

    def saved_tensors(self) -> dict[str, Tensor]:
        """Return all weights: the transformer's under their names in it, others after `BESIDE`."""
        return {_stored_name(name): value for name, value in self.state_dict().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take weights that `kept` gave; RuntimeError if a name or a shape is another one."""
        state_names = {_stored_name(name): name for name in self.state_dict()}
        self.load_state_dict(
            {state_names.get(name, name): value for name, value in tensors.items()}
        )


def _stored_name(name: str) -> str:
    """Return the name that a weight of an objective is kept under."""
    return name.removeprefix("vit.") if name.startswith("vit.") else BESIDE + name
