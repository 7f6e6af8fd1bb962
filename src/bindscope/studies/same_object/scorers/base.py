"""What a scorer is, and what a fit of one returns.

A scorer gives every pair of patches of an image a logit in nats: above 0 says that they are of the
same object. A family is a function ``fit(config, task) -> list[Fitted]``; the registry names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs, standardiser
from bindscope.studies.same_object.scorers.positions import PairSplit

LN2 = float(np.log(2.0))


class Scorer(ABC):
    """Logits of pairs."""

    @abstractmethod
    def logits(self, block: Any) -> Tensor:
        """Return the logits of a block's pairs in nats, float32 (P,)."""

    def graded(self, block: PairBlock) -> dict[str, tuple[Any, Any]]:
        """Return, by column, how many names of patches are right, and of how many.

        Both may be arrays, whose ratios are averaged in the end. Most scorers name no patch.
        """
        return {}


@dataclass(frozen=True)
class FittedProbe:
    """One scorer of a fit, which is one row of the table."""

    scorer: Scorer  # gives the logits of blocks that `Task.pairs` reads
    scaling: Standardiser | None = None  # how tokens are read for it
    seed: int = 0  # of its fit; 0 of what has none
    rank: int = 0  # rank of its form, where it is chosen; 0 of other families
    # What only the fit knows of the row: steps, flags, ridge, spectrum.
    columns: Mapping[str, Any] = field(default_factory=dict)
    # Flat name -> array: all that the scorer needs, scaling included.
    weights: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    calibrate: bool = True  # whether Platt's map of validation decides, or the sign of the logit


@dataclass(frozen=True)
class FitTask:
    """What a fit is given."""

    # Patches of the two splits that a fit may see.
    train: PairData
    val: PairData
    memory: int = 2**30  # bytes that the blocks of both may take
    device: str = "cpu"  # where it computes
    seeds: Sequence[int] = (0,)  # seeds of families that have one
    checkpoints: Checkpoints | None = None  # of what is fitted, one part after the other

    def scaling(self) -> Standardiser:
        """Return the scaling by mean and deviation of the valid tokens of train."""
        return standardiser(self.train)

    def pairs(self, scaling: Standardiser | None) -> tuple[PatchPairs, PatchPairs]:
        """Return train and val, in memory where both fit."""
        n = [split.n_images for split in (self.train, self.val)]
        shares = [self.memory * k // max(1, sum(n)) for k in n]
        first, second = (
            PatchPairs(split, scaling, share, self.device)
            for split, share in zip((self.train, self.val), shares, strict=True)
        )
        return first, second


def scaling_arrays(scaling: Standardiser | None) -> dict[str, npt.NDArray[np.float32]]:
    """Return the arrays of a scaling by name, for the weights of a scorer."""
    return {} if scaling is None else {"mean": scaling.mean, "scale": scaling.scale}


def mean_loss(scorer: Scorer, pairs: PairSplit) -> float:
    """Return the mean loss of a split's pairs in bits."""
    total = 0.0
    for block in pairs.blocks():
        lost = block.counted(softplus(scorer.logits(block) * block.sign))
        total += float(lost.sum(dtype=torch.float64))
    return total / pairs.n_pairs / LN2


def simple_columns(scorer: Scorer, pairs: Sequence[PatchPairs]) -> dict[str, Any]:
    """Return what a row says of a fit that takes no steps; `pairs` are train and val."""
    train, val = (mean_loss(scorer, split) for split in pairs)
    return {"train_loss_bits": train, "val_loss_bits": val, "steps": 0}
