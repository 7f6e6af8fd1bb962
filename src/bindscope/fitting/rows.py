"""Arrays along scenes, in memory or read range by range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bindscope.core.array_types import Array


@runtime_checkable
class Rows(Protocol):
    """An array along scenes that may be larger than memory (`activations.reader.RowReader`)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Scenes, and the shape of what each scene has."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns."""

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return scenes [start, stop), in `out` where given."""


@dataclass(frozen=True)
class ArrayRows:
    """Rows that are in memory."""

    values: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array."""
        return self.values.dtype

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return a view of scenes [start, stop), or `out` with a copy of them."""
        if out is None:
            return self.values[start:stop]
        out[...] = self.values[start:stop]
        return out


@dataclass(frozen=True)
class FirstRows:
    """The first `n` scenes of rows."""

    rows: Rows
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Scenes, and the shape of what each scene has."""
        return self.n, *self.rows.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns."""
        return self.rows.dtype

    @property
    def block(self) -> int:
        """Scenes that the rows read at a time; see `activations.reader`."""
        return int(getattr(self.rows, "block", 1))

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return scenes [start, stop), in `out` where given."""
        return self.rows.read(start, min(stop, self.n), out)


def as_rows(values: Array | Rows) -> Rows:
    """Return an array as rows; rows as they are."""
    return ArrayRows(values) if isinstance(values, np.ndarray) else values


def row_bytes(rows: Rows) -> int:
    """Return how many bytes a scene takes."""
    return prod(rows.shape[1:]) * rows.dtype.itemsize


def whole(values: Array | Rows) -> Array:
    """Return all scenes, in memory."""
    rows = as_rows(values)
    return rows.read(0, rows.shape[0])
