"""A fitted quadratic probe, read back from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.fitting.standardise import Standardiser
from bindscope.studies.same_object.data import Block, PairData, Pairs, TokenNorm, normed


@dataclass(frozen=True)
class FittedScorer:
    """g = x' W y + a.x + a.y + b of tokens x and y, normed and standardised.

    Attributes
    ----------
    matrix, linear, bias
        W (d, d), a (d,) and b (1,), float32.
    scaling, norm
        How tokens are read.
    """

    matrix: Tensor
    linear: Tensor
    bias: Tensor
    scaling: Standardiser
    norm: TokenNorm = "none"

    @classmethod
    def read(
        cls, weights: Mapping[str, NDArray[Any]], name: str, norm: TokenNorm = "none"
    ) -> FittedScorer:
        """Read the arrays that a fit wrote under a name (`marks.weights_name`)."""
        named = ("matrix", "linear", "bias", "mean", "scale")
        part = {key: np.asarray(weights[f"{name}.{key}"], np.float32) for key in named}
        matrix, linear, bias = (torch.from_numpy(part[key]) for key in named[:3])
        return cls(matrix, linear, bias, Standardiser(part["mean"], part["scale"]), norm)

    @property
    def mean(self) -> Tensor:
        """Mean token of train, (d,)."""
        return torch.from_numpy(self.scaling.mean)

    def scores(self, x: Tensor, of: Tensor | None = None) -> Tensor:
        """Return logits (B, Q, M) of scaled tokens (B, Q, d), all if left out, and (B, M, d)."""
        of = x if of is None else of
        matrix, linear, bias = (part.to(x) for part in (self.matrix, self.linear, self.bias))
        first, second = of @ linear, x @ linear
        products = torch.bmm(of @ matrix, x.mT) + second[:, None, :] + first[:, :, None]
        return products + bias

    def scaled(self, tokens: Tensor) -> Tensor:
        """Return raw tokens (B, M, d) as the form reads them."""
        return self.scaling.scaled(normed(tokens, self.norm).clone())

    def logits(self, block: Block) -> Tensor:
        """Return logits (P,) of a block whose tokens are raw."""
        return block.packed(self.scores(self.scaled(block.x)))

    def of_tokens(self, data: PairData, scaling: Standardiser | None = None) -> NDArray[np.float32]:
        """Return logits (n, M, M) of all images; `scaling` instead of the probe's own."""
        pairs = Pairs(data, scaling or self.scaling, self.norm)
        return np.concatenate([self.scores(block.x).numpy() for block in pairs.blocks()])
