"""Which object stands in which slot: the order of a scene's objects, which a code leaves open."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bindscope.codes.enumeration import Slots, enumerated
from bindscope.codes.type_counts import cells_in_order, type_counts_of
from bindscope.config.codes import SceneDistribution
from bindscope.config.slots import EnumeratedSplit
from bindscope.core.splits import SPLITS

# Apart from the codes' random words of the same seed.
_STREAM = int.from_bytes(b"slots", "big")
_PHILOX_WORDS = 4


def slots_of(
    dataset: SceneDistribution, split: str, start: int, objects: npt.NDArray[np.uint8]
) -> Slots:
    """Say which object stands in which slot of scenes with object codes (N, K).

    int16 (N, slots): its cell, -1 for none. Enumerated: as they are listed; else given the objects
    every way to put them into slots is equally likely, and scene i depends on the seed, the split,
    i and its objects alone.
    """
    assert dataset.slots is not None
    if isinstance(dataset.split, EnumeratedSplit):
        return enumerated(dataset, split, start, start + len(objects))
    cells = cells_in_order(type_counts_of(dataset, split, start, objects), dataset.slots)
    blocks = -(-dataset.slots // _PHILOX_WORDS)
    seed = [dataset.seed, _STREAM, SPLITS.index(split)]
    philox = np.random.Philox(np.random.SeedSequence(seed))
    philox.advance(start * blocks)
    words = philox.random_raw(len(cells) * blocks * _PHILOX_WORDS).reshape(
        len(cells), blocks * _PHILOX_WORDS
    )
    order = np.argsort(words[:, : dataset.slots], axis=1, kind="stable")
    return np.take_along_axis(cells, order, axis=1).astype(np.int16)
