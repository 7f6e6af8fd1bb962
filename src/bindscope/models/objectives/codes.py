"""Objectives that ask [CLS] for a code: which objects there are, or which features."""

from __future__ import annotations

from math import log

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bindscope.codes.space import feature_code
from bindscope.core.array_types import UInt8
from bindscope.models.objectives.base import Objective, Setting
from bindscope.models.vit import ViT, on_cpu


class Objects(Objective):
    """The object code O, read linearly from [CLS] after the final norm; bits are summed."""

    def __init__(self, vit: ViT, setting: Setting) -> None:
        super().__init__(vit)
        self.sizes = list(setting.sizes)
        self.head = _head(self.target(setting.objects), vit.width)

    def target(self, objects: UInt8) -> UInt8:
        """Return the predicted code, uint8 (N, bits)."""
        return objects

    def loss_bits(self, pixels: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return the cross-entropy in bits per scene."""
        codes = self.target(objects.cpu().numpy().astype(np.uint8))
        targets = torch.from_numpy(codes).to(pixels.device, torch.float32)
        logits = self.head(self.vit.final_cls(pixels))
        nats = functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return nats / (len(targets) * log(2))


class Features(Objects):
    """The feature code F = f(O), in the same way."""

    def target(self, objects: UInt8) -> UInt8:
        """Return the feature code, uint8 (N, n)."""
        return feature_code(objects, self.sizes)


def _head(codes: UInt8, width: int) -> nn.Linear:
    """Return a readout that starts as the codes' (smoothed) log-odds, whatever it reads."""
    odds = (codes.sum(axis=0, dtype=np.float64) + 0.5) / (len(codes) - codes.sum(axis=0) + 0.5)
    with on_cpu():
        head = nn.Linear(width, codes.shape[1])
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy(np.log(odds)))
    return head
