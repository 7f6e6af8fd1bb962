"""Activations of a model over a dataset, read through the index; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.activations.parts import rows_of
from bindscope.core.errors import ModelError
from bindscope.core.store.listing import open_listed, read_listing
from bindscope.core.store.reader import Store
from bindscope.models.base import TokenMap


class Activations:
    """All shards of a model's activations; `attributes` are what they have in common."""

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
        return TokenMap(**stored) if stored else None

    def pooled(self, split: str, array: str, layer: str | int) -> NDArray[np.float32]:
        """Read one layer of a pooled array, all scenes of a split, float32 (N, width).

        `array` is ``cls``, ``mean``, ``registers``, or ``cls_mean`` (both side by side). Only that
        layer's chunks are read; the most memory taken is the result and one shard. ModelError if
        the model does not have such tokens; StoreError if a shard is not the one that was indexed.
        """
        reader = self.vectors(split, array, layer)
        return reader.read(0, reader.shape[0], np.empty(reader.shape, np.float32))

    def vectors(self, split: str, array: str, layer: str | int) -> RowReader:
        """Return a reader of one layer of a pooled array; nothing is read yet.

        Parameters and errors are those of `pooled`.
        """
        parts = ["cls", "mean"] if array == "cls_mean" else [array]
        if not any("-" in name for name in self._index["arrays"]):
            self._require(parts)
            return RowReader(self.stores(split), parts, layer, split)
        # Layers of different widths have an array each.
        if str(layer) not in self.layers:
            raise ModelError(
                str(self.path),
                f"there is no layer {layer!r}",
                f"ask for one of {', '.join(self.layers)}",
            )
        self._require(parts, f"-{layer}")
        return RowReader(self.stores(split), [f"{part}-{layer}" for part in parts], split=split)

    def patches(self, split: str) -> PatchReader:
        """Return a reader of a split's patch tokens; ModelError if it has none."""
        if "patches" not in self._index["arrays"]:
            raise ModelError(
                str(self.path),
                "holds no patch tokens",
                "set tokens: cls, mean or cls_mean, or read an index of patches",
            )
        return PatchReader(self.stores(split), ["patches"], split=split)

    def stores(self, split: str) -> list[Store]:
        """Return the verified shards of a split, in the order of their scenes."""
        if split not in self._open:
            self._open[split] = [
                open_listed(self.path, shard, self._index["shard_code"])
                for shard in self._splits[split]["shards"]
            ]
        return self._open[split]

    def _require(self, parts: list[str], suffix: str = "") -> None:
        for part in parts:
            if f"{part}{suffix}" in self._index["arrays"]:
                continue
            lacks = {"cls": "[CLS] token", "mean": "patch tokens", "registers": "registers"}
            has = [name for name in ("cls", "mean") if f"{name}{suffix}" in self._index["arrays"]]
            raise ModelError(
                str(self.path),
                f"the model has no {lacks.get(part, f'array {part!r}')}",
                f"set tokens: {has[0] if has else 'patches'}",
            )


class RowReader:
    """Scenes of one or more arrays of a split, side by side, read in pieces from its shards."""

    def __init__(
        self,
        stores: Sequence[Store],
        parts: Sequence[str],
        layer: str | int | None = None,
        split: str = "",
    ) -> None:
        self._stores, self._parts, self._layer, self._split = stores, parts, layer, split
        axis = int(layer is not None)
        self._rests = [stores[0].layout(part).shape[axis + 1 :] for part in parts]
        rows = [rows_of(store.manifest, split) for store in stores]
        self._first = [first for first, _ in rows]
        self._starts = [0, *accumulate(last - first for first, last in rows)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Scenes, and the shape of what each scene has."""
        return self._starts[-1], *self._rests[0][:-1], sum(rest[-1] for rest in self._rests)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns: as stored, float32 for bfloat16."""
        stored = (self._stores[0].layout(part).dtype for part in self._parts)
        return np.result_type(*("float32" if name == "bfloat16" else name for name in stored))

    @property
    def block(self) -> int:
        """Scenes per chunk: ranges that start and end at multiples of it decode no chunk twice."""
        return max(self._stores[0].layout(part).chunk_rows for part in self._parts)

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read the scenes [start, stop), across the borders of shards, into `out` or new memory."""
        if not 0 <= start <= stop <= self._starts[-1]:
            raise IndexError(f"scenes {start} to {stop} of {self._starts[-1]}")
        if out is None:
            out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        shards = zip(self._stores, self._first, pairwise(self._starts), strict=True)
        for store, offset, (low, high) in shards:
            first, last = max(start, low), min(stop, high)
            if first < last:
                column = 0
                for part, rest in zip(self._parts, self._rests, strict=True):
                    columns = slice(column, column + rest[-1])
                    column = columns.stop
                    rows = out[first - start : last - start, ..., columns]
                    store.read_into(part, offset + first - low, rows, self._layer)
        return out


class PatchReader(RowReader):
    """Patch tokens of one split, read in pieces from its shards."""

    def cls(self) -> RowReader | None:
        """Return a reader of the [CLS] tokens (N, dim) of the same layer, or None without any."""
        if "cls" not in self._stores[0].names:
            return None
        axis = self._stores[0].layout("cls").sample_axis
        layer = self._stores[0].layers()[0] if axis else None
        return RowReader(self._stores, ["cls"], layer, self._split)
