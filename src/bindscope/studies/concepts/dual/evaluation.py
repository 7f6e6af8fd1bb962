"""What a trained dual encoder recognises: exact counts over all scenes of some objects.

*Set separation*: an encoder recognises the objects of a scene where every one of them scores above
every other candidate, ties being misses. Two numbers stand beside a share of scenes: `chance`, that
of a random ranking, and the *bag-of-concepts floor*, that of an encoder that counts shared concepts
and nothing else. That one ties an object with a swap (a combination of the scene's own values that
is not in it), so it is right exactly where no swap is among the candidates: where two objects
differ in one type alone, and of one object always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.dual.encoders.base import DualEncoder
from bindscope.studies.concepts.dual.loss import cosines
from bindscope.studies.concepts.dual.objects import Ids, ids_of, offsets, values_of
from bindscope.studies.concepts.dual_config import Candidates
from bindscope.studies.concepts.set_separation import chance, set_separation

SAMPLING = 3  # stream of a seed
SAMPLED_SCENES = 64  # whose objects are the candidates of `sampled`
BLOCK = 2**22  # scores in memory at a time

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Scenes:
    """Scenes that are asked about.

    Attributes
    ----------
    slots
        Objects, int64 (scenes, places), all different in a scene.
    stratum
        Whether two objects of a scene share a value, bool (scenes,).
    n_all
        How many such scenes there are; those of `slots` are drawn from them where it is larger.
    """

    slots: Ids
    shared: Bools
    n_all: int


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
    stratum
        `all`, or scenes whose objects share a value (`shared`) or do not (`none`).
    accuracy, chance
        Share of scenes, and that of random rankings.
    floor
        Share that a bag of concepts gets right; None for concepts, where it is always right.
    n_scenes, n_all
        Scenes that were asked about, and all of this number of objects and stratum `all`.
    """

    target: str
    candidates: str
    stratum: str
    accuracy: float
    chance: float
    floor: float | None
    n_scenes: int
    n_all: int


def single_objects(objects: Ids) -> Scenes:
    """Return the scenes of one object."""
    return Scenes(objects[:, None], np.zeros(len(objects), bool), len(objects))


def pairs(
    objects: Ids, sizes: Sequence[int], *, ordered: bool, max_scenes: int | None, seed: int
) -> Scenes:
    """Return the scenes of two different objects.

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
    slots = np.stack([objects[first], objects[second]], 1)
    values = values_of(slots, sizes)
    return Scenes(slots, (values[:, 0] == values[:, 1]).any(1), n_all)


def swaps(slots: Ids, sizes: Sequence[int]) -> Ids:
    """Return all combinations of the values of a scene's objects, int64 (scenes, combinations)."""
    values = values_of(slots, sizes)
    places = np.array(list(product(range(slots.shape[1]), repeat=len(sizes))))
    mixed = values[:, places, np.arange(len(sizes))]
    return ids_of(mixed, sizes)


