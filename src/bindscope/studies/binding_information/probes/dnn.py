"""Dnn family: an MLP of four linear layers with GELU per head, x = [z; masked bits]."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from bindscope.studies.binding_information.families import DnnProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    ProbeInputs,
    Projection,
    initial_parameter,
    initial_rows,
)


class Dnn(Family):
    """MLPs of all heads side by side, whose products are batched over heads.

    Weights start from N(0, 0.02^2), biases at zero; the last layer starts at zero if the term does.
    """

    def __init__(
        self, config: DnnProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        k, width = heads.count, config.hidden
        rows = initial_rows(shape.dim, heads, width, generator)
        self.first = Projection(rows, heads)
        self.first_bias = nn.Parameter(torch.zeros(k, width))
        self.hidden = nn.ParameterList(
            initial_parameter(generator, k, width, width) for _ in range(2)
        )
        self.hidden_bias = nn.ParameterList(torch.zeros(k, 1, width) for _ in range(2))
        self.last = initial_parameter(generator, k, width, 1)
        self.last_bias = nn.Parameter(torch.zeros(k))
        if self.starts_at_zero:
            nn.init.zeros_(self.last)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        y = gelu(self.first(self.read(inputs, bits)) + self.first_bias).transpose(0, 1)
        for weight, bias in zip(self.hidden, self.hidden_bias, strict=True):
            y = gelu(torch.baddbmm(bias, y, weight))
        return torch.bmm(y, self.last).squeeze(2).t() + self.last_bias
