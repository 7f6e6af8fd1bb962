"""The objects of a symbolic space, and which of them a dual encoder is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.coverage import drawn_objects
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.dual.counts import n_objects_by_split
from bindscope.studies.concepts.scenes import ids_of, values_of

__all__ = ["Ids", "Split", "ids_of", "offsets", "split_objects", "values_of"]

SPLITTING = 0  # stream of a seed; 1 and 2 are in `batches`, 3 is in `evaluation`

Ids = NDArray[np.int64]


def offsets(sizes: Sequence[int]) -> Ids:
    """Return the token of the first value of each type; tokens number the values of all types."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


@dataclass(frozen=True)
class Split:
    """Which objects are for training, for validation and for testing; ascending int64.

    Attributes
    ----------
    train, validation, test
        The objects.
    missing_values
        How many values, of all types, no training object has.
    """

    train: Ids
    validation: Ids
    test: Ids
    missing_values: int


def split_objects(
    sizes: Sequence[int],
    coverage: float,
    validation_share: float,
    seed: int,
    *,
    every_value: bool,
) -> Split:
    """Draw the objects that a dual encoder is trained on.

    Parameters
    ----------
    sizes
        Number of values of each concept type.
    coverage
        Share of the objects that are for training, rounded down.
    validation_share
        Share of the other objects that are for validation, rounded down.
    seed
        Seed of the draw.
    every_value
        Whether objects are drawn anew until those for training have every value: uniform among the
        draws that have.

    Raises
    ------
    ConfigError
        If no draw has every value.
    """
    train, validation, _ = n_objects_by_split(tuple(sizes), coverage, validation_share)
    order, missing = drawn_objects(sizes, train, rng(seed, SPLITTING), every_value=every_value)
    trained, chosen, tested = map(np.sort, np.split(order, [train, train + validation]))
    return Split(trained, chosen, tested, missing)
