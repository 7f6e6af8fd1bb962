"""What a trained dual encoder recognizes: exact counts over all scenes of some objects.

The measure is that of embeddings (`recognition`); its candidates may differ from scene to scene.
The *bag-of-concepts floor* ties an object with a swap (a combination of the scene's own values that
is not in it), so it is right exactly where no swap is among the candidates: where two objects
differ in one type alone, and of one object always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.counting import SAMPLED_SCENES, SCORES_AT_ONCE
from bindscope.studies.concepts.dual.batches import Ids
from bindscope.studies.concepts.recognition import Readout
from bindscope.studies.concepts.rows import Row
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.set_separation import (
    Expected,
    accuracies,
    among_slots,
    chance,
    expected_of_values,
    strata_of,
    swaps,
)

SAMPLING = 3  # stream of a seed


def pairs(
    objects: Ids, sizes: Sequence[int], *, ordered: bool, max_scenes: int | None, seed: int
) -> tuple[Scenes, int]:
    """Return scenes of two different objects, and how many there are.

    If `ordered`, (a, b) and (b, a) are two scenes. Where there are more than `max_scenes`, so many
    are drawn without replacement.
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
    """Return scenes of one object, and how many there are; see `pairs`."""
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
    seed: int,
    device: str = "cpu",
) -> Iterator[Row]:
    """Yield what one run recognizes of some scenes, and of how many: target, candidates, stratum.

    `embed` makes embeddings (n, dim) of objects of scenes (n, places). Queries are of all objects
    of the space, and of all values; candidates all objects, those that the run was `trained` on
    with those of the scene, and of two objects those of 64 scenes. The seed draws these.
    """
    scored, n_all = scenes
    # In a random order: those of `sampled` are grouped as they come, and neighbors share objects.
    scored = scored.take(rng(seed, SAMPLING, 0).permutation(len(scored)))
    rows = max(SCORES_AT_ONCE // scored.n_objects // SAMPLED_SCENES, 1) * SAMPLED_SCENES
    objects = torch.from_numpy(queries.objects).to(device)
    parts = []
    for start in range(0, len(scored), rows):
        block = scored.take(slice(start, start + rows))
        z = embed(block.slots)
        scores = _Scores(queries.scaled(z), objects, block)
        part = {
            ("object", "full"): scores.among(np.arange(block.n_objects)),
            ("object", "trained"): scores.among(trained),
            ("concept", "full"): (
                queries.concept_hits(z, block).mean(axis=1), expected_of_values(block, "mean"),
            ),
            ("concept_pooled", "full"): (
                queries.pooled_concept_hits(z, block), expected_of_values(block, "pooled"),
            ),
        }  # fmt: skip
        if block.n_slots > 1:
            part["object", "sampled"] = scores.sampled(seed, start)
        parts.append(part)
    hits = {key: np.concatenate([part[key][0] for part in parts]) for key in parts[0]}
    beside = {key: Expected.joined([part[key][1] for part in parts]) for key in parts[0]}
    strata = {name: mask for name, mask in strata_of(scored).items() if mask.any()}
    if scored.n_slots == 1:
        strata = {"all": strata["all"]}
    for (target, kind), row in accuracies(hits, beside, scored.slots, strata, resamples=0):
        columns = ("stratum", "chance", "bag_of_concepts_floor", "n_scenes")
        yield {
            "target": target, "candidates": kind, "accuracy": row["value"], "n_all_scenes": n_all,
            **{name: row[name] for name in columns},
        }  # fmt: skip


class _Scores:
    """Scores of all objects (U, d) in some scenes, of scaled embeddings float64 (n, d)."""

    def __init__(self, z: Doubles, objects: Tensor, scenes: Scenes) -> None:
        self.scenes, self.mixed = scenes, swaps(scenes.slots, scenes.sizes)
        scores = torch.from_numpy(z).to(objects.device) @ objects.t()
        slots = torch.from_numpy(scenes.slots).to(objects.device)
        self.lowest = scores.gather(1, slots).amin(1)
        self.others = scores.scatter_(1, slots, -torch.inf)
        """Scores of the objects that are not in the scene; those that are have minus infinity."""

    def sampled(self, seed: int, start: int) -> tuple[Doubles, Expected]:
        """Return hits among the objects of 64 scenes and a combination of the values of each."""
        parts = []
        for first in range(0, len(self.scenes), SAMPLED_SCENES):
            group = slice(first, first + SAMPLED_SCENES)
            mixed = self.mixed[group]
            drawn = rng(seed, SAMPLING, start + first).integers(mixed.shape[1], size=len(mixed))
            listed = [self.scenes.slots[group].ravel(), mixed[np.arange(len(drawn)), drawn]]
            parts.append(self.among(np.unique(np.concatenate(listed)), group))
        hits, rivals = zip(*parts, strict=True)
        return np.concatenate(hits), Expected.joined(rivals)

    def among(self, objects: Ids, rows: slice = slice(None)) -> tuple[Doubles, Expected]:
        """Return hits of some scenes among objects (k,) and their own, without a guess.

        A swap among these that is not in the scene makes a tie.
        """
        index = torch.from_numpy(objects).to(self.others.device)
        highest = self.others[rows].index_select(1, index).amax(1)
        hits = np.asarray((self.lowest[rows] > highest).cpu().numpy(), np.float64)
        scenes, mixed = self.scenes.take(rows), self.mixed[rows]
        is_candidate = np.zeros(scenes.n_objects, np.bool_)
        is_candidate[objects] = True
        first = scenes.first_of_its_kind
        n_candidates = len(objects) + (first & ~is_candidate[scenes.slots]).sum(axis=1)
        tied = is_candidate[mixed] & ~among_slots(mixed, scenes.slots)
        floor = np.asarray(~tied.any(axis=1), np.float64)
        by_chance = chance(first.sum(axis=1), n_candidates)
        return hits, Expected(by_chance, floor, np.full(len(scenes), np.nan))
