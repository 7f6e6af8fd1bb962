"""How many objects train, validate and test: what planning and jobs both know."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def n_objects_by_split(
    sizes: Sequence[int], coverage: float, validation_share: float
) -> tuple[int, int, int]:
    """Return how many objects are for training, for validation and for testing.

    Parameters
    ----------
    sizes
        Number of values of each concept type; objects are all combinations.
    coverage
        Share of the objects that are for training, rounded down.
    validation_share
        Share of the other objects that are for validation, rounded down.
    """
    total = prod(sizes)
    train = int(coverage * total)
    validation = int(validation_share * (total - train))
    return train, validation, total - train - validation
