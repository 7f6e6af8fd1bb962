"""Scorers that fit a number or two: the dot product and the cosine of two tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.histogram import UNCHANGED, Calibration, Histogram
from bindscope.studies.same_object.scorers.base import (
    Fitted,
    Task,
    scaling_arrays,
    simple_columns,
)

if TYPE_CHECKING:
    from bindscope.studies.same_object.probes_config import CosineScorer, DotScorer


@dataclass(frozen=True)
class Similarity:
    """g = scale s(x, y) + offset, s the dot product or the cosine."""

    cosine: bool
    by: Calibration = UNCHANGED

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,)."""
        x = normalize(block.x, dim=-1) if self.cosine else block.x
        scores = block.packed(torch.bmm(x, x.transpose(1, 2)))
        return scores.mul_(self.by.scale).add_(self.by.offset)


def fit(config: DotScorer | CosineScorer, task: Task) -> list[Fitted]:
    """Fit the offset, and the scale where asked, to the pairs of train.

    Scores are counted in fine bins, whose means stand for them: the loss is off by less than 1e-6.
    """
    scaling = task.scaling(config.token_norm) if config.standardise else None
    pairs = task.pairs(scaling, config.token_norm)
    plain, counted = Similarity(config.family == "cosine"), Histogram()
    for block in pairs[0].blocks():
        counted.add(plain.logits(block).cpu().numpy(), block.same.cpu().numpy())
    scorer = Similarity(plain.cosine, counted.calibrated(temperature=config.temperature))
    learned = {
        "slope": np.array([scorer.by.scale], np.float32),  # `scale` is that of tokens
        "offset": np.array([scorer.by.offset], np.float32),
    }
    return [
        Fitted(
            scorer,
            scaling,
            config.token_norm,
            columns=simple_columns(scorer, pairs),
            weights=learned | scaling_arrays(scaling),
        )
    ]
