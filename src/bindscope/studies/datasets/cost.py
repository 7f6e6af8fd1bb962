"""What the study's steps take."""

from __future__ import annotations

from bindscope.core.graph import Product
from bindscope.core.work import Work

DECIDES_NOTHING = True


def scene_statistics(product: Product) -> Work:
    """Count a pass over the masks and boxes of all scenes."""
    parts = [part for sources in product.inputs.values() for part in sources]
    n = sum(part.content["stop"] - part.content["start"] for part in parts)
    return Work(units=n, bytes_disk=1100, bytes_host=3e7 + 500 * n)


def assignment_priors(product: Product) -> Work:
    """Count entropies of attributes that are dealt out again."""
    n = sum(product.content["n_scenes"].values())
    return Work("pandas", n, bytes_disk=1000, bytes_host=1e8 + 5000 * n)
