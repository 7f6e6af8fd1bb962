"""Parts of forms that read where patches are, alone and times principal components of the image.

Two positions of a pair, whichever patch is first, are a *couple*, one of Q = C (C - 1) / 2 for C
cells of the grid. What is read of positions is a number of each couple, so that a pass makes it
once for all pairs. Without the image, all pairs of a couple have the same logit: they are counted
once for all, and a fit reads no pair, however many images there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bindscope.studies.same_object.data import PairBlock, PairData, PatchPairs
from bindscope.studies.same_object.scorers.forms import BOUND

FLAT = 1e-8  # curvature that a weight of positions is taken to have


def n_couples(grid: tuple[int, int]) -> int:
    """Return the number of couples of a grid."""
    cells = grid[0] * grid[1]
    return cells * (cells - 1) // 2


@dataclass(frozen=True)
class Couples:
    """Couples with any pairs: those of the same object, and then those of others."""

    couple: Tensor  # int64 (K,)
    # -1 and 1, and how many pairs there are, float64 (K,).
    sign: Tensor
    weights: Tensor

    def counted(self, values: Tensor) -> Tensor:
        """Return values (K,) times how many pairs each stands for."""
        return values * self.weights


@dataclass(frozen=True)
class CoupleCounts:
    """The pairs of a split by their couple, as `PatchPairs` has them one by one."""

    couples: Couples
    data: PairData
    device: torch.device

    @classmethod
    def count(cls, pairs: PatchPairs) -> CoupleCounts:
        """Count the pairs of a split."""
        size = n_couples(pairs.data.grid)
        both = torch.zeros(2, size, dtype=torch.int64, device=pairs.device)
        for block in pairs.blocks():
            kind = (~block.same).long() * size + block.couple
            both += torch.bincount(kind, minlength=2 * size).view(2, -1)
        different, there = both.nonzero().t()
        n = both[different, there].double()
        return cls(Couples(there, 2.0 * different.double() - 1.0, n), pairs.data, pairs.device)

    @property
    def n_pairs(self) -> int:
        """Number of pairs, at least 1."""
        return max(self.data.n_pairs, 1)

    def blocks(self) -> Iterator[Couples]:
        """Start a pass."""
        return iter([self.couples])

    @cached_property
    def curvature(self) -> Tensor:
        """How much the mean loss may curve along the logit of each couple, float32 (Q,)."""
        share = BOUND * self.couples.weights / self.n_pairs
        return summed(share, self.couples.couple, n_couples(self.data.grid)).float()


def summed(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums (size,) of values (P,) at each index (P,)."""
    return values.new_zeros(size).index_add_(0, index, values)


@dataclass(frozen=True)
class PositionTable:
    """t(|rows apart|, |columns apart|) + u(position) + u(other position); weights [t; u]."""

    grid: tuple[int, int]  # rows and columns of the patch grid
    curvature: Tensor  # of couples, (Q,)
    name = "table"

    @property
    def shape(self) -> tuple[int]:
        """Two weights for each cell."""
        return (2 * self.grid[0] * self.grid[1],)

    @property
    def moment(self) -> float:
        """Share of the pairs that use a weight: of each pair three do."""
        return 3 / self.shape[0]

    def logits(self, weights: Tensor, block: PairBlock | Couples) -> Tensor:
        """Return logits (P,); of couples in float64, as each stands for many pairs."""
        of_couples = weights[self._used].sum(0)
        return of_couples.to(block.sign.dtype)[block.couple]

    def slope(self, residuals: Tensor, block: PairBlock | Couples) -> Tensor:
        """Return the gradient (p,)."""
        return self._summed(summed(residuals, block.couple, n_couples(self.grid)))

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Divide by the diagonal."""
        return gradient / (self._summed(self.curvature) + l2).clamp_min(FLAT)

    @cached_property
    def _used(self) -> Tensor:
        """Which three weights each couple uses, int64 (3, Q)."""
        columns, cells = self.grid[1], self.grid[0] * self.grid[1]
        second, first = torch.tril_indices(cells, cells, -1, device=self.curvature.device)
        rows = (first // columns - second // columns).abs()
        apart = rows * columns + (first % columns - second % columns).abs()
        return torch.stack([apart, cells + first, cells + second])

    def _summed(self, of_couples: Tensor) -> Tensor:
        """Return the sums (p,) of values of couples (Q,) over those that use a weight."""
        return summed(of_couples.repeat(3), self._used.reshape(-1), self.shape[0])


@dataclass(frozen=True)
class CoupleTable:
    """A number of its own for each couple, weights (Q,): the product of two one-hot positions."""

    curvature: Tensor  # of couples, (Q,)
    name = "couples"

    @property
    def shape(self) -> tuple[int, ...]:
        """A weight for each couple."""
        return (len(self.curvature),)

    @property
    def moment(self) -> float:
        """Share of the pairs that are of one couple."""
        return 1 / len(self.curvature)

    def logits(self, weights: Tensor, block: Any) -> Tensor:
        """Return logits (P,)."""
        return weights.to(block.sign.dtype)[block.couple]

    def slope(self, residuals: Tensor, block: Any) -> Tensor:
        """Return the gradient (Q,)."""
        return summed(residuals, block.couple, len(self.curvature))

    def precondition(self, gradient: Tensor, l2: float) -> Tensor:
        """Divide by the diagonal."""
        return gradient / (self.curvature + l2).clamp_min(FLAT)


@dataclass(frozen=True)
class ImageCoupleTable(CoupleTable):
    """The sum over k of m_k T_k of a couple: m are numbers of the image; weights T (k, Q).

    They are columns of the tokens that are the same in all patches of an image.
    """

    columns: Tensor  # of the tokens, int64 (k,)
    name = "image_couples"

    @property
    def shape(self) -> tuple[int, ...]:
        """A weight for each component and couple."""
        return len(self.columns), len(self.curvature)

    def logits(self, weights: Tensor, block: Any) -> Tensor:
        """Return logits (P,)."""
        return (self._image(block) @ weights).view(-1)[self._index(block)]

    def slope(self, residuals: Tensor, block: Any) -> Tensor:
        """Return the gradient (k, Q)."""
        image = self._image(block)
        each = summed(residuals, self._index(block), len(image) * len(self.curvature))
        return image.t() @ each.view(len(image), -1)

    def _image(self, block: PairBlock) -> Tensor:
        """Return the numbers of each image, (B, k)."""
        patches = block.valid.sum(1, keepdim=True).clamp_min(1)
        return block.x.sum(1)[:, self.columns] / patches

    def _index(self, block: PairBlock) -> Tensor:
        """Return where each pair stands in (B, Q), flattened; int64 (P,)."""
        return block.image * len(self.curvature) + block.couple


# Pairs of a split, in blocks: one by one, or those that are alike together.
PairSplit: TypeAlias = PatchPairs | CoupleCounts
