"""Exchange of one object of a scene for another in its embedding.

An edit adds  strength * (vector of the new object - vector of the old one)  to the embedding of a
scene that exists, and is judged against the real scene with the new object: does the edited
embedding have its greatest cosine with it, and do frozen probes read what it holds?  The joint hit
of concept probes cannot tell a swapped pairing from the right one; the hit of objects can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.decomposition import SIMILARITIES_AT_ONCE, first_greatest
from bindscope.studies.concepts.recognition import Readout, unit
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import (
    RESAMPLES,
    Accuracy,
    Expected,
    accuracies,
    expected_of_objects,
    expected_of_values,
)
from bindscope.studies.concepts.vectors import ObjectVectors

# Of one concept type: each is compared with all scenes, and intervals resample objects anyway. All
# pairs of 400 objects have 304,000.
MOST_EDITS = 10_000
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@dataclass(frozen=True, eq=False)
class Edits:
    """Which object of which scene is exchanged for which; e edits.

    Attributes
    ----------
    base
        Scenes, (e,).
    slots
        Slots, (e,).
    old, new
        Objects, (e,).
    target
        The scene with the new object, (e,); -1 where there is none.
    without_value
        Slots for which no value was left to change to.
    """

    base: Integers
    slots: Integers
    old: Integers
    new: Integers
    target: Integers
    without_value: int = 0

    def take(self, which: Flags) -> Edits:
        """Return some of the edits."""
        return Edits(
            self.base[which],
            self.slots[which],
            self.old[which],
            self.new[which],
            self.target[which],
            self.without_value,
        )


def value_edits(scenes: Scenes, concept_type: int, seed: int = 0) -> Edits:
    """Draw an edit per slot that changes one value of its object to one that the scene has not.

    Parameters
    ----------
    scenes
        The scenes. Only those whose objects differ in every other concept type are edited: else
        the probes of these types could not tell the slots apart (the paper's choice).
    concept_type
        The type that changes.
    seed
        Of the new values.
    """
    k, size = concept_type, scenes.sizes[concept_type]
    others = np.sort(np.delete(scenes.values, k, axis=2), axis=1)
    apart = (others[:, 1:] != others[:, :-1]).all(axis=(1, 2))
    base, slots = (part.ravel() for part in np.nonzero(np.tile(apart[:, None], scenes.n_slots)))
    present = scenes.contains_value(k)[base]
    weights = np.where(present, -1.0, rng(seed, k).random((len(base), size)))
    possible = np.asarray(~present.all(axis=1))
    new_value = weights.argmax(axis=1)
    values = scenes.values[base, slots].copy()
    values[:, k] = new_value
    new = np.ravel_multi_index(tuple(values.T), scenes.sizes)
    changed = scenes.slots[base].copy()
    changed[np.arange(len(base)), slots] = new
    absent = int((~possible).sum())
    edits = Edits(base, slots, scenes.slots[base, slots], new, scenes.find(changed), absent)
    return edits.take(possible)


def drawn_edits(edits: Edits, most: int = MOST_EDITS, seed: int = 0) -> Edits:
    """Return at most so many edits, drawn at random where there are more."""
    n = len(edits.base)
    if n <= most:
        return edits
    chosen = np.zeros(n, np.bool_)
    chosen[rng(seed, n).choice(n, most, replace=False)] = True
    return edits.take(chosen)


@dataclass(frozen=True)
class Edited:
    """How edits of one strength come out.

    Attributes
    ----------
    strength
        Of the edit; at 0 nothing changes, and a hit would need no edit.
    measure
        `retrieval_strict` or `retrieval_unordered` (greatest cosine over all scenes is with the
        real one; or with one of the same objects), `concept` (all types at once) or `object`.
    accuracy
        By strata of the scene before: whether its objects `shared` a value or `none`.
    without_vector, without_scene, without_value
        Edits that were skipped: a vector is not known, the real scene is missing, no value is left.
    """

    strength: float
    measure: str
    accuracy: Accuracy
    without_vector: int
    without_scene: int
    without_value: int


def edited(
    z: Floats,
    scenes: Scenes,
    vectors: ObjectVectors,
    readout: Readout,
    edits: Edits,
    strengths: tuple[float, ...] = STRENGTHS,
    *,
    estimated: Integers | None = None,
    resamples: int = RESAMPLES,
) -> list[Edited]:
    """Carry out edits and judge them; intervals resample the objects before and after them.

    Parameters
    ----------
    z
        Embeddings (n, d): also the bank that is searched.
    scenes
        Of the same n.
    vectors
        Of objects by slot.
    readout
        Frozen probes, fitted on real embeddings.
    edits
        What is exchanged.
    strengths
        Multiples of the difference of the two vectors.
    estimated
        Scenes that vectors were estimated from: as real scenes that are to be found they do not
        count, since the vectors have a part of them.
    resamples
        Of the bootstrap.
    """
    difference = vectors.table[edits.slots, edits.new] - vectors.table[edits.slots, edits.old]
    vector, scene = ~np.isnan(difference[:, 0]), edits.target >= 0
    skipped = (int((~vector).sum()), int((vector & ~scene).sum()), edits.without_value)
    some, difference = edits.take(vector & scene), difference[vector & scene]
    doubles = np.asarray(z, np.float64)
    expected = _expected(scenes, some.target, readout)
    shared = scenes.shared[some.base]
    strata = {"all": np.ones_like(shared), "shared": shared, "none": ~shared}
    hits = {
        (strength, measure): of_measure
        for strength, measured in _hits(doubles, scenes, readout, some, difference, strengths)
        for measure, of_measure in measured.items()
    }
    known = np.isin(some.target, [] if estimated is None else estimated)
    for (_, measure), of_measure in hits.items():
        if measure.startswith("retrieval"):
            of_measure[known] = np.nan
    beside = {key: expected[key[1]] for key in hits}
    members = np.column_stack([scenes.slots[some.base], some.new])
    measured = accuracies(hits, beside, members, strata, resamples=resamples)
    return [Edited(*key, accuracy, *skipped) for key, accuracy in measured]


def _expected(scenes: Scenes, target: Integers, readout: Readout) -> dict[str, Expected]:
    """Return what is expected of each measure without binding, for the scenes to be found."""
    real = scenes.take(target)
    nothing = Expected(*(np.full(len(real), np.nan),) * 3)
    _, kind, repeats = np.unique(scenes.unordered, return_inverse=True, return_counts=True)
    return {
        "retrieval_strict": replace(nothing, chance=np.full(len(real), 1 / len(scenes))),
        "retrieval_unordered": replace(nothing, chance=repeats[kind[target]] / len(scenes)),
        "concept": expected_of_values(real, "joint"),
        "object": expected_of_objects(real, readout.candidates),
    }


def _hits(
    z: Doubles,
    scenes: Scenes,
    readout: Readout,
    edits: Edits,
    difference: Doubles,
    strengths: tuple[float, ...],
) -> Iterator[tuple[float, dict[str, Doubles]]]:
    """Yield the hits of each strength by measure.

    The norm of an edited embedding changes no order of cosines, so similarities to the bank are
    linear in the strength, and are computed once for all of them.
    """
    retrieved = _nearest_by_strength(z, edits, difference, strengths)
    real = scenes.take(edits.target)
    for strength, place in zip(strengths, retrieved, strict=True):
        moved = z[edits.base] + strength * difference
        same = scenes.unordered[place] == scenes.unordered[edits.target]
        yield (
            strength,
            {
                "retrieval_strict": (place == edits.target).astype(np.float64),
                "retrieval_unordered": same.astype(np.float64),
                "concept": readout.concept_hits(moved, real).min(axis=1),
                "object": readout.object_hits(moved, real),
            },
        )


def _nearest_by_strength(
    z: Doubles, edits: Edits, difference: Doubles, strengths: tuple[float, ...]
) -> Integers:
    """Return the scene with the greatest cosine, (strengths, e)."""
    directions = unit(z).T
    step = max(1, SIMILARITIES_AT_ONCE // len(z))
    nearest_scenes = np.empty((len(strengths), len(difference)), np.int64)
    for start in range(0, len(difference), step):
        part = slice(start, start + step)
        before, change = z[edits.base[part]] @ directions, difference[part] @ directions
        for i, strength in enumerate(strengths):
            nearest_scenes[i, part] = first_greatest(before + strength * change)
    return nearest_scenes
