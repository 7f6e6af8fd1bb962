"""The space of object codes, and the feature code F = f(O) of an object code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from bindscope.codes.counting import n_feature_codes
from bindscope.config.base import Group
from bindscope.config.codes import Space
from bindscope.core.registries import SPACES, resolve


class CodeSpace(ABC):
    """A space of object codes, from which all counts are made.

    A space has equally likely outcomes, and an object code with m objects stands for ``weight(m)``
    of them. Where all weights are 1 the outcomes are the object codes. A feature code's probability
    is proportional to ``covers()[its counts]``.

    Attributes
    ----------
    sizes
        Number of values of each feature group.
    n_cells, n_features
        Length K of an object code, and n of a feature code.
    min_objects, max_objects
        Allowed numbers of ones in an object code, at most K; see `counting.largest_scene`.
    chosen
        How many values of each group every code uses; None where that is free.
    """

    chosen: tuple[int, ...] | None = None

    def __init__(self, groups: Sequence[Group], min_objects: int, max_objects: int) -> None:
        self.sizes = tuple(group.size for group in groups)
        self.n_cells = prod(self.sizes)
        self.n_features = sum(self.sizes)
        self.min_objects = min_objects
        self.max_objects = min(max_objects, self.n_cells)

    def weight(self, n_objects: int) -> int:
        """Outcomes of an object code with an allowed number of objects; at least 1."""
        return 1

    @abstractmethod
    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of outcomes of each such feature code."""


def build_space(config: Space) -> CodeSpace:
    """Build the space that a `space` section describes."""
    space: CodeSpace = resolve(SPACES[config.kind])(config)
    return space


def n_outcomes(space: CodeSpace) -> int:
    """Count the outcomes of a space: its object codes, each as often as its weight says."""
    return sum(
        n_feature_codes(space.sizes, counts) * ways for counts, ways in space.covers().items()
    )


def outcome_weights(space: CodeSpace) -> list[int]:
    """Return the outcomes of an object code by its number of objects, 0 for numbers not allowed."""
    allowed = range(space.min_objects, space.max_objects + 1)
    return [space.weight(m) if m in allowed else 0 for m in range(space.max_objects + 1)]


def feature_code(objects: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return which values occur in any object of object codes uint8 (N, K), uint8 (N, sum(sizes)).

    K is the Cartesian product of the groups, the last one fastest; values come group after group.
    """
    return (occurrences(objects, sizes) > 0).astype(np.uint8)


def occurrences(objects: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Count the objects with each value: as `feature_code`, int64 (N, n)."""
    if objects.ndim != 2 or objects.shape[1] != prod(sizes):
        raise ValueError(f"objects has shape {objects.shape}, expected (N, {prod(sizes)})")
    grid = objects.reshape(len(objects), *sizes)
    axes = range(1, len(sizes) + 1)
    parts = [grid.sum(axis=tuple(a for a in axes if a != g), dtype=np.int64) for g in axes]
    return np.concatenate(parts, axis=1)


def group_slices(sizes: Sequence[int]) -> list[slice]:
    """Return where each group stands in a feature code."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def feature_counts(features: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Count the used values of each group: uint8 (N, n) -> int64 (N, G)."""
    columns = [features[:, part].sum(axis=1, dtype=np.int64) for part in group_slices(sizes)]
    return np.stack(columns, axis=1)


def cells_within(features: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tell which cells have all their values in a feature code: uint8 (N, n) -> bool (N, K)."""
    values = np.unravel_index(np.arange(prod(sizes)), tuple(sizes))
    within = np.ones((len(features), prod(sizes)), bool)
    for columns, value in zip(group_slices(sizes), values, strict=True):
        within &= features[:, columns.start + value] == 1
    return within


def ones_before(bits: npt.NDArray[np.uint8] | npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Count the ones before each bit of a row, int64 (N, L)."""
    before: npt.NDArray[np.int64] = np.cumsum(bits, axis=1, dtype=np.int64) - bits
    return before
