"""The space of object codes, and the feature code F = f(O) of an object code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bindscope.codes.counting import n_feature_codes
from bindscope.config.codes import Space
from bindscope.core.registries import SPACES, resolve


class SpaceProtocol(Protocol):
    """The interface of a space of object codes, from which all counts are made.

    A space has equally likely outcomes, and an object code with m objects stands for ``weight(m)``
    of them. Where all weights are 1 the outcomes are the object codes. A feature code's probability
    is proportional to ``covers()[its counts]``.
    """

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each feature group."""

    @property
    def n_cells(self) -> int:
        """Length K of an object code."""

    @property
    def n_features(self) -> int:
        """Length n of a feature code."""

    @property
    def min_objects(self) -> int:
        """Smallest number of ones in an object code."""

    @property
    def max_objects(self) -> int:
        """Largest number of ones in an object code, at most K; see `counting.largest_scene`."""

    @property
    def chosen(self) -> tuple[int, ...] | None:
        """How many values of each group every code uses; None where that is free."""

    def weight(self, n_objects: int) -> int:
        """Outcomes of an object code with an allowed number of objects; at least 1."""

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of outcomes of each such feature code."""


def build_space(config: Space) -> SpaceProtocol:
    """Build the space that a `space` section describes."""
    space: SpaceProtocol = resolve(SPACES[config.kind])(config)
    return space


def n_outcomes(space: SpaceProtocol) -> int:
    """Count the outcomes of a space: its object codes, each as often as its weight says."""
    return sum(
        n_feature_codes(space.sizes, counts) * ways for counts, ways in space.covers().items()
    )


def outcome_weights(space: SpaceProtocol) -> list[int]:
    """Return the outcomes of an object code by its number of objects, 0 for numbers not allowed."""
    allowed = range(space.min_objects, space.max_objects + 1)
    return [space.weight(m) if m in allowed else 0 for m in range(space.max_objects + 1)]


def feature_code(objects: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Compute the feature codes of object codes: which values occur in any object.

    Parameters
    ----------
    objects
        uint8 (N, K); K is the Cartesian product of the groups, the last one fastest.
    sizes
        Number of values of each group.

    Returns
    -------
    ndarray
        uint8 (N, n), n = sum(sizes): the groups' values one group after the other.
    """
    if objects.ndim != 2 or objects.shape[1] != prod(sizes):
        raise ValueError(f"objects has shape {objects.shape}, expected (N, {prod(sizes)})")
    grid = objects.reshape(len(objects), *sizes).astype(bool)
    axes = range(1, len(sizes) + 1)
    parts = [grid.any(axis=tuple(a for a in axes if a != group)) for group in axes]
    return np.concatenate(parts, axis=1).astype(np.uint8)


def group_slices(sizes: Sequence[int]) -> list[slice]:
    """Return where each group stands in a feature code."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def feature_counts(features: npt.NDArray[np.uint8], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Count the used values of each group: uint8 (N, n) -> int64 (N, G)."""
    columns = [features[:, part].sum(axis=1, dtype=np.int64) for part in group_slices(sizes)]
    return np.stack(columns, axis=1)
