"""Which object stands in which slot of each scene, and what follows from it.

An *object* is a tuple of values, one per feature group; its number counts the tuples with the first
type varying slowest (`numpy.ravel_multi_index`). A scene has m slots with an object each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from bindscope.core.array_types import Bools, Integers
from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.counting import FEWER_SLOTS, SplitBy, n_training, too_many


def values_of(objects: Integers, sizes: Sequence[int]) -> Integers:
    """Return the values of objects, with one axis more, by type; -1 is no object, of any values."""
    unravelled = np.unravel_index(np.maximum(objects, 0), tuple(sizes))
    return np.stack(unravelled, axis=-1).astype(np.int64)


def ids_of(values: Integers, sizes: Sequence[int]) -> Integers:
    """Return the objects with some values, the inverse of `values_of`."""
    ids = np.ravel_multi_index(tuple(np.moveaxis(values, -1, 0)), tuple(sizes))
    return np.asarray(ids, np.int64)


def absent_values(objects: Integers, every: Integers, sizes: Sequence[int]) -> int:
    """Count the values of `every` object, over all feature groups, that some `objects` lack."""
    possible, present = values_of(every, sizes), values_of(objects, sizes)
    return sum(len(np.setdiff1d(possible[:, k], present[:, k])) for k in range(len(sizes)))


@dataclass(frozen=True, eq=False)
class Scenes:
    """The objects of n scenes of m slots; `InputError` if a slot holds no object of the space."""

    slots: Integers  # number of the object in each slot, (n, m)
    sizes: tuple[int, ...]  # number of values of each of the C feature groups

    def __post_init__(self) -> None:
        slots = np.asarray(self.slots, np.int64)
        if slots.ndim != 2 or ((slots < 0) | (slots >= self.n_objects)).any():
            raise InputError(
                "slots",
                f"they must be numbers below {self.n_objects} in an array (scenes, slots), and are "
                f"of shape {slots.shape}",
                "give each slot the number of its object, the first feature group varying slowest",
            )
        object.__setattr__(self, "slots", slots)

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def n_slots(self) -> int:
        """Slots of a scene, m."""
        return int(self.slots.shape[1])

    @property
    def n_objects(self) -> int:
        """Objects of the space, U: the product of the sizes."""
        return prod(self.sizes)

    @cached_property
    def values_of_objects(self) -> Integers:
        """Values of each object of the space, (U, C)."""
        return values_of(np.arange(self.n_objects), self.sizes)

    @cached_property
    def values(self) -> Integers:
        """Values of the object in each slot, (n, m, C)."""
        return self.values_of_objects[self.slots]

    @cached_property
    def present(self) -> Integers:
        """Objects of the scenes, ascending."""
        return np.unique(self.slots)

    @cached_property
    def shared(self) -> Bools:
        """Whether two slots of a scene share a value; equal objects do. (n,)."""
        ordered = np.sort(self.values, axis=1)
        return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=(1, 2)))

    @cached_property
    def unordered(self) -> Integers:
        """A number per scene, equal for scenes that hold the same objects in any order, (n,)."""
        return self.keys(np.sort(self.slots, axis=1))

    @cached_property
    def first_of_its_kind(self) -> Bools:
        """Whether no slot before this one holds an equal object, (n, m)."""
        first = np.ones(self.slots.shape, np.bool_)
        for slot in range(1, self.n_slots):
            first[:, slot] = (self.slots[:, :slot] != self.slots[:, slot, None]).all(axis=1)
        return first

    def keys(self, slots: Integers) -> Integers:
        """Return a number per row of objects (n, m), equal for equal rows only.

        Raises `InputError` if there are more rows than int64 has numbers.
        """
        if self.n_objects ** slots.shape[1] >= 2**63 and (
            problem := too_many(self.sizes, slots.shape[1])
        ):
            raise InputError("slots", problem, FEWER_SLOTS)
        weights = self.n_objects ** np.arange(slots.shape[1], dtype=np.int64)[::-1]
        return slots @ weights

    def take(self, index: Integers | Bools | slice) -> Scenes:
        """Return some of the scenes."""
        return Scenes(self.slots[index], self.sizes)

    def contains(self) -> Bools:
        """Return whether each object of the space is in a scene, (n, U)."""
        mask = np.zeros((len(self), self.n_objects), np.bool_)
        np.put_along_axis(mask, self.slots, True, axis=1)
        return mask

    def contains_value(self, concept_type: int) -> Bools:
        """Return whether each value of a feature group is in a scene, (n, V)."""
        mask = np.zeros((len(self), self.sizes[concept_type]), np.bool_)
        np.put_along_axis(mask, self.values[:, :, concept_type], True, axis=1)
        return mask

    def find(self, slots: Integers) -> Integers:
        """Return the first scene with these objects (q, m) in its slots, (q,); -1 for none."""
        known, first = np.unique(self.keys(self.slots), return_index=True)
        keys = self.keys(slots)
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[place] == keys, first[place], -1)

    @classmethod
    def all_of(cls, sizes: tuple[int, ...], n_slots: int = 2) -> Scenes:
        """Return each ordered tuple of objects once."""
        n = prod(sizes)
        return cls(np.stack(np.unravel_index(np.arange(n**n_slots), (n,) * n_slots), 1), sizes)


class Completeness(NamedTuple):
    """What a set of scenes lacks of all ordered tuples of its objects."""

    missing: int  # tuples of the objects that are present of which there is no scene
    complete: bool  # whether each of them is there once
    absent_values: int  # that no scene has, over all feature groups


def completeness(scenes: Scenes) -> Completeness:
    """Count what is missing or repeated; the averages of `vectors` lean on completeness."""
    distinct = len(np.unique(scenes.keys(scenes.slots)))
    possible = len(scenes.present) ** scenes.n_slots
    return Completeness(
        possible - distinct,
        len(scenes) == distinct == possible,
        absent_values(scenes.present, np.arange(scenes.n_objects), scenes.sizes),
    )


# --- Splits by objects --------------------------------------------------------------------------
# Scenes of the same objects are on one side, in every order and every picture: a probe that saw
# (a, b) knows (b, a) by whatever its embedding has of that pair, an average over its pictures
# included. By scene, as in the paper, such a vector per pair reads as binding.

PROBED = 0.4  # share of sets of objects, or of scenes, that probes are fitted on
ESTIMATED = 0.3  # share of sets of objects that vectors are estimated from


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of scenes, ascending."""

    estimated: Integers  # vectors of objects and values are estimated from them
    probed: Integers  # probes are fitted on them
    scored: Integers  # sums, edits and removals are scored on them
    read: Integers  # probes of embeddings as they are, and queries, are scored on them


