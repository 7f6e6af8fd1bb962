"""What one job of extraction runs over, and where each split lies in the store that it writes.

A model is loaded once for the first shards of all splits, and once for each further shard: most
datasets have one shard a split, and loading takes longer than running over a thousand scenes. More
scenes add parts and remake none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bindscope.core.store.manifest import Manifest

FIRST = "first"
PART = r"first|(?:train|val|test)-[0-9]{5}"  # the wildcard


def part_of(split: str, shard: int) -> str:
    """Name the part that a shard is in."""
    return FIRST if shard == 0 else f"{split}-{shard:05d}"


def in_parts(
    n_shards: Mapping[str, int], shard_size: Mapping[str, int], n_scenes: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """Deal the shards of all splits, of which the last may be used in part, out to parts.

    By name of the part, in order: each ``split``, ``shard``, ``start``, ``stop`` that it holds.
    """
    parts: dict[str, list[dict[str, Any]]] = {}
    for split, n in n_shards.items():
        size = shard_size[split]
        for shard in range(n):
            stop = min((shard + 1) * size, n_scenes[split])
            block = {"split": split, "shard": shard, "start": shard * size, "stop": stop}
            parts.setdefault(part_of(split, shard), []).append(block)
    return parts


def rows_by_split(part: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the first and the last row (exclusive) of each split in the store of a part."""
    borders = [0, *accumulate(block["stop"] - block["start"] for block in part)]
    return {block["split"]: list(rows) for block, rows in zip(part, pairwise(borders), strict=True)}


def rows_of(manifest: Manifest, split: str) -> tuple[int, int]:
    """Return where a split lies in a store; a store that does not say holds one split alone."""
    splits = manifest.attributes.get("splits")
    if splits is None:
        return 0, next(iter(manifest.arrays.values())).n_rows
    first, last = splits[split]
    return first, last
