"""Scenes that are listed instead of drawn: each way to put the objects into slots, once.

The ordered scenes of a space are numbered; a permutation from the dataset's seed puts the numbers
in an order, of which the splits take consecutive parts. Taken at random, a scene of a full list
follows the law of the space, so entropies and anchors are those of scenes that are drawn.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, permutations
from math import comb, perm, prod

import numpy as np
import numpy.typing as npt

from bindscope.codes.counting import largest_scene
from bindscope.codes.ranks import unrank, unrank_free
from bindscope.codes.space import CodeSpace, build_space, feature_counts, n_outcomes
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import SceneDistribution
from bindscope.config.observed import DrawsSpace
from bindscope.config.slots import EnumeratedSplit
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS

EMPTY = -1
MOST = 2**22  # scenes that can be listed: their order is held in memory
# Keeps the order apart from other random words of the same seed.
_STREAM = int.from_bytes(b"order", "big")

Slots = npt.NDArray[np.int16]


def n_ordered_scenes(dataset: SceneDistribution) -> int:
    """Count the ordered scenes of a dataset with `slots`.

    With m objects in S slots: C(S, m) K^m in a space of draws out of K types, where an object may
    occur twice; P(S, m) for each object code in the others.
    """
    assert dataset.slots is not None
    space, m = dataset.space, largest_scene(dataset.space)
    cells = prod(group.size for group in space.groups)
    if isinstance(space, DrawsSpace):
        return comb(dataset.slots, m) * int(cells**m)
    codes = comb(cells, m) if space.kind == "uniform" else n_outcomes(build_space(space))
    return perm(dataset.slots, m) * codes


def check_sizes(dataset: SceneDistribution) -> None:
    """Refuse an enumerated split of more scenes than there are, or than can be listed."""
    assert isinstance(dataset.split, EnumeratedSplit)
    where, total = f"datasets.{dataset.name}.split", n_ordered_scenes(dataset)
    requested = sum(getattr(dataset.split.sizes, split) for split in SPLITS)
    if total > MOST:
        raise ConfigError(
            where,
            f"there are {total:,} ordered scenes; at most {MOST:,} can be listed",
            "use `split: {rule: random}`, which draws them, or make a feature group smaller",
        )
    if requested > total:
        raise ConfigError(
            f"{where}.sizes",
            f"the splits ask for {requested:,} scenes, and there are {total:,} ordered ones",
            f"lower train, val or test so that they add up to at most {total:,}",
        )


def enumerated(dataset: SceneDistribution, split: str, start: int, stop: int) -> Slots:
    """List scenes of a split of an enumerated dataset: the cell in each slot, `EMPTY` for none.

    int16 (stop - start, slots); no two scenes of all splits are the same. ConfigError if the split
    has fewer scenes, or there are fewer than the splits ask for.
    """
    check_sizes(dataset)
    assert isinstance(dataset.split, EnumeratedSplit)
    sizes = [getattr(dataset.split.sizes, name) for name in SPLITS]
    which = SPLITS.index(split)
    if stop > sizes[which]:
        raise ConfigError(
            f"datasets.{dataset.name}.split.sizes.{split}",
            f"sets apart {sizes[which]} scenes, and scene {stop - 1} was asked for",
            f"raise it to {stop}, or lower n_scenes.{split}",
        )
    first = sum(sizes[:which])
    numbers = _order(dataset.seed, n_ordered_scenes(dataset))[first + start : first + stop]
    return _written_out(dataset, numbers)


@lru_cache(4)
def _order(seed: int, total: int) -> npt.NDArray[np.int64]:
    """Return a permutation of 0 .. total - 1 that depends on nothing else."""
    philox = np.random.Philox(np.random.SeedSequence([seed, _STREAM]))
    order = np.argsort(philox.random_raw(total), kind="stable")
    order.flags.writeable = False
    return order


def _written_out(dataset: SceneDistribution, numbers: npt.NDArray[np.int64]) -> Slots:
    """Return the scenes with these numbers, int16 (N, slots)."""
    assert dataset.slots is not None
    space, m = build_space(dataset.space), largest_scene(dataset.space)
    repeats = isinstance(dataset.space, DrawsSpace)
    ways = combinations if repeats else permutations
    places = np.array(list(ways(range(dataset.slots), m)), np.int64)
    ranks, way = np.divmod(numbers, len(places))
    if repeats:
        digits = space.n_cells ** np.arange(m - 1, -1, -1)
        cells = ranks[:, None] // digits % space.n_cells
    else:
        codes = _unranked(space, dataset, ranks)
        cells = np.nonzero(codes)[1].reshape(len(numbers), m)
    slots = np.full((len(numbers), dataset.slots), EMPTY, np.int16)
    slots[np.arange(len(numbers))[:, None], places[way]] = cells
    return slots


def _unranked(
    space: CodeSpace, dataset: SceneDistribution, ranks: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return object codes by their number among all of the space, uint8 (N, K)."""
    if space.chosen is None:
        return unrank_free(space, ranks)
    features = feature_codes(dataset, SPLITS[0])  # the same ones in every split
    counts = feature_counts(features[:1], space.sizes).tolist()[0]
    which, within = np.divmod(ranks, space.covers()[tuple(counts)])
    return unrank(space, features[which], within)


def present(slots: Slots, n_cells: int) -> npt.NDArray[np.uint8]:
    """Return the object codes of scenes, uint8 (N, K): which objects stand in any slot."""
    objects = np.zeros((len(slots), n_cells), np.uint8)
    scene, slot = np.nonzero(slots != EMPTY)
    objects[scene, slots[scene, slot]] = 1
    return objects
