"""The balanced space: choose values of every group, then objects that use all of them."""

from __future__ import annotations

from math import prod

from bindscope.codes.counting import covers
from bindscope.config.codes import BalancedSpace


class Balanced:
    """`chosen` values of every group, and `n_objects` objects that use every chosen value.

    The chosen values are uniform, and the objects are uniform given them (spec 1, section 3,
    balanced_colorshape). Every feature code has the same number of object codes.

    Parameters
    ----------
    config
        The `space` section of a dataset.
    """

    def __init__(self, config: BalancedSpace) -> None:
        self.sizes = tuple(group.size for group in config.groups)
        self.n_cells = prod(self.sizes)
        self.n_features = sum(self.sizes)
        self.min_objects = self.max_objects = config.n_objects
        self.chosen: tuple[int, ...] | None = tuple(config.chosen)

    def weight(self, n_objects: int) -> int:
        """1: all object codes are equally likely."""
        return 1

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of object codes of each such feature code."""
        assert self.chosen is not None
        return {self.chosen: covers(self.chosen, self.min_objects, self.max_objects)}
