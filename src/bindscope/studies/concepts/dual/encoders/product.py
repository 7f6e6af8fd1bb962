"""Objects as element-wise products of their concepts' vectors: what a new object is, is fixed.

A new combination of known values has a vector of its own that no sum of parts has, so that a model
of this kind can name objects that it never saw. It is the positive control, by construction.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bindscope.studies.concepts.dual.encoders.base import DualEncoder, looked_up
from bindscope.studies.concepts.dual_config import ProductOptions


class ProductEncoder(DualEncoder):
    """Scene: the sum of its objects' products; query: a product, or a concept's vector.

    Scenes and queries of objects have tables of their own; see `DualEncoder` for the parameters.
    """

    order_free = True

    def __init__(self, sizes: Sequence[int], options: ProductOptions, seeds: Sequence[int]) -> None:
        super().__init__(sizes, options, seeds)
        n, dim = sum(self.sizes), options.dim
        self.scene_table = self.seeded.normal(n, dim, deviation=1.0)
        self.query_table = self.seeded.normal(n, dim, deviation=1.0)
        self.concept_table = self.seeded.normal(n, dim, deviation=1.0)
        if options.mixing:
            self.scene_mixing = self.seeded.normal(dim, dim, deviation=dim**-0.5)
            self.query_mixing = self.seeded.normal(dim, dim, deviation=dim**-0.5)

    def scenes(self, slots: Tensor) -> Tensor:
        """Return the sum over a scene's objects; see `DualEncoder.scenes`."""
        products = looked_up(self.scene_table, self.tokens[slots.clamp_min(0)]).prod(-2)
        there = (slots >= 0).to(products.dtype)
        summed = torch.einsum("rbmd,rbm->rbd", products, there)
        return summed @ self.scene_mixing if self.options.mixing else summed

    def objects(self, ids: Tensor) -> Tensor:
        """Return products of the queries' own vectors; see `DualEncoder.objects`."""
        products = looked_up(self.query_table, self.tokens[ids]).prod(-2)
        return products @ self.query_mixing if self.options.mixing else products

    def concepts(self) -> Tensor:
        """Return the concepts' vectors as queries; see `DualEncoder.concepts`."""
        return self.concept_table
