"""Set family: an MLP on every patch token, summed over them, then one over the sum.

s = sum_t gelu(W2 gelu(W1 x_t + p_t) + b2) / sqrt(T) + C [CLS], p_t the position embedding of patch
t; logit_k = v_k . (s + gelu(W3 s + b3)) + sum_{i<k} a_ki (o_i - 1/2) + b_k. (Deep sets, Zaheer et
al. 2017, arXiv 1703.06114, with positions.)
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from bindscope.fitting.generators import rng
from bindscope.studies.binding_information.families import SetProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    PatchInputs,
    ProbeInputs,
    Projection,
)

POSITION = 0.5


class Set(Family):
    """What tokens say one by one is summed for all heads of a target; no token meets another.

    Weights start uniform and of variance 1 / inputs, positions normal with deviation 1/2, what
    heads read at zero. While it is fitted, a share of the sum and of the layer after it is hidden
    from each scene (dropout).
    """

    def __init__(
        self, config: SetProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)

        def matrix(rows: int, columns: int) -> nn.Parameter:
            bound = sqrt(3 / columns)
            return nn.Parameter(
                torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
            )

        hidden, summed, self.dropout = config.hidden, config.summed, config.dropout
        self.first = matrix(hidden, shape.dim)
        positions = torch.randn(shape.tokens, hidden, generator=generator) * POSITION
        self.positions = nn.Parameter(positions)
        self.second, self.second_bias = matrix(summed, hidden), nn.Parameter(torch.zeros(summed))
        self.of_cls = matrix(summed, shape.dim) if shape.cls else None
        self.third, self.third_bias = matrix(summed, summed), nn.Parameter(torch.zeros(summed))
        rows = torch.zeros(summed + heads.length, heads.count, 1)
        self.last = Projection(rows, heads)
        self.bias = nn.Parameter(torch.zeros(heads.count))

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, PatchInputs)
        tokens = inputs.patches.shape[1]
        y = gelu(linear(inputs.patches, self.first) + self.positions)
        y = gelu(linear(y, self.second, self.second_bias)).sum(1) / sqrt(tokens)
        if self.of_cls is not None:
            assert inputs.cls is not None
            y = y + linear(inputs.cls, self.of_cls)
        y = self._hidden_in_part(y, 0)
        # Heads also read the sum itself: without that a fit starts on a plateau of 300 steps.
        y = y + self._hidden_in_part(gelu(linear(y, self.third, self.third_bias)), 1)
        return self.last(self.read(y, bits)).squeeze(2) + self.bias

    def _hidden_in_part(self, y: Tensor, layer: int) -> Tensor:
        if self.key is None or not self.dropout:
            return y
        numbers = rng(*self.key, layer, *self.heads.name.encode()).random(y.shape, np.float32)
        mask = torch.from_numpy(numbers >= self.dropout).to(y.device)
        return y * mask / (1 - self.dropout)
