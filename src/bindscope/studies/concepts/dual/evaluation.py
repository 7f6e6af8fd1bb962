"""What a trained dual encoder recognises: exact counts over all scenes of some objects.

The recogniser is that of embeddings (`recognition`); its candidates may differ from scene to scene.
The *bag-of-concepts floor* ties an object with a swap (a combination of the scene's own values that
is not in it), so it is right exactly where no swap is among the candidates: where two objects
differ in one type alone, and of one object always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.config import Candidates
from bindscope.studies.concepts.dual.batches import Ids
from bindscope.studies.concepts.recognition import Readout
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Scenes
from bindscope.studies.concepts.set_separation import (
    Accuracy,
    Expected,
    accuracies,
    among_slots,
    chance,
    expected_of_objects,
    expected_of_values,
    strata_of,
    swaps,
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
    ranks = _drawn(n_all, max_scenes, seed)
    if ordered:
        first, second = np.divmod(ranks, max(n - 1, 1))
        second += second >= first
    else:  # the pairs i < j in the order of j
        second = ((1 + np.sqrt(1 + 8 * ranks.astype(np.float64))) // 2).astype(np.int64)
        first = ranks - second * (second - 1) // 2
    return Scenes(np.stack([objects[first], objects[second]], 1), tuple(sizes)), n_all


def singles(
    objects: Ids, sizes: Sequence[int], *, max_scenes: int | None, seed: int
) -> tuple[Scenes, int]:
    """Return scenes of one object, and how many there are; parameters are those of `pairs`."""
    drawn = objects[_drawn(len(objects), max_scenes, seed)]
    return Scenes(drawn[:, None], tuple(sizes)), len(objects)


def _drawn(n: int, most: int | None, seed: int) -> Ids:
    """Return numbers below `n` in order: all, or so many of them without replacement."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(rng(seed, SAMPLING).choice(n, most, replace=False))


