"""What a trained dual encoder recognises: exact counts over all scenes of some objects.

The recogniser is that of embeddings (`recognition`); its candidates may differ from scene to scene.
The *bag-of-concepts floor* ties an object with a swap (a combination of the scene's own values that
is not in it), so it is right exactly where no swap is among the candidates: where two objects
differ in one type alone, and of one object always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.dual.objects import Ids, ids_of, values_of
from bindscope.studies.concepts.dual_config import Candidates
from bindscope.studies.concepts.recognition import Readout
from bindscope.studies.concepts.scenes import Flags, Floats, Scenes
from bindscope.studies.concepts.set_separation import (
    Accuracy,
    Expected,
    accuracies,
    expected_of_objects,
    expected_of_values,
    strata_of,
)

SAMPLING = 3  # stream of a seed
SAMPLED_SCENES = 64  # whose objects are the candidates of `sampled`
BLOCK = 2**22  # scores in memory at a time


@dataclass(frozen=True)
class Score:
    """A share of scenes.

    Attributes
    ----------
    target
        `object`; `concept`, the mean over types of values told among those of their type;
        `concept_pooled`, among those of all types.
    candidates
        What is ranked.
    accuracy
        Share of scenes in a stratum, beside chance and floor.
    n_all
        All scenes of this number of objects; those that were scored are drawn from them.
    """

    target: str
    candidates: str
    accuracy: Accuracy
    n_all: int


def pairs(
    objects: Ids, sizes: Sequence[int], *, ordered: bool, max_scenes: int | None, seed: int
) -> tuple[Scenes, int]:
    """Return scenes of two different objects, and how many there are.

    Parameters
    ----------
    objects
        Objects, int64 (n,).
    sizes
        Number of values of each concept type.
    ordered
        Whether (a, b) and (b, a) are two scenes; one of them, else.
    max_scenes
        The most scenes; where there are more, so many are drawn without replacement.
    seed
        Seed of the draw.
    """
    n = len(objects)
    n_all = n * (n - 1) // (1 if ordered else 2)
    if max_scenes is not None and n_all > max_scenes:
        ranks = np.sort(rng(seed, SAMPLING).choice(n_all, max_scenes, replace=False))
    else:
        ranks = np.arange(n_all)
    if ordered:
        first, second = np.divmod(ranks, max(n - 1, 1))
        second += second >= first
    else:  # the pairs i < j in the order of j
        second = ((1 + np.sqrt(1 + 8 * ranks.astype(np.float64))) // 2).astype(np.int64)
        first = ranks - second * (second - 1) // 2
    return Scenes(np.stack([objects[first], objects[second]], 1), tuple(sizes)), n_all


def swaps(slots: Ids, sizes: Sequence[int]) -> Ids:
    """Return all combinations of the values of a scene's objects, int64 (scenes, combinations)."""
    values = values_of(slots, sizes)
    places = np.array(list(product(range(slots.shape[1]), repeat=len(sizes))))
    mixed = values[:, places, np.arange(len(sizes))]
    return ids_of(mixed, sizes)


def evaluate(
    embed: Callable[[Ids], Floats],
    queries: Readout,
    scenes: tuple[Scenes, int],
    trained: Ids,
    further: Sequence[Candidates],
    seed: int,
) -> Iterator[Score]:
    """Yield what one run recognises of some scenes.

    Parameters
    ----------
    embed
        From objects of scenes, int64 (n, places), to embeddings (n, dim).
    queries
        Of all objects of the space, and of all values.
    scenes
        Scenes of one number of objects, and how many there are.
    trained
        The objects that the run was trained on: candidates of their own, with those of the scene.
    further
        Kinds of candidates besides these and all objects; none for scenes of one object.
    seed
        Of the groups of scenes, and of the swaps, of `sampled`.
    """
    asked, n_all = scenes
    kinds = ("full", "trained", *(further if asked.n_slots > 1 else ()))
    known = np.isin(np.arange(asked.n_objects), trained)
    # In a random order: those of `sampled` are grouped as they come, and neighbours share objects.
    asked = asked.take(rng(seed, SAMPLING, 0).permutation(len(asked)))
    rows = max(BLOCK // asked.n_objects // SAMPLED_SCENES, 1) * SAMPLED_SCENES
    parts = [
        _recognised(embed, queries, asked.take(slice(start, start + rows)), kinds, known,
                    (seed, start))
        for start in range(0, len(asked), rows)
    ]  # fmt: skip
    hits = {key: np.concatenate([part[key][0] for part in parts]) for key in parts[0]}
    beside = {key: Expected.joined([part[key][1] for part in parts]) for key in parts[0]}
    strata = {name: own for name, own in strata_of(asked).items() if own.any()}
    if asked.n_slots == 1:
        strata = {"all": strata["all"]}
    for (target, kind), found in accuracies(hits, beside, asked.slots, strata, resamples=0):
        yield Score(target, kind, found, n_all)


def _recognised(
    embed: Callable[[Ids], Floats],
    queries: Readout,
    scenes: Scenes,
    kinds: Sequence[str],
    known: Flags,
    group: tuple[int, int],
) -> dict[tuple[str, str], tuple[NDArray[np.float64], Expected]]:
    """Return hits and what they come to without binding, by target and candidates."""
    z = embed(scenes.slots)
    found = {}
    for kind in kinds:
        among = _candidates(scenes, kind, known, group)
        hits = queries.object_hits(z, scenes, among)
        found["object", kind] = hits, expected_of_objects(scenes, queries.candidates, among)
    values = queries.concept_hits(z, scenes).mean(axis=1)
    found["concept", "full"] = values, expected_of_values(scenes, "mean")
    pooled = queries.pooled_concept_hits(z, scenes)
    found["concept_pooled", "full"] = pooled, expected_of_values(scenes, "pooled")
    return found


def _candidates(scenes: Scenes, kind: str, known: Flags, group: tuple[int, int]) -> Flags | None:
    """Return which objects are ranked for each scene, bool (n, objects); None: all of them."""
    if kind == "full":
        return None
    mixed = swaps(scenes.slots, scenes.sizes)
    among = np.zeros((len(scenes), scenes.n_objects), bool)
    if kind == "swaps":
        np.put_along_axis(among, mixed, True, axis=1)
    elif kind == "trained":
        among |= known
    else:
        seed, start = group
        for first in range(0, len(scenes), SAMPLED_SCENES):
            own = slice(first, first + SAMPLED_SCENES)
            drawn = rng(seed, SAMPLING, start + first).integers(
                mixed.shape[1], size=len(mixed[own])
            )
            listed = [scenes.slots[own].ravel(), mixed[own][np.arange(len(drawn)), drawn]]
            among[own, np.unique(np.concatenate(listed))] = True
    np.put_along_axis(among, scenes.slots, True, axis=1)
    return among
