"""Linear family: logit_k = w_k.z + sum_{i<k} a_ki (o_i - 1/2) + b_k."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from bindscope.studies.binding_information.families import ProbeOptions
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    ProbeInputs,
    Projection,
)


class Linear(Family):
    """Logistic regression per head.

    Initial weights are those of a `torch.nn.Linear` over z and of one over the bits, uniform within
    1 / sqrt(inputs), and biases zero (the released code's); all are zero if the target is anchored.
    `protocol: converged` starts at zero.
    """

    def __init__(
        self, config: ProbeOptions, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        inputs = (shape.dim, heads.length)
        bounds = torch.cat([torch.full((width,), 1 / sqrt(width)) for width in inputs])
        if heads.anchored:
            bounds.zero_()
        rows = torch.empty(len(bounds), heads.count, 1).uniform_(-1, 1, generator=generator)
        self.bias = nn.Parameter(torch.zeros(heads.count))
        self.weights = Projection(rows * bounds[:, None, None], heads)
        with torch.no_grad():
            self.weights.weight[..., shape.dim :].mul_(self.weights.mask)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        return self.weights(self.read(inputs, bits)).squeeze(2) + self.bias
