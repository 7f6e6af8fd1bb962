"""What dual encoders share: parameters with an axis for runs, and what is asked of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bindscope.studies.concepts.dual.objects import Ids, offsets, values_of
from bindscope.studies.concepts.recognition import Readout, queries
from bindscope.studies.concepts.scenes import Floats

ROWS = 8192  # embedded at a time


class Seeded:
    """Draws initial weights of several runs, those of one seed alike.

    Parameters
    ----------
    seeds
        Seed of each run.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = tuple(seeds)
        self._generators = {seed: torch.Generator().manual_seed(seed) for seed in self.seeds}

    def normal(self, *shape: int, deviation: float) -> nn.Parameter:
        """Return a parameter (runs, *shape) of normal numbers."""
        drawn = {
            seed: torch.randn(shape, generator=generator) * deviation
            for seed, generator in self._generators.items()
        }
        return nn.Parameter(torch.stack([drawn[seed] for seed in self.seeds]))


class DualEncoder(nn.Module, ABC):
    """Encodes scenes and queries, of several runs at once.

    Every parameter has the runs as its first axis, and no run depends on another.

    Parameters
    ----------
    sizes
        Number of values of each concept type.
    options
        The kind's entry of the configuration.
    seeds
        Seed of the initial weights of each run.
    """

    order_free = False
    """Whether the order of the objects of a scene cannot matter."""

    def __init__(self, sizes: Sequence[int], options: Any, seeds: Sequence[int]) -> None:
        super().__init__()
        self.sizes, self.options = tuple(sizes), options
        self.seeded = Seeded(seeds)
        values = values_of(np.arange(np.prod(self.sizes)), self.sizes)
        tokens = torch.from_numpy(values + offsets(self.sizes))
        self.register_buffer("tokens", tokens, persistent=False)
        self.tokens: Tensor

    @abstractmethod
    def scenes(self, slots: Tensor) -> Tensor:
        """Return embeddings of scenes.

        Parameters
        ----------
        slots
            Objects, int64 (runs, scenes, places), -1 where there is none.

        Returns
        -------
        float32 (runs, scenes, dim), neither centred nor scaled.
        """

    @abstractmethod
    def objects(self, ids: Tensor) -> Tensor:
        """Return embeddings (runs, queries, dim) of objects as queries, int64 (runs, queries)."""

    @abstractmethod
    def concepts(self) -> Tensor:
        """Return embeddings (runs, tokens, dim) of the values of all types as queries."""

    @torch.no_grad()
    def embed(self, slots: Ids) -> Floats:
        """Return raw embeddings (scenes, dim) of one run; objects int64 (scenes, places)."""
        device = self.tokens.device
        parts = [
            self.scenes(torch.from_numpy(slots[start : start + ROWS])[None].to(device))[0]
            for start in range(0, len(slots), ROWS)
        ]
        return np.asarray(torch.cat(parts).cpu().numpy())

    @torch.no_grad()
    def queries(self, objects: Ids | None = None) -> Readout:
        """Return one run's queries of all values, and of some objects (default: all)."""
        own = np.arange(len(self.tokens)) if objects is None else objects
        device = self.tokens.device
        asked = [
            self.objects(torch.from_numpy(own[start : start + ROWS])[None].to(device))[0]
            for start in range(0, len(own), ROWS)
        ]
        by_type = np.split(self.concepts()[0].cpu().numpy(), np.cumsum(self.sizes)[:-1])
        return queries(by_type, torch.cat(asked).cpu().numpy(), own)


def looked_up(table: Tensor, rows: Tensor) -> Tensor:
    """Return rows of each run's own table: (runs, n, dim) by int64 (runs, ...)."""
    runs, n, dim = table.shape
    first = torch.arange(runs, device=rows.device).view(-1, *[1] * (rows.ndim - 1)) * n
    return nn.functional.embedding(rows + first, table.reshape(runs * n, dim))
