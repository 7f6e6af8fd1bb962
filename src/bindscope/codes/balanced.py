"""The balanced space: choose values of every group, then objects that use all of them."""

from __future__ import annotations

from bindscope.codes.counting import covers
from bindscope.codes.space import CodeSpace
from bindscope.config.codes import BalancedSpace


class Balanced(CodeSpace):
    """`chosen` values of every group, and `n_objects` objects that use every chosen value.

    The chosen values are uniform, and the objects are uniform given them, as in the binding problem
    paper's balanced_colorshape. Every feature code has as many object codes.
    """

    def __init__(self, config: BalancedSpace) -> None:
        super().__init__(config.groups, config.n_objects, config.n_objects)
        self.chosen = config.chosen

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of object codes of each such feature code."""
        assert self.chosen is not None
        return {self.chosen: covers(self.chosen, self.min_objects, self.max_objects)}
