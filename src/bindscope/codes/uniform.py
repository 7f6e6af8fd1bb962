"""The uniform space: every object code with an allowed number of objects is equally likely."""

from __future__ import annotations

from bindscope.codes.counting import by_counts, covers
from bindscope.codes.space import CodeSpace
from bindscope.config.codes import UniformSpace


class Uniform(CodeSpace):
    """All object codes with `min_objects` to `max_objects` objects."""

    def __init__(self, config: UniformSpace) -> None:
        super().__init__(config.groups, config.min_objects, config.max_objects)

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of object codes of each such feature code."""
        return by_counts(
            self.sizes, lambda counts: covers(counts, self.min_objects, self.max_objects)
        )