def evaluate(
    embed: Callable[[Ids], Floats],
    queries: Readout,
    scenes: tuple[Scenes, int],
    trained: Ids,
    further: Sequence[Candidates],
    seed: int,
    device: str = "cpu",
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
    device
        Where scores of all objects are computed.
    """
    scored, n_all = scenes
    kinds = ("full", "trained", *(further if scored.n_slots > 1 else ()))
    known = np.isin(np.arange(scored.n_objects), trained)
    # In a random order: those of `sampled` are grouped as they come, and neighbours share objects.
    scored = scored.take(rng(seed, SAMPLING, 0).permutation(len(scored)))
    rows = max(BLOCK // scored.n_objects // SAMPLED_SCENES, 1) * SAMPLED_SCENES
    objects = torch.from_numpy(queries.objects).to(device)
    parts = [
        _recognised(embed, (queries, objects), scored.take(slice(start, start + rows)), kinds,
                    known, (seed, start))
        for start in range(0, len(scored), rows)
    ]  # fmt: skip
    hits = {key: np.concatenate([part[key][0] for part in parts]) for key in parts[0]}
    beside = {key: Expected.joined([part[key][1] for part in parts]) for key in parts[0]}
    strata = {name: mask for name, mask in strata_of(scored).items() if mask.any()}
    if scored.n_slots == 1:
        strata = {"all": strata["all"]}
    for (target, kind), found in accuracies(hits, beside, scored.slots, strata, resamples=0):
        yield Score(target, kind, found, n_all)


def _recognised(
    embed: Callable[[Ids], Floats],
    asking: tuple[Readout, Tensor],
    scenes: Scenes,
    kinds: Sequence[str],
    known: Flags,
    group: tuple[int, int],
) -> dict[tuple[str, str], tuple[NDArray[np.float64], Expected]]:
    """Return hits and what they come to without binding, by target and candidates."""
    queries, objects = asking
    z = embed(scenes.slots)
    recognized = {}
    scores = _Scores(queries.scaled(z), objects, scenes)
    for kind in kinds:
        if kind == "full":
            recognized["object", kind] = (
                scores.hits(scores.others),
                expected_of_objects(scenes, queries.candidates),
            )
        elif kind == "trained":
            among = torch.from_numpy(known).to(objects.device)
            hits = scores.hits(scores.others.masked_fill(~among, -torch.inf))
            extra = (scenes.first_of_its_kind & ~known[scenes.slots]).sum(axis=1)
            recognized["object", kind] = (
                hits,
                _expected(scenes, known.sum() + extra, known[scores.mixed]),
            )
        else:
            recognized["object", kind] = scores.listed(kind, group)
    values = queries.concept_hits(z, scenes).mean(axis=1)
    recognized["concept", "full"] = values, expected_of_values(scenes, "mean")
    pooled = queries.pooled_concept_hits(z, scenes)
    recognized["concept_pooled", "full"] = pooled, expected_of_values(scenes, "pooled")
    return recognized


class _Scores:
    """Scores of all objects in some scenes, and what is asked of them.

    Parameters
    ----------
    z
        Embeddings of the scenes, scaled, float64 (n, d).
    objects
        Queries of all objects of the space, float64 (U, d), where scores are to be computed.
    scenes
        The scenes.
    """

    def __init__(self, z: Doubles, objects: Tensor, scenes: Scenes) -> None:
        self.scenes, self.mixed = scenes, swaps(scenes.slots, scenes.sizes)
        scores = torch.from_numpy(z).to(objects.device) @ objects.t()
        slots = torch.from_numpy(scenes.slots).to(objects.device)
        self.lowest = scores.gather(1, slots).amin(1)
        self.others = scores.scatter_(1, slots, -torch.inf)
        """Scores of the objects that are not in the scene; those that are have minus infinity."""

    def hits(self, others: Tensor) -> NDArray[np.float64]:
        """Return whether all objects of a scene score above those (n, k) that are not in it."""
        recognized: NDArray[np.float64] = (self.lowest > others.amax(1)).double().cpu().numpy()
        return recognized

    def listed(self, kind: str, group: tuple[int, int]) -> tuple[NDArray[np.float64], Expected]:
        """Return hits among few candidates: the scene's swaps, or objects of its neighbours."""
        if kind == "swaps":
            return self._among(slice(None), self.mixed)
        parts = []
        seed, start = group
        for first in range(0, len(self.scenes), SAMPLED_SCENES):
            columns = slice(first, first + SAMPLED_SCENES)
            mixed = self.mixed[columns]
            drawn = rng(seed, SAMPLING, start + first).integers(mixed.shape[1], size=len(mixed))
            listed = [self.scenes.slots[columns].ravel(), mixed[np.arange(len(drawn)), drawn]]
            together = np.unique(np.concatenate(listed))
            parts.append(
                self._among(columns, np.broadcast_to(together, (len(mixed), len(together))))
            )
        return np.concatenate([hits for hits, _ in parts]), Expected.joined(
            [beside for _, beside in parts]
        )

    def _among(self, own: slice, objects: Ids) -> tuple[NDArray[np.float64], Expected]:
        """Return hits of some scenes among objects of each (n, k), its own among them."""
        index = torch.from_numpy(np.ascontiguousarray(objects)).to(self.others.device)
        highest = self.others[own].gather(1, index).amax(1)
        hits = (self.lowest[own] > highest).double().cpu().numpy()
        ordered = np.sort(objects, axis=1)
        n_candidates = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1)
        mixed = self.mixed[own]
        place = np.stack([np.isin(a, b) for a, b in zip(mixed, ordered, strict=True)])
        return hits, _expected(self.scenes.take(own), n_candidates, place)


def _expected(scenes: Scenes, n_candidates: Ids, is_candidate: Flags) -> Expected:
    """Return what scenes come to without binding; there is no guess.

    Parameters
    ----------
    scenes
        The scenes; their own objects are candidates.
    n_candidates
        Of each, (n,).
    is_candidate
        Which of its swaps are, (n, combinations): one that is not in the scene makes a tie.
    """
    tied = is_candidate & ~among_slots(swaps(scenes.slots, scenes.sizes), scenes.slots)
    by_chance = chance(scenes.first_of_its_kind.sum(axis=1), n_candidates)
    floor: Doubles = np.asarray(~tied.any(axis=1), np.float64)
    return Expected(by_chance, floor, np.full(len(scenes), np.nan))
