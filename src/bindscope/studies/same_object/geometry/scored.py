"""Labels of all pairs of patches of test images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.same_object.data import PairData

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Labels:
    """Labels of all patches of images; see `data.PairData`.

    Attributes
    ----------
    instances, valid, positions
        (n, M), (n, M), (n, M, 2).
    things
        bool (n, M): valid patches of an object that is not stuff.
    background
        Whether patches of instance 0 are of one object.
    """

    instances: NDArray[np.int16]
    valid: Bools
    positions: NDArray[np.float32]
    things: Bools
    grid: tuple[int, int]
    background: str = "ignore"

    @classmethod
    def of(cls, data: PairData, stuff: NDArray[Any]) -> Labels:
        """Take the labels of a split; `stuff` (n, M) is not 0 for patches of stuff."""
        things = data.valid & (data.instances > 0) & (stuff == 0)
        return cls(data.instances, data.valid, data.positions, things, data.grid, data.background)

    @cached_property
    def same(self) -> Bools:
        """Whether two patches are of the same object, (n, M, M)."""
        return self.same_of(self.instances)

    def same_of(self, instances: NDArray[Any]) -> Bools:
        """The same of other labels (n, M)."""
        same: Bools = instances[:, :, None] == instances[:, None, :]
        if self.background != "object":
            same = same & (instances != 0)[:, :, None]
        return same

    @cached_property
    def pairs(self) -> Bools:
        """Which (i, j) are pairs i < j of valid patches, (n, M, M)."""
        return self.pairs_of(self.valid)

    def pairs_of(self, valid: Bools) -> Bools:
        """The same of some patches (n, M)."""
        upper = np.triu(np.ones((valid.shape[1],) * 2, bool), 1)
        both: Bools = valid[:, :, None] & valid[:, None, :] & upper
        return both
