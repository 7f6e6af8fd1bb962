"""What a trained dual encoder recognizes: counts over scenes of some objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.dual.batches import Ids
from bindscope.studies.concepts.recognition import Readout, recognize
from bindscope.studies.concepts.rows import Row
from bindscope.studies.concepts.scenes import Floats, Scenes

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
    z: Floats, queries: Readout, scenes: Scenes, candidates: Ids | None = None
) -> Iterator[Row]:
    """Yield what queries of all objects and values recognize in embeddings (n, d) of scenes.

    A row per target and stratum. With `candidates`, only objects are recognized, among these,
    which hold those of all scenes.
    """
    if candidates is not None:
        queries = replace(queries, objects=queries.objects[candidates], candidates=candidates)
    for row in recognize(queries, z, scenes, resamples=0):
        of_objects = row["measure"] == "object"
        several = scenes.n_slots > 1 or row["stratum"] == "all"
        if row["n_scenes"] and several and (of_objects or candidates is None):
            columns = ("stratum", "chance", "bag_of_concepts_floor", "n_scenes")
            yield {
                "target": row["measure"], "accuracy": row["value"],
                "candidates": "full" if candidates is None else "trained",
                **{name: row[name] for name in columns},
            }  # fmt: skip
