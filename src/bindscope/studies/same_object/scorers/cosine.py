"""Scorer that fits two numbers: scale and offset of the cosine of two tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.histogram import UNCHANGED, Calibration, Histogram
from bindscope.studies.same_object.probes_config import CosineScorer
from bindscope.studies.same_object.scorers.base import Fitted, Scorer, Task, simple_columns


@dataclass(frozen=True)
class Cosine(Scorer):
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
