"""What the probe families share: head ranges, the joint projection, the anchored logit.

No family expands z per head. What all heads read of z is one matrix product, and the mask "head k
sees bit i only if i < k" is a strictly triangular weight, so what they read of the bits is another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from bindscope.fitting.generators import rng
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import Heads
from bindscope.studies.binding_information.registry import options_of

if TYPE_CHECKING:
    from bindscope.studies.binding_information.probes.batches import ProbeSource

STD = 0.02


@dataclass(frozen=True)
class PatchInputs:
    """A batch for a probe over patch tokens: (B, T, d), and [CLS] (B, d) or None."""

    patches: Tensor
    cls: Tensor | None

    @cached_property
    def transposed(self) -> Tensor:
        """The patch tokens as (B, d, T), made once for all probes that read the batch."""
        return self.patches.transpose(1, 2).contiguous()

    @cached_property
    def vector(self) -> Tensor:
        """What linear probes read: [CLS], where there is one, and the mean of the patch tokens."""
        mean = self.patches.mean(1)
        return mean if self.cls is None else torch.cat([self.cls, mean], dim=1)


ProbeInputs: TypeAlias = Tensor | PatchInputs


@dataclass(frozen=True)
class InputShape:
    """What a probe reads: vectors of `dim`, or so many patch `tokens`, with a [CLS] or without."""

    dim: int
    cls: bool = False
    tokens: int = 0

    @property
    def vector_dim(self) -> int:
        """Dimension of what linear probes read of it (`Family.vector`)."""
        return self.dim * (1 + self.cls)


def visible(heads: Heads) -> Tensor:
    """Return (length, count): 1 where the head sees the bit, i < first + k."""
    bit = torch.arange(heads.length)[:, None]
    return (bit < heads.first + torch.arange(heads.count)).to(torch.get_default_dtype())


def initial_weights(generator: torch.Generator, *shape: int) -> Tensor:
    """Return numbers from N(0, 0.02^2), the released code's initial weights."""
    return torch.randn(*shape, generator=generator) * STD


def initial_parameter(generator: torch.Generator, *shape: int) -> nn.Parameter:
    """Return a parameter drawn from N(0, 0.02^2)."""
    return nn.Parameter(initial_weights(generator, *shape))


def initial_rows(dim: int, heads: Heads, width: int, generator: torch.Generator) -> Tensor:
    """Return weights for z and the bits that a head may see, (dim + length, heads, width)."""
    parts = [initial_weights(generator, dim, heads.count, width)] if dim else []
    bits = initial_weights(generator, heads.length, heads.count, width)
    return torch.cat([*parts, bits * visible(heads)[:, :, None]])


class TensorModule(nn.Module):
    """A module whose call returns a tensor."""

    __call__: Callable[..., Tensor]


class _Project(torch.autograd.Function):
    """W x of all heads, where the last columns of W (those of the bits) are masked.

    `x` is (B, dim) and the weight (.., dim); returns (.., B) if `batch_last`, else (B, ..). Written
    out because weight, gradient and output are then used and made as they lie in memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, mask: Tensor, batch_last: bool) -> Tensor:
        ctx.save_for_backward(x, weight, mask)
        ctx.batch_last = batch_last
        rows, outer = weight.flatten(0, -2), weight.shape[:-1]
        if batch_last:
            return (rows @ x.t()).view(*outer, -1)
        return (x @ rows.t()).view(-1, *outer)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mask = ctx.saved_tensors
        by_rows = gradient.flatten(0, -2) if ctx.batch_last else gradient.flatten(1).t()
        by_x = by_rows.t() @ weight.flatten(0, -2) if ctx.needs_input_grad[0] else None
        by_weight = (by_rows @ x).view_as(weight)
        by_weight[..., -mask.shape[-1] :].mul_(mask)
        return by_x, by_weight, None, None


class Projection(TensorModule):
    """`W_k [z; masked bits]` of all heads as one product.

    Entries of the weight by which a head would see a bit that it may not see start at zero and have
    no gradient: they stay zero, and no step has to mask or to copy a weight. `rows` are initial
    weights, (dim + length, .., heads, width), as of `initial_rows`. Outputs are (B, .., heads,
    width), or (.., heads, width, B) with `batch_last`: passes over what lies between products are
    fastest with the batch last, where sums and broadcasts over `width` or heads run over whole
    rows.
    """

    mask: Tensor

    def __init__(self, rows: Tensor, heads: Heads, *, batch_last: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows.movedim(0, -1).contiguous())
        self.batch_last = batch_last
        mask = visible(heads).t()[:, None].contiguous()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project `x` = [z; bits - 1/2], (B, dim + length)."""
        projected: Tensor = _Project.apply(x, self.weight, self.mask, self.batch_last)  # type: ignore[no-untyped-call]
        return projected


