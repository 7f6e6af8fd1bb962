"""An encoder whose embeddings are given: for the same questions as of one that computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bindscope.studies.concepts.dual.encoders.base import DualEncoder
from bindscope.studies.concepts.scenes import Floats, Integers


class GivenEncoder(DualEncoder):
    """One run whose embeddings come from elsewhere.

    Parameters
    ----------
    sizes
        Number of values of each concept type.
    embed
        From objects of scenes, int64 (n, places), to embeddings (n, dim).
    objects, concepts
        Queries: of all objects (objects, dim), and of the values of all types (values, dim).
    """

    def __init__(
        self,
        sizes: Sequence[int],
        embed: Callable[[Integers], Floats],
        objects: Floats,
        concepts: Floats,
    ) -> None:
        super().__init__(sizes, None, ())
        self.embed = embed
        self.object_queries, self.concept_queries = _run(objects), _run(concepts)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return given embeddings of scenes; see `DualEncoder.scenes`."""
        return _run(self.embed(slots[0].numpy()))

    def objects(self, ids: Tensor) -> Tensor:
        """Return given queries of objects; see `DualEncoder.objects`."""
        return self.object_queries[:, ids[0]]

    def concepts(self) -> Tensor:
        """Return given queries of values; see `DualEncoder.concepts`."""
        return self.concept_queries


def _run(values: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))[None]
