"""Images of scenes stores, read when a batch of them is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bindscope.core.store.reader import READ_BYTES, Store


class StoreImages:
    """The first `n_scenes` images of a scenes shard, read when they are asked for.

    Several chunks are decoded at once and stay in memory until a slice beyond them is asked for, so
    that reading in order decodes nothing twice.
    """

    def __init__(self, store: Store, n_scenes: int | None = None) -> None:
        self.store = store
        self._n = store.layout("images").n_rows if n_scenes is None else n_scenes
        layout = store.layout("images")
        self._step = layout.chunk_rows * max(1, READ_BYTES // layout.chunk_bytes)
        self._block = lru_cache(1)(
            lambda first: store.read("images", slice(first, first + self._step))
        )

    @property
    def size_px(self) -> int:
        """Side of the square images, or of the crops of a sheet, in pixels."""
        return self.store.layout("images").shape[1] // self.crops[0]

    @property
    def crops(self) -> tuple[int, int]:
        """Rows and columns of crops that an image is a sheet of; (1, 1) of a whole image."""
        rows, columns = self.store.attributes.get("crops", (1, 1))
        return int(rows), int(columns)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        start, stop, _ = rows.indices(len(self))
        parts = [
            self._block(first)[max(start - first, 0) : stop - first]
            for first in range(start // self._step * self._step, stop, self._step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class JoinedImages:
    """The images of several stores, one after the other; all are of one size."""

    def __init__(self, parts: Sequence[StoreImages]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(map(len, parts))]

    @property
    def size_px(self) -> int:
        """Side of the square images, or of the crops of a sheet, in pixels."""
        return self._parts[0].size_px

    @property
    def crops(self) -> tuple[int, int]:
        """Rows and columns of crops that an image is a sheet of; (1, 1) of a whole image."""
        return self._parts[0].crops

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, rows: slice) -> NDArray[np.uint8]:
        start, stop, _ = rows.indices(len(self))
        images = [
            part[max(start - low, 0) : stop - low]
            for part, (low, high) in zip(self._parts, pairwise(self._starts), strict=True)
            if start < high and low < stop
        ]
        return images[0] if len(images) == 1 else np.concatenate(images)


Images: TypeAlias = StoreImages | JoinedImages | NDArray[np.uint8]
