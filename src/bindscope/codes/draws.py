"""The space of draws: a scene is a number of independent uniform draws of object types."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from bindscope.codes.counting import by_counts, ways_that_use_all
from bindscope.codes.space import CodeSpace

if TYPE_CHECKING:
    from bindscope.config.observed import DrawsSpace


class Draws(CodeSpace):
    """`n_objects` independent uniform draws out of K object types; O is the set of types drawn.

    The K^n_objects sequences of draws are equally likely. An object code with m types stands for
    `surjections(n_objects, m)` of them, so its probability depends on m alone; for CLEVR, six draws
    out of 96 types.
    """

    def __init__(self, config: DrawsSpace) -> None:
        super().__init__(config.groups, 1, config.n_objects)
        self.n_draws = config.n_objects

    def weight(self, n_objects: int) -> int:
        """Number of sequences of draws whose types are a given set of `n_objects` types."""
        return surjections(self.n_draws, n_objects)

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of sequences of each such feature code."""
        return by_counts(
            self.sizes,
            lambda counts: ways_that_use_all(counts, lambda cells: int(cells**self.n_draws)),
        )


@cache
def surjections(draws: int, types: int) -> int:
    """Count the sequences of `draws` draws in which each of `types` types occurs."""
    return ways_that_use_all([types], lambda allowed: int(allowed**draws))
