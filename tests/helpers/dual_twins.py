"""Slow, plain versions of what dual encoders are trained on, and encoders with known answers."""

import math

import torch
from torch import Tensor

from bindscope.studies.concepts.dual.encoders import DualEncoder


def loss_of_one(logits: Tensor, positives: Tensor) -> float:
    """Return the mean over rows of the cross-entropy against equal shares of the positives."""
    lost = []
    for row, hits in zip(logits.tolist(), positives.tolist(), strict=True):
        total = math.log(sum(math.exp(x) for x in row))
        losses = [total - x for x, there in zip(row, hits, strict=True) if there]
        if losses:
            lost.append(sum(losses) / len(losses))
    return sum(lost) / len(lost)


class BagOfConcepts(DualEncoder):
    """Counts the concepts of a scene; a query is answered by how many of its own are there."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, 0)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return embeddings of scenes."""
        return self._bags()[slots].sum(1)

    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings of objects as queries."""
        return self._bags()[ids]

    def concepts(self) -> Tensor:
        """Return embeddings of concepts as queries."""
        return torch.eye(sum(self.sizes), dtype=torch.float64)

    def _bags(self) -> Tensor:
        # Counts up to 2, and cosines of rows of one length: ties are exact in 64 bits.
        bags = torch.zeros(len(self.tokens), sum(self.sizes), dtype=torch.float64)
        return bags.scatter(1, self.tokens, 1.0)


class OneHot(DualEncoder):
    """Knows every object by itself."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes, 0)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return embeddings of scenes."""
        return torch.eye(len(self.tokens))[slots].sum(1)

    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings of objects as queries."""
        return torch.eye(len(self.tokens))[ids]

    def concepts(self) -> Tensor:
        """Return embeddings of concepts as queries."""
        holds = torch.zeros(sum(self.sizes), len(self.tokens))
        holds[self.tokens.T, torch.arange(len(self.tokens))] = 1.0
        return holds


class Random(DualEncoder):
    """Embeddings without any meaning, the same for the same scene."""

    def __init__(self, sizes: tuple[int, ...], dim: int, seed: int) -> None:
        super().__init__(sizes, 0)
        self.dim, self.generator = dim, torch.Generator().manual_seed(seed)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return embeddings of scenes."""
        return self._drawn(len(slots))

    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings of objects as queries."""
        return self._drawn(len(ids))

    def concepts(self) -> Tensor:
        """Return embeddings of concepts as queries."""
        return self._drawn(sum(self.sizes))

    def _drawn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, self.dim, generator=self.generator)
