"""A fitted quadratic probe, read back from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.studies.same_object.data import Block
from bindscope.studies.same_object.subspace import of_name


@dataclass(frozen=True)
class FittedScorer:
    """g = x' W y + a.x + a.y + b of standardised tokens.

    Attributes
    ----------
    matrix, linear, bias
        W (d, d), a (d,) and b (1,), float32.
    mean, scale
        Of the tokens of train, (d,).
    """

    matrix: Tensor
    linear: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    @classmethod
    def read(cls, weights: Mapping[str, NDArray[Any]], name: str) -> FittedScorer:
        """Read the arrays of one fit."""
        part = of_name(weights, name)
        names = ("matrix", "linear", "bias", "mean", "scale")
        return cls(*(part[key].float() for key in names))

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,) of a block whose tokens are raw."""
        x = (block.x - self.mean.to(block.x)) * self.scale.to(block.x)
        own = x @ self.linear.to(x)
        products = torch.bmm(x @ self.matrix.to(x), x.mT) + own[:, None, :] + own[:, :, None]
        return block.packed(products + self.bias.to(x))
