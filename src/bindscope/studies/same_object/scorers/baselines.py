"""Closed forms that read no token: constants, each image's own constant, and the true classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.scorers.base import Fitted, Task, simple_columns
from bindscope.studies.same_object.strata import same_class

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import Baseline


@dataclass(frozen=True)
class ByClass:
    """One logit for pairs of different classes and one for pairs of the same, (2,)."""

    values: Tensor

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        return self.values[same_class(block).long()]


@dataclass(frozen=True)
class OfImage:
    """The log-odds of the pairs of each image itself: no scorer, but the bound of one.

    What an image's share of pairs of the same object alone can tell, without any patch; it reads
    the labels that it is measured on.
    """

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        image, n = block.image, len(block.valid)
        all_of = torch.bincount(image, minlength=n).float()
        same = torch.bincount(image, weights=block.same.float(), minlength=n).float()
        return ((same + 0.5) / (all_of - same + 0.5)).log()[image]


def fit(config: Baseline, task: Task) -> list[Fitted]:
    """Count the pairs of train."""
    pairs = task.pairs(None)
    scorer = OfImage() if config.kind == "image_majority" else ByClass(_counted(config, pairs[0]))
    weights = {} if isinstance(scorer, OfImage) else {"logits": scorer.values.cpu().numpy()}
    calibrated = not isinstance(scorer, OfImage)
    columns = simple_columns(scorer, pairs)
    return [Fitted(scorer, columns=columns, weights=weights, calibrated=calibrated)]


def _counted(config: Baseline, pairs: Pairs) -> Tensor:
    """Return the log-odds of train's pairs by whether classes are the same, (2,)."""
    counts = np.zeros((2, 2))
    for block in pairs.blocks():
        both = same_class(block).long() * 2 + block.same.long()
        counts += torch.bincount(both, minlength=4).cpu().numpy().reshape(2, 2)
    if config.kind == "majority":
        counts[:] = counts.sum(0)
    logits = np.log((counts[:, 1] + 0.5) / (counts[:, 0] + 0.5))
    return torch.tensor(logits, dtype=torch.float32, device=pairs.device)
