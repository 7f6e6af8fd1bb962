"""Pooled quadratic family: a quadratic form of every patch token, averaged over the tokens.

With u_t the K principal components of patch token t, each of variance 1 over the train split,
logit_k = w_k . [CLS; mean_t x_t; mean_t u_t u_t'] + sum_{i<k} a_ki (o_i - 1/2) + b_k, a probe that
is linear in its weights. (Second-order pooling, Carreira et al. 2012, doi
10.1007/978-3-642-33786-4_32.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from bindscope.studies.binding_information.families import PooledQuadraticProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.probes.batches import ProbeSource
from bindscope.studies.binding_information.probes.linear import Linear
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    PatchInputs,
    ProbeInputs,
)

BLOCK = 4096  # tokens of which covariances are summed at a time
NOTHING = 1e-9  # of the largest variance: a component that is rounding


class PooledQuadratic(Linear):
    """Logistic regression per head on [CLS], the mean token, and the mean of products."""

    basis: Tensor

    def __init__(
        self,
        config: PooledQuadraticProbe,
        heads: Heads,
        shape: InputShape,
        generator: torch.Generator,
    ) -> None:
        components = min(config.components, shape.dim)
        products = components * (components + 1) // 2
        super().__init__(config, heads, InputShape(shape.vector_dim + products), generator)
        self.contained_dim = shape.vector_dim  # without products it is the linear family
        self.register_buffer("basis", torch.zeros(shape.dim, components))
        self.pairs = torch.triu_indices(components, components)

    def learn(self, source: ProbeSource) -> None:
        """Take the principal components of the patch tokens of the train split."""
        total = torch.zeros(len(self.basis), len(self.basis), dtype=torch.float64)
        n = 0
        for inputs, *_ in source.split("train", max(1, BLOCK // source.shape.tokens)):
            assert isinstance(inputs, PatchInputs)
            tokens = inputs.patches.flatten(0, 1).double()  # standardised
            total += (tokens.t() @ tokens).cpu()
            n += len(tokens)
        variances, directions = torch.linalg.eigh(total / n)
        variances, directions = variances.flip(0), directions.flip(1)
        scale = variances.clamp_min(NOTHING * float(variances[0]) + 1e-30).rsqrt()
        scale[variances <= NOTHING * variances[0]] = 0
        self.basis.copy_((directions * scale)[:, : self.basis.shape[1]])

    def take_learned(self, fitted: Family) -> None:
        """Take the principal components of other heads."""
        assert isinstance(fitted, PooledQuadratic)
        self.basis.copy_(fitted.basis)

    def vector(self, inputs: ProbeInputs) -> Tensor:
        """Return [CLS], the mean token and the mean products of components, (B, d)."""
        assert isinstance(inputs, PatchInputs)
        components = inputs.patches @ self.basis
        products = components.transpose(1, 2) @ components / components.shape[1]
        row, column = self.pairs
        return torch.cat([inputs.vector, products[:, row, column]], dim=1)

    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        return super().term(self.vector(inputs), bits)
