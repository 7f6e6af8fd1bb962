"""Scorers that fit two numbers or none: constants, the true classes, the cosine of two tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bindscope.studies.same_object.data import Block, Pairs
from bindscope.studies.same_object.histogram import UNCHANGED, Calibration, Histogram
from bindscope.studies.same_object.metrics import same_class
from bindscope.studies.same_object.probes_config import Baseline, CosineScorer
from bindscope.studies.same_object.scorers.base import Fitted, Task, simple_columns


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


def fit_baseline(config: Baseline, task: Task) -> list[Fitted]:
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


@dataclass(frozen=True)
class Cosine:
    """g = scale cos(x, y) + offset."""

    by: Calibration = UNCHANGED

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        x = normalize(block.x, dim=-1)
        scores = block.packed(torch.bmm(x, x.transpose(1, 2)))
        return scores.mul_(self.by.scale).add_(self.by.offset)


def fit_cosine(config: CosineScorer, task: Task) -> list[Fitted]:
    """Fit scale and offset to the pairs of train.

    Scores are counted in fine bins, whose means stand for them: the loss is off by less than 1e-6.
    """
    pairs = task.pairs(None)
    plain, counted = Cosine(), Histogram()
    for block in pairs[0].blocks():
        counted.add(plain.logits(block).cpu().numpy(), block.same.cpu().numpy())
    scorer = Cosine(counted.calibrated())
    learned = {
        "slope": np.array([scorer.by.scale], np.float32),
        "offset": np.array([scorer.by.offset], np.float32),
    }
    columns = simple_columns(scorer, pairs)
    return [Fitted(scorer, columns=columns, weights=learned)]
