"""Scores of all pairs of patches of test images by a fitted quadratic probe, and their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import PairData, Pairs, TokenNorm
from bindscope.studies.same_object.scorers.forms import all_pairs

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class QuadraticWeights:
    """A fitted quadratic probe: g = x' W y + a.x + a.y + b of scaled tokens x and y."""

    matrix: Tensor
    linear: Tensor
    bias: Tensor
    scaling: Standardiser
    norm: TokenNorm

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], name: str, norm: TokenNorm) -> QuadraticWeights:
        """Take what a fit wrote under a name (`marks.weights_name`)."""
        part = {
            key: arrays[f"{name}.{key}"] for key in ("matrix", "linear", "bias", "mean", "scale")
        }
        matrix, linear, bias = (torch.from_numpy(part[key]) for key in ("matrix", "linear", "bias"))
        return cls(matrix, linear, bias, Standardiser(part["mean"], part["scale"]), norm)

    def scores(self, x: Tensor) -> Tensor:
        """Return logits (B, M, M) of scaled tokens (B, M, d)."""
        return all_pairs(x, self.matrix, self.linear, self.bias)

    def of_tokens(self, data: PairData, scaling: Standardiser | None = None) -> NDArray[np.float32]:
        """Return logits (n, M, M) of all images; `scaling` instead of the probe's own."""
        pairs = Pairs(data, scaling or self.scaling, self.norm)
        return np.concatenate([self.scores(block.x).numpy() for block in pairs.blocks()])


@dataclass(frozen=True)
class Labels:
    """Labels of all patches of images; see `data.PairData`.

    Attributes
    ----------
    instances, valid, positions
        (n, M), (n, M), (n, M, 2).
    things
        bool (n, M): valid patches of an object that is not stuff.
    background
        Whether patches of instance 0 are of one object.
    """

    instances: NDArray[np.int16]
    valid: Bools
    positions: NDArray[np.float32]
    things: Bools
    grid: tuple[int, int]
    background: str = "ignore"

    @classmethod
    def of(cls, data: PairData, stuff: NDArray[Any]) -> Labels:
        """Take the labels of a split; `stuff` (n, M) is not 0 for patches of stuff."""
        things = data.valid & (data.instances > 0) & (stuff == 0)
        return cls(data.instances, data.valid, data.positions, things, data.grid, data.background)

    @cached_property
    def same(self) -> Bools:
        """Whether two patches are of the same object, (n, M, M)."""
        return self.same_of(self.instances)

    def same_of(self, instances: NDArray[Any]) -> Bools:
        """The same of other labels (n, M)."""
        same: Bools = instances[:, :, None] == instances[:, None, :]
        if self.background != "object":
            same = same & (instances != 0)[:, :, None]
        return same

    @cached_property
    def pairs(self) -> Bools:
        """Which (i, j) are pairs i < j of valid patches, (n, M, M)."""
        return self.pairs_of(self.valid)

    def pairs_of(self, valid: Bools) -> Bools:
        """The same of some patches (n, M)."""
        upper = np.triu(np.ones((valid.shape[1],) * 2, bool), 1)
        both: Bools = valid[:, :, None] & valid[:, None, :] & upper
        return both
