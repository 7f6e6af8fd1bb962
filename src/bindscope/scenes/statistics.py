"""Occlusion: the share of the objects' pixels that other objects hide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.store.reader import open_store


def scene_statistics(shards: Mapping[str, Sequence[Path | str]]) -> list[dict[str, str | float]]:
    """Measure occlusion in each split, from manifests of shards that hold `visible`.

    Per split are returned `split`, `n_scenes`, `n_objects` (all scenes together), `mean_occlusion`
    (mean over objects of 1 - visible pixels / pixels that the object would show alone, both inside
    the image) and `hidden_ratio` (share of objects without a visible pixel). StoreError if a shard
    is damaged, or no scene of a split has an object.
    """
    rows: list[dict[str, str | float]] = []
    for split, manifests in shards.items():
        visible = np.concatenate([open_store(path).read("visible") for path in manifests])
        present = visible[visible >= 0].astype(np.float64)
        if not len(present):
            raise StoreError(
                str(manifests[0]),
                "no scene holds an object, so nothing can be hidden",
                snakemake_command(f"--forcerun {manifests[0]}"),
            )
        rows.append(
            {
                "split": split,
                "n_scenes": len(visible),
                "n_objects": len(present),
                "mean_occlusion": float(1 - present.mean()),
                "hidden_ratio": float((present == 0).mean()),
            }
        )
    return rows