@torch.no_grad()
def evaluate(
    encoder: DualEncoder,
    scenes: Scenes,
    trained: Ids,
    further: Sequence[Candidates],
    seed: int,
) -> Iterator[Score]:
    """Yield what one run recognises of some scenes.

    Parameters
    ----------
    encoder
        Encoders of one run.
    scenes
        Scenes of one number of objects.
    trained
        The objects that the run was trained on: candidates of their own, with those of the scene.
    further
        Kinds of candidates besides these and all objects; none for scenes of one object.
    seed
        Seed of the swaps among the candidates of `sampled`.
    """
    slots, sizes = scenes.slots, encoder.sizes
    kinds = ("full", "trained", *(further if slots.shape[1] > 1 else ()))
    known = np.zeros(prod(sizes), bool)
    known[trained] = True
    rows = max(BLOCK // prod(sizes) // SAMPLED_SCENES, 1) * SAMPLED_SCENES
    device = encoder.tokens.device
    queries = encoder.objects(torch.arange(prod(sizes), device=device)[None])
    concepts = encoder.concepts()
    parts = []
    for start in range(0, len(slots), rows):
        own = slots[start : start + rows]
        embedded = encoder.scenes(torch.from_numpy(own).to(device)[None])
        objects = cosines(embedded, queries)[0].cpu().numpy()
        values = cosines(embedded, concepts)[0].cpu().numpy()
        found = {("object", kind): _object_hits(objects, own, sizes, kind, known, seed, start)
                 for kind in kinds}  # fmt: skip
        parts.append(found | _concept_hits(values, own, sizes))
    for (target, kind), _ in parts[0].items():
        hits, chances, floor = (
            np.concatenate([part[target, kind][i] for part in parts]) for i in range(3)
        )
        for name, stratum in _strata(scenes):
            yield Score(
                target, kind, name,
                float(hits[stratum].mean()), float(chances[stratum].mean()),
                float(floor[stratum].mean()) if target == "object" else None,
                int(stratum.sum()), scenes.n_all,
            )  # fmt: skip


def _strata(scenes: Scenes) -> Iterator[tuple[str, Bools]]:
    strata = {"all": np.ones(len(scenes.slots), bool)}
    if scenes.slots.shape[1] > 1:
        strata |= {"shared": scenes.shared, "none": ~scenes.shared}
    return ((name, stratum) for name, stratum in strata.items() if stratum.any())


Hits = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def _object_hits(
    scores: NDArray[np.float32],
    slots: Ids,
    sizes: Sequence[int],
    kind: str,
    known: Bools,
    seed: int,
    start: int,
) -> Hits:
    """Return hits, chance and the floor's hits of some scenes (scenes,), the first one `start`."""
    rows = np.arange(len(slots))[:, None]
    mixed = swaps(slots, sizes)
    present = (mixed[:, :, None] == slots[:, None]).any(2)
    if kind == "swaps":
        candidates = np.zeros(scores.shape, bool)
        candidates[rows, mixed] = True
    elif kind == "sampled":
        candidates = _sampled(slots, mixed, len(scores[0]), seed, start)
    else:
        listed = known if kind == "trained" else np.ones_like(known)
        candidates = np.tile(listed, (len(slots), 1))
        candidates[rows, slots] = True
    of_scene = np.zeros(scores.shape, bool)
    of_scene[rows, slots] = True
    hits = set_separation(np.where(candidates, scores, -np.inf), of_scene)
    floor = ~(candidates[rows, mixed] & ~present).any(1)
    chances = chance(np.full(len(slots), slots.shape[1]), candidates.sum(1))
    return hits, chances, floor.astype(np.float64)


def _sampled(slots: Ids, mixed: Ids, n_objects: int, seed: int, start: int) -> Bools:
    """Mark the objects of each `SAMPLED_SCENES` scenes and one random combination of each."""
    marked = np.zeros((len(slots), n_objects), bool)
    for first in range(0, len(slots), SAMPLED_SCENES):
        own = slice(first, first + SAMPLED_SCENES)
        chosen = rng(seed, SAMPLING, start + first).integers(mixed.shape[1], size=len(mixed[own]))
        listed = np.zeros(n_objects, bool)
        listed[slots[own]] = True
        listed[mixed[own][np.arange(len(chosen)), chosen]] = True
        marked[own] = listed
    return marked


def _concept_hits(
    scores: NDArray[np.float32], slots: Ids, sizes: Sequence[int]
) -> dict[tuple[str, str], Hits]:
    """Return hits and chance of concepts: by type, as a mean over types, and of all types."""
    tokens = values_of(slots, sizes) + offsets(sizes)
    rows = np.arange(len(slots))[:, None]
    present = np.zeros(scores.shape, bool)
    present[rows, tokens.reshape(len(slots), -1)] = True
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    by_type = [_separated(scores[:, part], present[:, part]) for part in parts]
    hits, chances = (np.mean([found[i] for found in by_type], axis=0) for i in range(2))
    unused = np.full(len(slots), np.nan)
    return {
        ("concept", "full"): (hits, chances, unused),
        ("concept_pooled", "full"): (*_separated(scores, present), unused),
    }


def _separated(
    scores: NDArray[np.float32], present: Bools
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return hits and chance of scenes (scenes,); where all candidates are present, a hit."""
    return set_separation(scores, present), chance(present.sum(1), scores.shape[1])
