"""What the probe families share: head ranges, the joint projection, the anchored logit.

No family expands z per head. What all heads read of z is one matrix product, and the mask "head k
sees bit i only if i < k" is a strictly triangular weight, so what they read of the bits is another
(spec 1, section 2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from bindscope.config.probes import AnyProbe
from bindscope.probes.base import Heads

STD = 0.02


class Tokens(NamedTuple):
    """A batch for a probe over patch tokens: (B, T, d), and [CLS] (B, d) or None."""

    patches: Tensor
    cls: Tensor | None


Inputs: TypeAlias = Tensor | Tokens
Fit: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class InputShape:
    """What a probe reads: vectors of `dim`, and whether patch tokens come with a [CLS]."""

    dim: int
    cls: bool = False


def visible(heads: Heads) -> Tensor:
    """Return (length, count): 1 where the head sees the bit, i < first + k."""
    bit = torch.arange(heads.length)[:, None]
    return (bit < heads.first + torch.arange(heads.count)).to(torch.get_default_dtype())


def normal(generator: torch.Generator, *shape: int) -> nn.Parameter:
    """Return a parameter drawn from N(0, 0.02^2), the released code's initial weights."""
    return nn.Parameter(torch.randn(*shape, generator=generator) * STD)


class Part(nn.Module):
    """A module whose call returns a tensor."""

    __call__: Callable[..., Tensor]


class Projection(Part):
    """`W_k [z; masked bits]` for a range of heads, as one product.

    Parameters
    ----------
    dim
        Dimension of z; 0 if only the bits are read.
    heads
        The heads.
    width
        Rows of each W_k.
    conditioned
        Whether the bits are read.
    generator
        Draws the weights from N(0, 0.02^2).
    """

    mask: Tensor

    def __init__(
        self, dim: int, heads: Heads, width: int, conditioned: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.z = normal(generator, dim, heads.count, width) if dim else None
        self.bits = normal(generator, heads.length, heads.count, width) if conditioned else None
        self.register_buffer("mask", visible(heads)[:, :, None], persistent=False)

    def weight(self) -> Tensor:
        """Return the masked weight, (dim [+ length], heads, width)."""
        parts: list[Tensor] = [] if self.z is None else [self.z]
        parts += [] if self.bits is None else [self.bits * self.mask]
        return torch.cat(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Project `x` = [z; bits - 1/2], (B, dim [+ length]), to (B, heads, width)."""
        weight = self.weight()
        return (x @ weight.flatten(1)).view(-1, *weight.shape[1:])


class Family(Part, ABC):
    """Base of the families: logits = exact prior log-odds (anchored targets) + learned term.

    Parameters
    ----------
    config
        The probe's configuration.
    heads
        Which bits are predicted.
    shape
        What the probe reads.
    generator
        Draws the initial weights.
    """

    patches = False
    convex: ClassVar[Fit | None] = None  # how `protocol: converged` fits it, if not in batches
    feature_family: ClassVar[type[Family] | None] = None  # None: feature heads are like the others
    feature_probe: ClassVar[str | None] = None  # its name

    def __init__(
        self, config: AnyProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.heads, self.conditioned = heads, config.conditioned

    @abstractmethod
    def term(self, inputs: Inputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads) from the inputs and the centred bits (B, length)."""

    def forward(self, inputs: Inputs, bits: Tensor, anchors: Tensor | None = None) -> Tensor:
        """Return teacher-forced logits.

        Parameters
        ----------
        inputs
            Standardised representation (B, d), or `Tokens`.
        bits
            The true bits (B, length), 0 or 1; head k is given those before first + k.
        anchors
            Prior log-odds in nats (B, heads), for anchored targets.

        Returns
        -------
        Tensor
            Logits in nats, (B, heads).
        """
        term = self.term(inputs, bits - 0.5)
        return term if anchors is None else anchors + term

    def read(self, z: Tensor, bits: Tensor) -> Tensor:
        """Return [z; bits], or z alone for an unconditioned probe."""
        return torch.cat([z, bits], dim=1) if self.conditioned else z

    def scale(self, dim: int) -> float:
        """Return 1 / sqrt(dim x), the scale of bilinear logits; `dim` counts what is not bits."""
        return 1 / sqrt(dim + (self.heads.length if self.conditioned else 0))
