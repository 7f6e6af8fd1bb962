"""Forms: logits of pairs that are linear in a vector of weights, as products over whole images.

A form is a sum of parts and a bias b; its weights theta are those of the parts, one after the
other, and b. Logits of a block are X W X' and never an (M, M, d) array; the gradient of
sum r_ij g_ij is X' (U X), with the residuals r in the upper triangle U of (M, M).

The loss is convex in theta. Its Hessian is at most a quarter of the second moments of what theta
multiplies, and for two tokens x, y that were drawn alone these follow from the covariance S of the
tokens: E[(x'Wy)^2] = tr(W S W S). So one decomposition S = Q diag(s) Q' preconditions all parts,
and for W no (d^2, d^2) matrix is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bindscope.studies.same_object.data import PairBlock, PatchPairs

BOUND = 0.25  # of p (1 - p), the curvature of the loss in a logit
LEAST = 1e-4  # share of the mean curvature that every direction is taken to have


@dataclass(frozen=True)
class PairForm:
    """A sum of parts, and a bias, which is no part and under no ridge."""

    parts: Sequence[LinearTerm]

    @property
    def size(self) -> int:
        """Number of weights p."""
        return sum(prod(part.shape) for part in self.parts) + 1

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """Return weights (p,) by part, and the bias (1,)."""
        *flat, bias = torch.split(theta, [*(prod(part.shape) for part in self.parts), 1])
        each = zip(self.parts, flat, strict=True)
        return {part.name: row.view(part.shape) for part, row in each} | {"bias": bias}

    def join(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return weights (p,); those of parts that are not named are 0."""
        bias = weights["bias"]
        parts = (weights.get(part.name, bias.new_zeros(part.shape)) for part in self.parts)
        return torch.cat([*(part.reshape(-1) for part in parts), bias])

    def logits(self, theta: Tensor, block: Any) -> Tensor:
        """Return logits (P,) at weights (p,)."""
        weights, (*others, last) = self.split(theta), self.parts
        total = last.logits(weights[last.name], block) + weights["bias"]
        for part in others:
            total.add_(part.logits(weights[part.name], block))
        return total

    def slope(self, residuals: Tensor, block: Any) -> Tensor:
        """Return the gradient (p,) of the sum of residuals (P,) times logits."""
        slopes = {part.name: part.slope(residuals, block) for part in self.parts}
        return self.join({**slopes, "bias": residuals.sum()[None]})

    def penalty(self) -> Tensor:
        """Return the share of the ridge of each weight, float64 (p,): the second moment.

        So one strength suits all parts, as if each had been standardized.
        """
        moments = [(prod(part.shape), part.moment) for part in self.parts]
        parts = [torch.full((n,), moment, dtype=torch.float64) for n, moment in moments]
        return torch.cat([*parts, torch.zeros(1, dtype=torch.float64)])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Return about the inverse of the Hessian of the mean loss and a ridge, times (p,)."""
        pulled = self.split(gradient)
        steps = {
            part.name: part.precondition(pulled[part.name], l2 * part.moment) for part in self.parts
        }
        return self.join({**steps, "bias": pulled["bias"] / BOUND})


@dataclass(frozen=True)
class Combination:
    """A form at r theta_1 + s theta_2, with b more in its bias: a form of the weights (r, s, b).

    In float64: where the parts say much the same, r and s lie in a flat valley.
    """

    form: PairForm
    thetas: Sequence[Tensor]  # two weights (p,)

    def penalty(self) -> Tensor:
        """Return none: three weights need no ridge, (3,)."""
        return torch.zeros(3, dtype=torch.float64)

    def _columns(self, block: Any) -> Tensor:
        """Return what the weights multiply, (P, 3)."""
        parts = [self.form.logits(theta, block).double() for theta in self.thetas]
        return torch.stack([*parts, torch.ones_like(parts[0])], 1)

    def logits(self, weights: Tensor, block: Any) -> Tensor:
        """Return logits (P,)."""
        return self._columns(block) @ weights

    def slope(self, residuals: Tensor, block: Any) -> Tensor:
        """Return the gradient (3,) of the sum of residuals (P,) times logits."""
        return self._columns(block).t() @ residuals

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Return about a step of the weights."""
        return gradient / BOUND


