"""Which arrays an extraction writes, and how many bytes they take: known before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bindscope.core.store.manifest import ArrayLayout

if TYPE_CHECKING:
    from bindscope.models.base import TokenMap


def pooled_arrays(
    n_scenes: int, n_layers: int, dim: int, token_map: TokenMap, dtype: str
) -> dict[str, ArrayLayout]:
    """Describe the pooled arrays of one shard: all layers 0 to `n_layers`, and ``final``.

    Parameters
    ----------
    n_scenes
        Scenes in the shard.
    n_layers
        Number of blocks.
    dim
        Width of the residual stream.
    token_map
        Which tokens there are.
    dtype
        Stored type.

    Returns
    -------
    dict
        ``mean`` (layer, n, dim) of the patch tokens; ``cls`` (layer, n, dim) and ``registers``
        (layer, n, R * dim) where the model has them.
    """
    widths = {"mean": dim}
    if token_map.has_cls:
        widths["cls"] = dim
    if token_map.registers:
        widths["registers"] = token_map.registers * dim
    return {
        name: ArrayLayout.plan((n_layers + 2, n_scenes, width), dtype, sample_axis=1)
        for name, width in widths.items()
    }


def patch_arrays(
    n_scenes: int, dim: int, token_map: TokenMap, dtype: str
) -> dict[str, ArrayLayout]:
    """Describe the arrays of one shard of one layer's patch tokens.

    Returns
    -------
    dict
        ``patches`` (n, T, dim), and ``cls`` (n, dim) where the model has a [CLS] token; see
        `pooled_arrays` for the parameters.
    """
    shapes: dict[str, tuple[int, ...]] = {"patches": (n_scenes, token_map.n_patches, dim)}
    if token_map.has_cls:
        shapes["cls"] = (n_scenes, dim)
    return {name: ArrayLayout.plan(shape, dtype, 0) for name, shape in shapes.items()}


def bytes_needed(arrays: Mapping[str, ArrayLayout]) -> int:
    """Return the bytes that arrays take on the disk, as if nothing could be compressed.

    Exact up to the metadata (1 to 2 kB per array) for floats, which are stored uncompressed.
    """
    return sum(layout.stored_bytes for layout in arrays.values())