def parts_by_scene(order: Integers) -> Parts:
    """Fit probes on the first scenes of an order, judge them by the others; score sums on all."""
    every, cut = np.arange(len(order)), int(PROBED * len(order))
    return Parts(every, np.sort(order[:cut]), every, np.sort(order[cut:]))


def split_scenes(scenes: Scenes, by: SplitBy = "objects", seed: int = 0) -> Parts:
    """Draw the parts.

    By `objects`: three disjoint parts of the unordered sets of objects, each with all scenes of its
    sets. By `scenes`, as in the paper: probes are fitted on some scenes and judged by the others;
    vectors are estimated from all scenes and scored on all of them.
    """
    if by == "scenes":
        return parts_by_scene(rng(seed, len(scenes)).permutation(len(scenes)))
    distinct, of_set = np.unique(scenes.unordered, return_inverse=True)
    place = rng(seed, len(distinct)).permutation(len(distinct))[of_set]
    probed, estimated = (int(share * len(distinct)) for share in (PROBED, PROBED + ESTIMATED))
    every, part = np.arange(len(scenes)), np.digitize(place, [probed, estimated])
    probes, vectors, scored = (every[part == i] for i in range(3))
    return Parts(vectors, probes, scored, every[part != 0])


# Approximators: scenes whose objects are all for training train, scenes whose objects are all held
# out are the test, the others are neither. To select by something else than the test, some training
# objects are set aside: scenes of training objects that hold at least one of these validate.

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
    # That no fitted object has in some slot, where others do: scenes with one cannot be predicted.
    absent_values: int


def split_objects(
    scenes: Scenes,
    coverage: float,
    seed: int,
    *,
    validation: float = 0.0,
    order: Integers | None = None,
) -> ObjectSplit:
    """Draw training objects, up to 100 times until those that do not validate have every value.

    They have it in each slot where other objects do, for learners have vectors by slot. With an
    `order` of the present objects, its first ones train, whatever they lack. Of the
    present objects a share `coverage` trains, and of these a share `validation` validates, both
    rounded down. The same permutation serves all coverages, unless one is drawn again. Raises
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
    of_slots = [np.unique(scenes.slots[:, slot]) for slot in range(scenes.n_slots)]
    draws = (present[rng(seed, OBJECTS, draw).permutation(len(present))] for draw in range(DRAWS))
    for drawn in draws if order is None else [order]:
        chosen, fitted = drawn[:n_train], drawn[: n_train - n_validation]
        absent = max(
            absent_values(np.intersect1d(fitted, some), some, scenes.sizes) for some in of_slots
        )
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
