"""Splits of scenes, by their objects.

Scenes of the same objects are on one side, in every order and every picture: a probe that saw
(a, b) knows (b, a) by whatever its embedding has of that pair, an average over its pictures
included. By scene, as in the paper, such a vector per pair reads as binding.

Approximators: scenes whose objects are all for training train, scenes whose objects are all held
out are the test, the others are neither. To select by something else than the test, some training
objects are set aside: scenes of training objects that hold at least one of these validate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.counting import SplitBy, n_training
from bindscope.studies.concepts.scenes import Integers, Scenes, absent_values

PROBED = 0.4  # share of sets of objects, or of scenes, that probes are fitted on
ESTIMATED = 0.3  # share of sets of objects that vectors are estimated from


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of scenes, ascending."""

    estimated: Integers  # vectors of objects and values are estimated from them
    probed: Integers  # probes are fitted on them
    scored: Integers  # sums, edits and removals are scored on them
    read: Integers  # probes of embeddings as they are, and queries, are scored on them


def split_scenes(scenes: Scenes, by: SplitBy = "objects", seed: int = 0) -> Parts:
    """Draw the parts.

    By `objects`: three disjoint parts of the unordered sets of objects, each with all scenes of its
    sets. By `scenes`, as in the paper: probes are fitted on some scenes and judged by the others;
    vectors are estimated from all scenes and scored on all of them.
    """
    every = np.arange(len(scenes))
    if by == "scenes":
        order = rng(seed, len(scenes)).permutation(len(scenes))
        cut = int(PROBED * len(scenes))
        return Parts(every, np.sort(order[:cut]), every, np.sort(order[cut:]))
    distinct, of_set = np.unique(scenes.unordered, return_inverse=True)
    place = rng(seed, len(distinct)).permutation(len(distinct))[of_set]
    probed, estimated = (int(share * len(distinct)) for share in (PROBED, PROBED + ESTIMATED))
    part = np.digitize(place, [probed, estimated])
    probes, vectors, scored = (every[part == i] for i in range(3))
    return Parts(vectors, probes, scored, every[part != 0])


DRAWS = 100
# Dual encoders draw their training objects from the generator of the seed alone: of the same one,
# an approximator would be tested on objects that the encoder of its seed never saw.
OBJECTS = 41


@dataclass(frozen=True, eq=False)
class ObjectSplit:
    """Objects and scenes of an approximator, ascending."""

    seed: int
    fitted_objects: Integers  # training objects that do not validate
    train: Integers
    validation: Integers
    test: Integers
    absent_values: int  # that no fitted object has: scenes with one cannot be predicted


def split_objects(
    scenes: Scenes, coverage: float, seed: int, *, validation: float = 0.0
) -> ObjectSplit:
    """Draw training objects, up to 100 times until those that do not validate have every value.

    Of the present objects a share `coverage` trains, and of these a share `validation` validates,
    both rounded down. The same permutation serves all coverages, unless one is drawn again. Raises
    `InputError` if no object trains, or none is left to test.
    """
    present = scenes.present
    n_train = n_training(len(present), coverage)
    if not 0 < n_train < len(present):
        raise InputError(
            "coverage",
            f"{coverage} of {len(present)} objects are {n_train} for training",
            "choose a coverage that leaves objects on both sides",
        )
    n_validation = int(validation * n_train)
    for draw in range(DRAWS):
        order = present[rng(seed, OBJECTS, draw).permutation(len(present))]
        chosen, fitted = order[:n_train], order[: n_train - n_validation]
        absent = absent_values(fitted, present, scenes.sizes)
        if not absent:
            break
    in_train, in_fit = (np.isin(scenes.slots, some).sum(axis=1) for some in (chosen, fitted))
    every = scenes.n_slots
    return ObjectSplit(
        seed,
        fitted_objects=np.sort(fitted),
        train=np.nonzero(in_fit == every)[0],
        validation=np.nonzero((in_train == every) & (in_fit < every))[0],
        test=np.nonzero(in_train == 0)[0],
        absent_values=absent,
    )
