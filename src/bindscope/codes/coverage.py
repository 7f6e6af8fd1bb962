"""Which objects training scenes are made of, so that combinations of known values are held out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import ConfigError

DRAWS = 10_000  # of training objects, until every value is among them


def drawn_objects(
    sizes: Sequence[int], n: int, generator: np.random.Generator, *, every_value: bool = True
) -> tuple[NDArray[np.int64], int]:
    """Put the objects of a space in a random order whose first `n` ones have every value.

    Returns the order, int64 (objects,), and how many values, of all groups, the first ones lack.
    With `every_value` the order is uniform among those that lack none; ConfigError if none of
    `DRAWS` orders is one.
    """
    sizes = tuple(sizes)
    for _ in range(DRAWS if every_value else 1):
        order = generator.permutation(prod(sizes))
        values = np.unravel_index(order[:n], sizes)
        missing = sum(
            size - len(np.unique(column)) for size, column in zip(sizes, values, strict=True)
        )
        if not missing:
            return order, 0
    if every_value:
        raise ConfigError(
            f"coverage of the space {'x'.join(map(str, sizes))}",
            f"no draw of {n} objects out of {DRAWS:,} has every value of every group",
            "raise the coverage, or do not ask for every value where the configuration lets you",
        )
    return order, missing
