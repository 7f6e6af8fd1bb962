"""The labels of a dataset in one file: its stores of codes and anchors, and its priors.

A fit reads this one small JSON instead of naming seven products among its inputs, each of which
costs Snakemake a search for the rule that makes it, for every one of thousands of fits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindscope.core.errors import StoreError
from bindscope.core.splits import SPLITS
from bindscope.core.store.listing import entry, open_listed, read_listing
from bindscope.core.store.manifest import read_manifest, remedy

if TYPE_CHECKING:
    from bindscope.core.store.reader import Store


def build_labels(
    codes: Sequence[Path | str],
    anchors: Sequence[Path | str],
    priors: Path | str,
    folder: Path | str,
) -> dict[str, Any]:
    """Check that codes and anchors of train, val and test belong together, and describe them.

    Per split under ``splits``: ``codes`` and ``anchors``, each an entry as
    `bindscope.core.store.listing.entry` makes it, relative to `folder`, with the store's ``code``;
    and the rows of the ``priors``. StoreError if codes and anchors of a split hold different
    numbers of scenes.
    """
    splits: dict[str, Any] = {}
    for split, *paths in zip(SPLITS, codes, anchors, strict=True):
        both = {}
        for role, path in zip(("codes", "anchors"), paths, strict=True):
            manifest = read_manifest(path)
            both[role] = {**entry(manifest, folder), "code": manifest.code}
        n_scenes = {role: listed["n_scenes"] for role, listed in both.items()}
        if n_scenes["codes"] != n_scenes["anchors"]:
            raise StoreError(
                str(paths[1]),
                f"it holds {n_scenes['anchors']} scenes, and {paths[0]} {n_scenes['codes']}",
                remedy(paths[1]),
            )
        splits[split] = both
    return {"splits": splits, "priors": json.loads(Path(priors).read_text())}


class DatasetLabels:
    """The labels that `build_labels` describes; StoreError if the file is missing or damaged."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._content = read_listing(self.path, "file of labels", ("splits", "priors"))

    def codes(self, split: str) -> Store:
        """Open the codes of a split: ``objects`` uint8 (N, K) and ``features`` uint8 (N, n)."""
        return self._open(split, "codes")

    def anchors(self, split: str) -> Store:
        """Open the prior log-odds of a split, float32 nats."""
        return self._open(split, "anchors")

    def prior(self, split: str) -> dict[str, Any]:
        """Return the priors' row of a split, in bits."""
        (row,) = (row for row in self._content["priors"] if row["split"] == split)
        return dict(row)

    def _open(self, split: str, role: str) -> Store:
        listed = self._content["splits"][split][role]
        return open_listed(self.path, listed, listed["code"])
