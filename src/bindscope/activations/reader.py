"""Activations of a model over a dataset, read through the index; needs no torch."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.errors import ModelError
from bindscope.models.base import TokenMap
from bindscope.store.listing import open_listed, read_listing
from bindscope.store.reader import Store


class Activations:
    """All shards of a model's activations.

    Parameters
    ----------
    index_path
        The index that `bindscope.activations.index.build_index` describes.

    Attributes
    ----------
    attributes
        What all shards have in common (``layers``, ``token_map``, ``revision``, ...).
    """

    def __init__(self, index_path: Path | str) -> None:
        self.path = Path(index_path)
        self._index = read_listing(self.path, "index", ("attributes", "splits"))
        self.attributes: dict[str, Any] = self._index["attributes"]
        self._splits: dict[str, Any] = self._index["splits"]
        self._open: dict[str, list[Store]] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the pooled layers, in order; empty for an index of patches."""
        return tuple(self.attributes.get("layers", ()))

    @property
    def token_map(self) -> TokenMap | None:
        """Which token is what; None for an encoder without tokens."""
        stored = self.attributes.get("token_map")
        return TokenMap.from_json(stored) if stored else None

    def n_scenes(self, split: str) -> int:
        """Number of scenes of a split."""
        return int(self._splits[split]["n_scenes"])

    def pooled(self, split: str, array: str, layer: str | int) -> NDArray[np.float32]:
        """Read one layer of a pooled array, all scenes of a split.

        Only that layer's chunks are read; the most memory taken is the result and one shard.

        Parameters
        ----------
        split
            "train", "val" or "test".
        array
            ``cls``, ``mean``, ``registers``, or ``cls_mean`` (both side by side).
        layer
            0 to n_layers, or "final".

        Returns
        -------
        float32 (N, width)

        Raises
        ------
        ModelError
            If the model does not have such tokens.
        StoreError
            If a shard is damaged, missing or not the one that was indexed.
        """
        parts = ["cls", "mean"] if array == "cls_mean" else [array]
        self._require(parts)
        stores = self.stores(split)
        widths = [stores[0].shape(part)[-1] for part in parts]
        result = np.empty((self.n_scenes(split), sum(widths)), np.float32)
        row = 0
        for store in stores:
            rows, column = slice(row, row + store.n_rows(parts[0])), 0
            for part, width in zip(parts, widths, strict=True):
                result[rows, column : column + width] = store.read(part, layer=layer)
                column += width
            row = rows.stop
        return result

    def patches(self, split: str) -> PatchReader:
        """Return a reader of the patch tokens of a split; nothing is read yet.

        Raises
        ------
        ModelError
            If this is not an index of patches.
        """
        if "patches" not in self._index["arrays"]:
            raise ModelError(
                str(self.path),
                "holds no patch tokens",
                "set tokens: cls, mean or cls_mean, or read an index of patches",
            )
        return PatchReader(self.stores(split), self.token_map)

    def stores(self, split: str) -> list[Store]:
        """Return the verified shards of a split, in the order of their scenes."""
        if split not in self._open:
            self._open[split] = [
                open_listed(self.path, shard, self._index["shard_code"])
                for shard in self._splits[split]["shards"]
            ]
        return self._open[split]

    def _require(self, parts: list[str]) -> None:
        for part in parts:
            if part in self._index["arrays"]:
                continue
            lacks = {"cls": "[CLS] token", "mean": "patch tokens", "registers": "registers"}
            has = sorted({"cls", "mean"} & set(self._index["arrays"]))
            raise ModelError(
                str(self.path),
                f"the model has no {lacks.get(part, f'array {part!r}')}",
                f"set tokens: {has[0] if has else 'patches'}",
            )


class PatchReader:
    """Patch tokens of one split, streamed from its shards.

    Parameters
    ----------
    stores
        The shards, in the order of their scenes.
    token_map
        Which token is what.
    """

    def __init__(self, stores: list[Store], token_map: TokenMap | None) -> None:
        self.token_map = token_map
        self._stores = stores
        sizes = [store.n_rows("patches") for store in stores]
        self._starts = [0, *accumulate(sizes)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Scenes, patch tokens, dimension."""
        _, tokens, dim = self._stores[0].shape("patches")
        return self._starts[-1], tokens, dim

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns: float16, or float32."""
        stored = self._stores[0].dtype("patches")
        return np.dtype("float32" if stored == "bfloat16" else stored)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the scenes [start, stop), across the borders of shards.

        Returns
        -------
        float16 or float32 (stop - start, T, dim)
        """
        if not 0 <= start <= stop <= self._starts[-1]:
            raise IndexError(f"scenes {start} to {stop} of {self._starts[-1]}")
        _, tokens, dim = self.shape
        result = np.empty((stop - start, tokens, dim), self.dtype)
        for store, low, high in zip(self._stores, self._starts[:-1], self._starts[1:], strict=True):
            first, last = max(start, low), min(stop, high)
            if first < last:
                rows = slice(first - low, last - low)
                result[first - start : last - start] = store.read("patches", rows)
        return result

    def cls(self) -> NDArray[np.float32] | None:
        """Read the [CLS] tokens of the same layer: float32 (N, dim), or None without any."""
        if "cls" not in self._stores[0].names:
            return None
        parts = [store.read("cls").astype(np.float32) for store in self._stores]
        return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
