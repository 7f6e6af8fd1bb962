"""Splits of objects, and of the scenes that hold them, for approximators.

Scenes whose objects are all for training train; scenes whose objects are all held out are the test;
the others are mixed, scored apart and never trained on (specification, sections 2.8 and 2.9).  To
select by something else than the test, some training objects are set aside: scenes of training
objects that hold at least one of these validate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.scenes import Integers, Scenes, absent_values

DRAWS = 100


@dataclass(frozen=True, eq=False)
class ObjectSplit:
    """Objects and scenes of an approximator.

    Attributes
    ----------
    coverage, seed
        Share of objects for training, and the seed of the draw.
    train_objects, fitted_objects, test_objects
        Of the objects that are present; the first are those that are fitted on and those that
        validate.
    train, validation, test, mixed
        Scenes, ascending.
    absent_values
        Values that no training object has, over all types: what holds one cannot be foretold.
    draws
        How many draws it took to have every value, or all that were allowed.
    """

    coverage: float
    seed: int
    train_objects: Integers
    fitted_objects: Integers
    test_objects: Integers
    train: Integers
    validation: Integers
    test: Integers
    mixed: Integers
    absent_values: int
    draws: int

    @property
    def subsets(self) -> dict[str, Integers]:
        """Scenes by name of the subset."""
        return {
            "train": self.train,
            "validation": self.validation,
            "mixed": self.mixed,
            "test": self.test,
        }


def split_objects(
    scenes: Scenes,
    coverage: float,
    seed: int,
    *,
    validation: float = 0.0,
    require_values: bool = True,
) -> ObjectSplit:
    """Draw training objects.

    Parameters
    ----------
    scenes
        The scenes.
    coverage
        Share of the present objects that train, rounded down.
    seed
        Of the draw. The same permutation serves all coverages, unless one is drawn again.
    validation
        Share of the training objects that validate, rounded down.
    require_values
        Whether to draw again, up to 100 times, until the training objects that do not validate
        have every value that occurs; `absent_values` says what came of it.

    Raises
    ------
    InputError
        If no object trains, or none is left to test.
    """
    present = scenes.present
    n_train = int(coverage * len(present) + 1e-9)
    if not 0 < n_train < len(present):
        raise InputError(
            "coverage",
            f"{coverage} of {len(present)} objects are {n_train} for training",
            "choose a coverage that leaves objects on both sides",
        )
    n_validation = int(validation * n_train)
    for draw in range(DRAWS if require_values else 1):
        order = present[rng(seed, draw).permutation(len(present))]
        chosen, fitted = order[:n_train], order[: n_train - n_validation]
        absent = absent_values(fitted, present, scenes.sizes)
        if not absent:
            break
    in_train, in_fit = (np.isin(scenes.slots, some).sum(axis=1) for some in (chosen, fitted))
    every = scenes.n_slots
    return ObjectSplit(
        coverage,
        seed,
        train_objects=np.sort(chosen),
        fitted_objects=np.sort(fitted),
        test_objects=np.sort(order[n_train:]),
        train=np.nonzero(in_fit == every)[0],
        validation=np.nonzero((in_train == every) & (in_fit < every))[0],
        test=np.nonzero(in_train == 0)[0],
        mixed=np.nonzero((in_train > 0) & (in_train < every))[0],
        absent_values=absent,
        draws=draw + 1,
    )
