"""The uniform space: every object code with an allowed number of objects is equally likely."""

from __future__ import annotations

from math import prod

from bindscope.codes.counting import covers_by_counts
from bindscope.config.codes import UniformSpace


class Uniform:
    """All object codes with `min_objects` to `max_objects` objects (spec 1, section 3).

    Parameters
    ----------
    config
        The `space` section of a dataset.
    """

    chosen = None

    def __init__(self, config: UniformSpace) -> None:
        self.sizes = tuple(group.size for group in config.groups)
        self.n_cells = prod(self.sizes)
        self.n_features = sum(self.sizes)
        self.min_objects = config.min_objects
        self.max_objects = min(config.max_objects, self.n_cells)

    def weight(self, n_objects: int) -> int:
        """1: all object codes are equally likely."""
        return 1

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of object codes of each such feature code."""
        return covers_by_counts(self.sizes, self.min_objects, self.max_objects)
