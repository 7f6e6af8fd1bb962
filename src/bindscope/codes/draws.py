"""The space of draws: a scene is a number of independent uniform draws of object types."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import comb, fsum, log2, prod
from typing import TYPE_CHECKING

from bindscope.codes.counting import covers, n_feature_codes

if TYPE_CHECKING:
    from bindscope.config.observed import DrawsSpace


class Draws:
    """`n_objects` independent uniform draws out of K object types; O is the set of types drawn.

    The K^n_objects sequences of draws are equally likely. An object code with m types stands for
    `surjections(n_objects, m)` of them, so its probability depends on m alone; for CLEVR, six draws
    out of 96 types.

    Parameters
    ----------
    config
        The `space` section of a dataset.
    """

    chosen = None

    def __init__(self, config: DrawsSpace) -> None:
        self.sizes = tuple(group.size for group in config.groups)
        self.n_cells = prod(self.sizes)
        self.n_features = sum(self.sizes)
        self.n_draws = config.n_objects
        self.min_objects = 1
        self.max_objects = min(config.n_objects, self.n_cells)

    def weight(self, n_objects: int) -> int:
        """Number of sequences of draws whose types are a given set of `n_objects` types."""
        return surjections(self.n_draws, n_objects)

    def covers(self) -> dict[tuple[int, ...], int]:
        """Counts of used values per group -> number of sequences of each such feature code.

        Inclusion-exclusion over the values that are left out: each of the draws is then one of the
        cells that remain.
        """
        vectors = product(*(range(1, size + 1) for size in self.sizes))
        table = {counts: self._covers(counts) for counts in vectors}
        return {counts: ways for counts, ways in table.items() if ways}

    def _covers(self, counts: tuple[int, ...]) -> int:
        total = 0
        for left_out in product(*(range(count + 1) for count in counts)):
            pairs = list(zip(counts, left_out, strict=True))
            ways = prod(comb(count, i) for count, i in pairs)
            cells = prod(count - i for count, i in pairs)
            total += int((-1) ** sum(left_out)) * ways * int(cells**self.n_draws)
        return total


@cache
def surjections(draws: int, types: int) -> int:
    """Count the sequences of `draws` draws in which each of `types` types occurs."""
    return sum(
        int((-1) ** left_out) * comb(types, left_out) * int((types - left_out) ** draws)
        for left_out in range(types + 1)
    )


def uniform_cover_bits(space: Draws) -> float:
    """Return E_F[log2 number of object codes of F], bits: H(O|F) if they were equally likely.

    This is the count that the paper's released code uses for CLEVR. It is not the H(O|F) of the
    scenes, whose object codes are not equally likely; see `priors.entropies`.
    """
    total = space.n_cells**space.n_draws
    return fsum(
        n_feature_codes(space.sizes, counts)
        * ways
        / total
        * log2(covers(counts, 1, space.max_objects))
        for counts, ways in space.covers().items()
    )
