"""What all objectives share: a transformer, and what its objective adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bindscope.models.vit import ViT, initialise

UInt8 = NDArray[np.uint8]
AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass(frozen=True)
class Setting:
    """What an objective is made for.

    Parameters
    ----------
    sizes
        Number of values of each feature group.
    objects
        Object codes of some training scenes, uint8 (N, K).
    generator
        Where initial weights come from.
    """

    sizes: Sequence[int]
    objects: UInt8
    generator: torch.Generator


class Objective(nn.Module, ABC):
    """A transformer in training, with heads, decoder or teacher; see `core.interfaces.Objective`.

    Parameters
    ----------
    vit
        The transformer that is kept.
    """

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        self.vit = vit

    @abstractmethod
    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean loss of a batch in bits.

        Parameters
        ----------
        pixels
            float32 (B, 3, px, px), from -1 to 1.
        objects
            Object codes, float32 (B, K), 0 or 1.
        generator
            On the CPU: where the batch's masks, views and noise come from.
        """

    def before_step(self) -> None:
        """Do what follows from the step before, such as letting a teacher follow; once a step."""

    def kept(self) -> dict[str, Tensor]:
        """Return the weights that are kept: the transformer's."""
        return dict(self.vit.state_dict())


def made(module: AnyModule, generator: torch.Generator) -> AnyModule:
    """Return a module that was made on torch's meta device, on the CPU and initialised."""
    module.to_empty(device="cpu")
    initialise(module, generator)
    return module
