"""What the study's steps take."""

from __future__ import annotations

from bindscope.core.graph import Product
from bindscope.core.work import Work

DECIDES_NOTHING = True


def scene_statistics(product: Product) -> Work:
    """Count a pass over the masks and boxes of all scenes."""
    parts = [part for sources in product.inputs.values() for part in sources]
    n = sum(part.content["stop"] - part.content["start"] for part in parts)
    return Work(bytes_disk=1100, bytes_peak=3e7 + 500 * n, python=1e7 + 100 * n)


def assignment_priors(product: Product) -> Work:
    """Count entropies of attributes that are dealt out again."""
    n = sum(product.content["n_scenes"].values())
    return Work("pandas", bytes_disk=1000, bytes_peak=1e8 + 5000 * n, python=1e7 + 1000 * n)
