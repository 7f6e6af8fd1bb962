"""Families that share the projections of z between objects with a feature in common.

logit_k = sum_r prod_g (W_g,k x)_r / sqrt(dim x) + b_k, where the z part of W_g,k belongs to the
value of feature group g that object k has, and the bit part to the head (spec 1, section 2).
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from bindscope.config.probes import MultilinearReuseProbe, QuadraticReuseProbe
from bindscope.errors import ConfigError
from bindscope.probes.base import Heads
from bindscope.probes.module import Family, Inputs, InputShape, Part, Projection, normal
from bindscope.probes.quadratic import Quadratic

ReuseConfig = QuadraticReuseProbe | MultilinearReuseProbe


class SharedFactor(Part):
    """`W_g x` of all objects for one group: z part per feature value, bit part per head.

    Parameters
    ----------
    dim
        Dimension of z.
    heads
        The object heads.
    group
        The group g.
    config
        Rank and conditioning.
    generator
        Draws the initial weights from N(0, 0.02^2).
    """

    def __init__(
        self,
        dim: int,
        heads: Heads,
        group: int,
        config: ReuseConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.sizes, self.rank = heads.sizes, config.rank
        self.grid = tuple(n if i == group else 1 for i, n in enumerate(heads.sizes))
        self.z = normal(generator, dim, heads.sizes[group], config.rank)
        self.bits = None
        if config.conditioned:
            self.bits = Projection(0, heads, config.rank, True, generator)

    def forward(self, z: Tensor, bits: Tensor) -> Tensor:
        """Return (B, n_1, .., n_G, rank), or with 1 for the other groups if unconditioned."""
        shared = (z @ self.z.flatten(1)).view(-1, *self.grid, self.rank)
        if self.bits is None:
            return shared
        return shared + self.bits(bits).view(-1, *self.sizes, self.rank)


class MultilinearReuse(Family):
    """Multilinear objects; feature heads are quadratic, for they have nothing to share.

    With one feature group it is linear, with two it is `quadratic_reuse`.
    """

    feature_family = Quadratic
    feature_probe = "quadratic"

    def __init__(
        self, config: ReuseConfig, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__(config, heads, shape, generator)
        self.factor = self.scale(shape.dim)
        self.factors = nn.ModuleList(
            SharedFactor(shape.dim, heads, group, config, generator)
            for group in range(len(heads.sizes))
        )
        self.bias = nn.Parameter(torch.zeros(heads.count))
        if heads.anchored:
            for parameter in self.factors[-1].parameters():
                nn.init.zeros_(parameter)

    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads)."""
        assert isinstance(inputs, Tensor)
        product: Tensor = reduce(torch.mul, (factor(inputs, bits) for factor in self.factors))
        return product.sum(-1).flatten(1) * self.factor + self.bias


class QuadraticReuse(MultilinearReuse):
    """The paper's parameter-shared quadratic probe: two feature groups."""

    def __init__(
        self,
        config: QuadraticReuseProbe,
        heads: Heads,
        shape: InputShape,
        generator: torch.Generator,
    ) -> None:
        if len(heads.sizes) != 2:
            raise ConfigError(
                f"probes.{config.name}",
                f"quadratic_reuse is defined for two feature groups, not {len(heads.sizes)}",
                "use family: multilinear_reuse",
            )
        super().__init__(config, heads, shape, generator)
