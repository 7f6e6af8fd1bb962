"""What the study's steps take."""

from __future__ import annotations

from bindscope.core.graph import Product
from bindscope.core.work import Work
from bindscope.graph.cost import shape_of

DECIDES_NOTHING = True


def lengths(product: Product) -> Work:
    """Count a pass over the pooled tokens of one layer."""
    index = product.inputs["index"][0]
    _, dim = shape_of(index)
    n = index.content["n_scenes"]["test"]
    return Work(units=n * dim, bytes_host=4.0 * n * dim, bytes_disk=200)
