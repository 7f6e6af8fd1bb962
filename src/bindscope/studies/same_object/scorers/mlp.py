"""A perceptron on [x * y, |x - y|] of a pair: symmetric, and the control of capacity.

The only scorer that makes vectors of pairs; it makes them for a few pairs at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.scorers.base import Fitted, Task
from bindscope.studies.same_object.scorers.descended import ModulePairs, descended, pair_loss

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import MlpScorer

GROUP = 2**22  # numbers of the pairs that are made at a time


class Perceptron(nn.Module):
    """g = v gelu(U [x * y, |x - y|] + c) + b."""

    def __init__(self, dim: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        first = torch.randn(2 * dim, hidden, generator=generator) / (2 * dim) ** 0.5
        self.first, self.bias = nn.Parameter(first), nn.Parameter(torch.zeros(hidden))
        self.last = nn.Parameter(torch.zeros(hidden, 1))
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return logits (P,) of tokens (P, d)."""
        hidden = torch.cat([x * y, (x - y).abs()], dim=1) @ self.first + self.bias
        return (gelu(hidden) @ self.last + self.offset).squeeze(1)

    def of(self, block: Block) -> Tensor:
        """Return the logits of a block's pairs, (P,), a group of them at a time."""
        x = block.x.reshape(-1, block.x.shape[-1])
        step = max(1, GROUP // (2 * x.shape[1]))
        groups = zip(torch.split(block.left, step), torch.split(block.right, step), strict=True)
        found = [self(x[left], x[right]) for left, right in groups]
        return torch.cat(found) if found else x.new_zeros(0)


def fit(config: MlpScorer, task: Task) -> list[Fitted]:
    """Fit a perceptron of each seed."""
    dim, hidden = task.train.dim, config.hidden
    return descended(config, task, lambda g: Perceptron(dim, hidden, g), pair_loss, ModulePairs)