class _SumOfProducts(torch.autograd.Function):
    """sum_r prod_g y_g, (B, .., heads), from (G, .., heads, r, B)."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        product: Tensor = reduce(torch.mul, y.unbind())
        return product.sum(-2).movedim(-1, 0).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        factors, by_y = y.unbind(), torch.empty_like(y)
        gradient = gradient.movedim(0, -1).contiguous().unsqueeze(-2)
        for g, by_factor in enumerate(by_y.unbind()):
            product = gradient
            for factor in (*factors[:g], *factors[g + 1 :]):
                product = torch.mul(product, factor, out=by_factor)
            if len(factors) == 1:
                by_factor.copy_(product)
        return by_y


def sum_of_products(y: Tensor) -> Tensor:
    """Return sum_r prod_g y_g, (B, .., heads), from factors (G, .., heads, r, B)."""
    product: Tensor = _SumOfProducts.apply(y)  # type: ignore[no-untyped-call]
    return product


class Family(TensorModule, ABC):
    """Base of the families: logits = exact prior log-odds (anchored targets) + learned terms.

    Under `protocol: converged` every family holds the linear one: its term is added to that of
    `linear`, a linear probe at its optimum which stays as it is, and is zero at the start. The
    generator draws the initial weights.
    """

    feature_family: ClassVar[type[Family] | None] = None  # of heads of F and counts, if another
    feature_probe: ClassVar[str | None] = None  # its name

    def __init__(
        self, config: AnyProbe, heads: Heads, shape: InputShape, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.heads = heads
        self.vector_dim = shape.vector_dim  # of what `vector` returns
        self.contained_dim = 0  # of what a family reads of it that this one contains; 0: none
        self.linear: Family | None = None
        self.key: tuple[int, ...] | None = None  # of a training step
        self.starts_at_zero = heads.anchored or config.protocol == "converged"

    @contextmanager
    def noise(self, key: tuple[int, ...]) -> Iterator[None]:
        """Train inside: what is random in a step of the family follows from the key."""
        self.key = key
        try:
            yield
        finally:
            self.key = None

    @property
    def linear_part(self) -> Family:
        """The linear probe that this one holds, under `protocol: converged`, or is."""
        return self if self.linear is None else self.linear

    def learn(self, source: ProbeSource) -> None:
        """Set what the family takes from the train split before it is fitted."""

    def take_learned(self, fitted: Family) -> None:
        """Take what other heads of the same fit have learned (`learn`)."""

    def vector(self, inputs: ProbeInputs) -> Tensor:
        """Return what a convex fit reads: vectors as they are, of tokens [CLS] and their mean."""
        return inputs.vector if isinstance(inputs, PatchInputs) else inputs

    @abstractmethod
    def term(self, inputs: ProbeInputs, bits: Tensor) -> Tensor:
        """Return the learned term (B, heads) from the inputs and the centred bits (B, length)."""

    def forward(self, inputs: ProbeInputs, bits: Tensor, anchors: Tensor | None = None) -> Tensor:
        """Return teacher-forced logits in nats, (B, heads).

        Inputs are standardised (B, d), or `PatchInputs`; of the true bits (B, length), 0 or 1, head
        k is given those before first + k. Anchors are prior log-odds in nats (B, heads).
        """
        bits = bits - 0.5
        term = self.term(inputs, bits)
        if self.linear is not None:
            term = term + self.linear.term(self.linear.vector(inputs), bits)
        return term if anchors is None else anchors + term

    def read(self, z: Tensor, bits: Tensor) -> Tensor:
        """Return [z; bits]."""
        return torch.cat([z, bits], dim=1)

    def scale(self, dim: int) -> float:
        """Return 1 / sqrt(dim x), the scale of bilinear logits; `dim` counts what is not bits."""
        return 1 / sqrt(dim + self.heads.length)


def build(
    probe: AnyProbe, heads: Heads, shape: InputShape, seed: int = 0, device: str = "cpu"
) -> Family:
    """Return a probe with its initial weights, which depend on the seed and the heads alone."""
    key = rng(seed, 0, *heads.name.encode()).integers(2**63)
    generator = torch.Generator().manual_seed(int(key))
    family = type(probe).load()
    if heads.kind != "object" and family.feature_family:
        family = family.feature_family
    module = family(probe, heads, shape, generator)
    if probe.protocol == "converged" and not probe.convex:
        linear = options_of("linear").load()
        module.linear = linear(probe, heads, InputShape(shape.vector_dim), generator)
        module.linear.requires_grad_(False)
    return module.to(device)