@dataclass(frozen=True)
class Covariance:
    """Covariance of the tokens, standardised, of a split."""

    matrix: Tensor  # float64 (d, d)

    @classmethod
    def measure(cls, pairs: PatchPairs) -> Covariance:
        """Measure valid tokens, whose mean the scaling has taken off."""
        total, n = torch.zeros(pairs.data.dim, pairs.data.dim, dtype=torch.float64), 0
        for block in pairs.blocks():
            x = block.x.reshape(-1, pairs.data.dim)  # rows that are not valid are 0
            total, n = total.to(x.device) + (x.t() @ x).double(), n + int(block.valid.sum())
        return cls(total / max(n, 1))

    @property
    def dim(self) -> int:
        """Numbers of a token."""
        return len(self.matrix)

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (d,), at least a share of their mean, and vectors (d, d), float32."""
        return decomposed(self.matrix)

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor]:
        """The same of the squared entries, the second moments of x * y of two tokens."""
        return decomposed(self.matrix.square())


def decomposed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, at least a share of their mean, and vectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    least = LEAST * values.mean().clamp_min(torch.finfo(torch.float32).tiny)
    return values.clamp_min(least).float(), vectors.float()


def solved(spectrum: tuple[Tensor, Tensor], factor: float, l2: float, g: Tensor) -> Tensor:
    """Return (factor S + l2)^-1 g for S of a spectrum; g (d,) or (d, C)."""
    values, vectors = spectrum
    return vectors @ ((vectors.t() @ g) / (factor * values + l2).view(-1, *[1] * (g.dim() - 1)))


@dataclass(frozen=True)
class TokenTerm:
    """A term that reads tokens, with a weight for each of their numbers."""

    covariance: Covariance
    moment = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weights."""
        return (self.covariance.dim,)


@dataclass(frozen=True)
class LinearForm(TokenTerm):
    """a.x + a.y, weights a (d,)."""

    name = "linear"

    def logits(self, weights: Tensor, block: PairBlock) -> Tensor:
        """Return the sums (P,) of what is read of each patch."""
        scores = (block.x @ weights).view(-1)
        return scores[block.first_places] + scores[block.second_places]

    def slope(self, residuals: Tensor, block: PairBlock) -> Tensor:
        """Return the sum of tokens, each times the residuals of its pairs."""
        return block.x.reshape(-1, self.covariance.dim).t() @ block.summed(residuals).view(-1)

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take a.(x + y), of tokens drawn alone, to have the second moments 2 S."""
        return solved(self.covariance.spectrum, 2 * BOUND, l2, gradient)


@dataclass(frozen=True)
class Diagonal(TokenTerm):
    """The sum of w_k x_k y_k, weights w (d,)."""

    name = "diagonal"

    def logits(self, weights: Tensor, block: PairBlock) -> Tensor:
        """Return (X * w) X', (P,)."""
        return block.packed(torch.bmm(block.x * weights, block.x.transpose(1, 2)))

    def slope(self, residuals: Tensor, block: PairBlock) -> Tensor:
        """Return sum X * (U X)."""
        pulled = torch.bmm(block.unpacked(residuals), block.x)
        return (pulled * block.x).sum((0, 1))

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take x * y to have the second moments S * S."""
        return solved(self.covariance.squares, BOUND, l2, gradient)


@dataclass(frozen=True)
class QuadraticForm(TokenTerm):
    """x' W y, W (d, d) symmetric."""

    name = "matrix"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of W."""
        return self.covariance.dim, self.covariance.dim

    def logits(self, weights: Tensor, block: PairBlock) -> Tensor:
        """Return (X W) X', (P,)."""
        moved = block.x.reshape(-1, len(weights)) @ weights
        return block.packed(torch.bmm(moved.view(block.x.shape), block.x.transpose(1, 2)))

    def slope(self, residuals: Tensor, block: PairBlock) -> Tensor:
        """Return X' (U X), symmetric."""
        pulled = torch.bmm(block.unpacked(residuals), block.x).view(-1, self.covariance.dim)
        half = block.x.reshape(-1, self.covariance.dim).t() @ pulled
        return (half + half.t()).div_(2)

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take x' W y to have the second moments of two tokens drawn alone."""
        values, q = self.covariance.spectrum
        inner = q.t() @ gradient @ q
        inner /= BOUND * values[:, None] * values + l2
        return q @ inner @ q.t()


@dataclass(frozen=True)
class Similarity:
    """s cos(x, y), or s x.y / `length`, weights s (1,)."""

    length: float = 0.0  # mean square length of tokens, by which products are divided; 0: cosine
    name = "slope"
    moment = 1.0
    shape = (1,)

    def logits(self, weights: Tensor, block: PairBlock) -> Tensor:
        """Return cosines or products (P,), scaled."""
        x = block.x / self.length**0.5 if self.length else normalize(block.x, dim=-1)
        return block.packed(torch.bmm(x, x.transpose(1, 2))).mul_(weights)

    def slope(self, residuals: Tensor, block: PairBlock) -> Tensor:
        """Return the sum of similarities times residuals."""
        return (self.logits(residuals.new_ones(1), block) * residuals).sum()[None]

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take similarities to have a second moment of 1."""
        return gradient / (BOUND + l2)


class LinearTerm(Protocol):
    """A term of a form that is linear in weights of its own."""

    @property
    def name(self) -> str:
        """Name of its weights."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its weights."""

    @property
    def moment(self) -> float:
        """About the mean square of what a weight multiplies, over pairs."""

    def logits(self, weights: Tensor, block: Any) -> Tensor:
        """Return logits (P,)."""

    def slope(self, residuals: Tensor, block: Any) -> Tensor:
        """Return the gradient, of the shape of the weights, of the sum of residuals x logits."""

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Return about the inverse Hessian of the mean loss and a ridge times a gradient."""
