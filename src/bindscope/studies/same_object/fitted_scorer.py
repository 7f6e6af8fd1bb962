"""A fitted quadratic or low-rank probe, read back from its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
        if "matrix" not in part:
            part["matrix"] = part["rows"].t() * part["signs"] @ part["rows"]
        names = ("matrix", "linear", "bias", "mean", "scale")
        return cls(*(part[key].float() for key in names))

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,) of a block whose tokens are raw."""
        x = (block.x - self.mean.to(block.x)) * self.scale.to(block.x)
        own = x @ self.linear.to(x)
        products = torch.bmm(x @ self.matrix.to(x), x.mT) + own[:, None, :] + own[:, :, None]
        return block.packed(products + self.bias.to(x))


@dataclass(frozen=True)
class Recorded:
    """Logits that were computed before, in the order of images and pairs.

    Attributes
    ----------
    values
        float32, of all pairs.
    first
        int64 (n,): number of pairs before each image.
    """

    values: Tensor
    first: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Tensor], pairs_of_images: NDArray[np.int64]) -> Recorded:
        """Put the logits of successive images together."""
        first = np.concatenate([[0], pairs_of_images.cumsum()[:-1]])
        return cls(torch.cat(list(parts)), first)

    def logits(self, block: Block) -> Tensor:
        """Return the logits (P,) of a block."""
        start = int(self.first[block.first])
        return self.values[start : start + len(block.index)]
