"""Linear family: logit_k = w_k.z + sum_{i<k} a_ki (o_i - 1/2) + b_k (spec 1, section 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bindscope.studies.binding_information.config import LinearProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.convex import fit_convex
from bindscope.studies.binding_information.probes.module import (
    Family,
    Inputs,
    InputShape,
    Projection,
    drawn_rows,
)


class Linear(Family):
    """Logistic regression per head.

    Initial weights and biases are those of `torch.nn.Linear` over [z; bits], uniform within
    1 / sqrt(dim x), or zero if the target is anchored. `protocol: converged` starts at zero.
    """

    convex = staticmethod(fit_convex)

    def __init__(
        self, config: LinearProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        rows = drawn_rows(shape.dim, heads, 1, config.conditioned, generator)
        bound = 0.0 if heads.anchored else self.scale(shape.dim)
        self.bias = nn.Parameter(
            torch.empty(heads.count).uniform_(-bound, bound, generator=generator)
        )
        self.weights = Projection(
            rows.uniform_(-bound, bound, generator=generator), heads, config.conditioned
        )
        with torch.no_grad():
            if self.weights.mask is not None:
                self.weights.weight[..., shape.dim :].mul_(self.weights.mask)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        return self.weights(self.read(inputs, bits)).squeeze(2) + self.bias
