"""Sampling of object codes: row i depends on the seed, the split and i alone.

The object codes of a split are numbered, every scene draws a number that is exactly uniform, and
`ranks.unrank` writes out the code with that number. So sampling is uniform by construction, needs
no rejection of codes however rare they are, and any shard can be drawn without the ones before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bindscope.codes.enumeration import enumerated, present
from bindscope.codes.ranks import uniform_integers, unrank, unrank_free
from bindscope.codes.space import build_space, feature_counts, n_outcomes
from bindscope.codes.splits import feature_codes
from bindscope.config.codes import SceneDistribution
from bindscope.config.slots import EnumeratedSplit
from bindscope.core.splits import SPLITS

# Keeps the codes' random stream apart from those of other rooms with the same seed.
_STREAM = int.from_bytes(b"codes", "big")


def sample_codes(
    dataset: SceneDistribution, split: str, start: int, stop: int
) -> npt.NDArray[np.uint8]:
    """Draw the object codes of scenes `start` to `stop` - 1 of a split, uint8 (stop - start, K).

    Each split has a random stream of its own. Uniform space: uniform over the object codes whose
    feature code is in the split. Balanced space: a uniform feature code of the split, then a
    uniform object code among its covers (which is the same thing, as each has equally many). Scenes
    that are enumerated: those of `codes.enumeration`. ConfigError if the split has no feature code,
    or fewer scenes than asked for.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    space = build_space(dataset.space)
    if isinstance(dataset.split, EnumeratedSplit):
        return present(enumerated(dataset, split, start, stop), space.n_cells)
    seed = (dataset.seed, _STREAM, SPLITS.index(split))
    if space.chosen is None and dataset.split.rule == "random":
        return unrank_free(space, uniform_integers(seed, n_outcomes(space), start, stop))
    features = feature_codes(dataset, split)
    table = space.covers()
    ways = [table[tuple(row)] for row in feature_counts(features, space.sizes).tolist()]
    ends = np.cumsum(np.array(ways, dtype=object))
    numbers = uniform_integers(seed, int(ends[-1]), start, stop)
    ends = ends.astype(numbers.dtype)
    which = np.searchsorted(ends, numbers, side="right")
    ranks = numbers - np.where(which > 0, ends[which - 1], 0)
    return unrank(space, features[which], ranks)
