"""Numbers of objects of each type in a scene, which renderers need where types may repeat."""

from __future__ import annotations

from functools import cache
from math import lcm

import numpy as np
import numpy.typing as npt

from bindscope.codes.counting import ways_that_use_all
from bindscope.codes.draws import surjections
from bindscope.codes.ranks import uniform_integers
from bindscope.config.codes import SceneDistribution
from bindscope.config.observed import DrawsSpace
from bindscope.core.splits import SPLITS

# Apart from the codes' random stream of the same seed.
_STREAM = int.from_bytes(b"copies", "big")


def type_counts_of(
    dataset: SceneDistribution, split: str, start: int, objects: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Sample the number of objects of each type, uint8 (N, K), in scenes with given object codes.

    Positive exactly where the object code is 1. In the space `draws` each row sums to `n_objects`,
    and given the code all sequences of draws are equally likely; in the other spaces no object
    occurs twice, so it is the code.
    """
    if not isinstance(dataset.space, DrawsSpace):
        return objects
    n_draws = dataset.space.n_objects
    sequences = np.array([1] + [surjections(n_draws, m) for m in range(1, n_draws + 1)], object)
    # One total that all of these divide: the remainders are uniform too.
    seed = (dataset.seed, _STREAM, SPLITS.index(split))
    numbers = uniform_integers(seed, lcm(*sequences.tolist()), start, start + len(objects))
    return type_counts(objects, numbers % sequences[objects.sum(axis=1, dtype=np.int64)], n_draws)


def type_counts(
    objects: npt.NDArray[np.uint8], numbers: npt.NDArray[np.integer], n_draws: int
) -> npt.NDArray[np.uint8]:
    """Return the objects of each type, uint8 (N, K), from the number of a sequence of draws.

    `numbers` (N,) run from 0 to the number of sequences of the code - 1; uniform ones give the law
    of the draws. Rows sum to `n_draws`.
    """
    result = np.zeros(objects.shape, np.uint8)
    for row, (code, number) in enumerate(zip(objects, numbers.tolist(), strict=True)):
        types = np.flatnonzero(code)
        drawn: list[int] = []
        rest = int(number)
        # Draw by draw: the first type is one of m; what remains has to hit the other types.
        for n_further in range(n_draws - 1, -1, -1):
            for candidate in range(len(types)):
                missing = len(types) - len({*drawn, candidate})
                ways = _finish(n_further, len(types), missing)
                if rest < ways:
                    drawn.append(candidate)
                    break
                rest -= ways
        result[row, types] = np.bincount(drawn, minlength=len(types))
    return result


def cells_in_order(counts: npt.NDArray[np.uint8], most: int) -> npt.NDArray[np.intp]:
    """List the cells of each scene's objects in order, (N, most), -1 behind the last."""
    scene, cell = np.nonzero(counts)
    times = counts[scene, cell].astype(np.intp)
    scene, cell = np.repeat(scene, times), np.repeat(cell, times)
    per_scene = np.bincount(scene, minlength=len(counts))
    rank = np.arange(len(scene)) - np.repeat(np.cumsum(per_scene) - per_scene, per_scene)
    cells = np.full((len(counts), most), -1, np.intp)
    cells[scene, rank] = cell
    return cells


@cache
def _finish(draws: int, types: int, missing: int) -> int:
    """Count the sequences over `types` types in which `missing` given ones all occur."""
    return ways_that_use_all([missing], lambda used: int((used + types - missing) ** draws))
