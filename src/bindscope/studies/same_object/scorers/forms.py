"""Forms: logits of pairs that are linear in a vector of weights, as products over whole images.

A form has the weights theta = [own; a; b] (p,): g_ij = own part + a.x_i + a.x_j + b. Logits of a
block are X W X' and never an (M, M, d) array; the gradient of sum r_ij g_ij is X' (U X), with the
residuals r in the upper triangle U of (M, M).

The loss is convex in theta. Its Hessian is at most a quarter of the second moments of what theta
multiplies, and for two tokens x, y that were drawn alone these follow from the covariance S of the
tokens: E[(x'Wy)^2] = tr(W S W S). So one decomposition S = Q diag(s) Q' preconditions all forms,
and for the quadratic one no (d^2, d^2) matrix is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from bindscope.studies.same_object.data import Block, Pairs

BOUND = 0.25  # of p (1 - p), the curvature of the loss in a logit
LEAST = 1e-4  # share of the mean curvature that every direction is taken to have


class Form(Protocol):
    """Logits that are linear in the weights."""

    @property
    def size(self) -> int:
        """Number of weights p."""

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return logits (P,) at weights (p,)."""

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return the gradient (p,) of the sum of residuals (P,) times logits."""

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Return about the inverse of the Hessian of the mean loss and a ridge, times (p,)."""

    def penalised(self) -> Tensor:
        """Return 1 for weights under the ridge and 0 for the others, (p,)."""

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the parts of weights (p,) under the names that they have in a file."""


@dataclass(frozen=True)
class Covariance:
    """Covariance of the tokens, standardised, of a split."""

    matrix: Tensor  # float64 (d, d)

    @classmethod
    def measure(cls, pairs: Pairs) -> Covariance:
        """Measure valid tokens, whose mean the scaling has taken off."""
        total, n = torch.zeros(pairs.data.dim, pairs.data.dim, dtype=torch.float64), 0
        for block in pairs.blocks():
            x = block.x.reshape(-1, pairs.data.dim)  # rows that are not valid are 0
            total, n = total.to(x.device) + (x.t() @ x).double(), n + int(block.valid.sum())
        return cls(total / max(n, 1))

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
    """Return (factor S + l2)^-1 g for S of a spectrum."""
    values, vectors = spectrum
    return vectors @ ((vectors.t() @ g) / (factor * values + l2))


@dataclass(frozen=True)
class Linear:
    """g = a.x + a.y + b; weights [a; b]."""

    covariance: Covariance

    @property
    def dim(self) -> int:
        """Numbers of a token."""
        return len(self.covariance.matrix)

    @property
    def linear_start(self) -> int:
        """Weights before [a; b]."""
        return 0

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.linear_start + self.dim + 1

    def penalised(self) -> Tensor:
        """All weights but the bias."""
        ones = torch.ones(self.size, device=self.covariance.matrix.device)
        ones[-1] = 0.0
        return ones

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Return a and b."""
        return {"linear": theta[self.linear_start : -1], "bias": theta[-1:]}

    def contain(self, theta: Tensor) -> Tensor:
        """Return the weights whose form is that of the rung below with weights (q,)."""
        return theta

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return a.x + a.y + b, (P,)."""
        scores = (block.x @ theta[self.linear_start : -1]).view(-1)
        return scores[block.first_places] + scores[block.second_places] + theta[-1]

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return the gradient of the last d + 1 weights."""
        a = block.x.reshape(-1, self.dim).t() @ block.summed(residuals).view(-1)
        return torch.cat([a, residuals.sum()[None]])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take a.(x + y), of tokens drawn alone, to have the second moments 2 S."""
        a = solved(self.covariance.spectrum, 2 * BOUND, l2, gradient[self.linear_start : -1])
        return torch.cat([a, gradient[-1:] / BOUND])


class Diagonal(Linear):
    """g = sum_k w_k x_k y_k + the linear form; weights [w; a; b]."""

    @property
    def linear_start(self) -> int:
        """The d weights w."""
        return self.dim

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Return w, a and b."""
        return {"diagonal": theta[: self.linear_start], **super().named(theta)}

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return (X * w) X' and the linear form, (P,)."""
        products = torch.bmm(block.x * theta[: self.linear_start], block.x.transpose(1, 2))
        return super().logits(theta, block).add_(block.packed(products))

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return sum X * (U X), and the linear form's."""
        pulled = torch.bmm(block.unpacked(residuals), block.x)
        diagonal = (pulled * block.x).sum((0, 1))
        return torch.cat([diagonal, super().slope(residuals, block)])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take x * y to have the second moments S * S."""
        diagonal = solved(self.covariance.squares, BOUND, l2, gradient[: self.linear_start])
        return torch.cat([diagonal, super().precondition(gradient, l2)])

    def contain(self, theta: Tensor) -> Tensor:
        """Return the weights whose form is a linear one with weights (d + 1,)."""
        return torch.cat([theta.new_zeros(self.linear_start), theta])


class Quadratic(Linear):
    """g = x' W y + the linear form, W symmetric; weights [W; a; b]."""

    @property
    def linear_start(self) -> int:
        """The d^2 weights W, each pair of the same twice."""
        return self.dim**2

    def matrix(self, theta: Tensor) -> Tensor:
        """Return W (d, d) of weights (p,)."""
        return theta[: self.dim**2].view(self.dim, self.dim)

    def named(self, theta: Tensor) -> dict[str, Tensor]:
        """Return W, a and b."""
        return {"matrix": self.matrix(theta), **super().named(theta)}

    def logits(self, theta: Tensor, block: Block) -> Tensor:
        """Return (X W) X' and the linear form, (P,)."""
        moved = block.x.reshape(-1, self.dim) @ self.matrix(theta)
        products = torch.bmm(moved.view(block.x.shape), block.x.transpose(1, 2))
        return super().logits(theta, block).add_(block.packed(products))

    def slope(self, residuals: Tensor, block: Block) -> Tensor:
        """Return X' (U X), symmetric, and the linear form's."""
        pulled = torch.bmm(block.unpacked(residuals), block.x)
        half = block.x.reshape(-1, self.dim).t() @ pulled.view(-1, self.dim)
        matrix = (half + half.t()).div_(2)
        return torch.cat([matrix.view(-1), super().slope(residuals, block)])

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Take x' W y to have the second moments of two tokens drawn alone."""
        values, q = self.covariance.spectrum
        inner = q.t() @ self.matrix(gradient) @ q
        inner /= BOUND * values[:, None] * values + l2
        matrix = q @ inner @ q.t()
        return torch.cat([matrix.reshape(-1), super().precondition(gradient, l2)])

    def contain(self, theta: Tensor) -> Tensor:
        """Return the weights whose form is a diagonal one with weights (2 d + 1,)."""
        return torch.cat([torch.diag(theta[: self.dim]).view(-1), theta[self.dim :]])
