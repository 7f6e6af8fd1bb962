"""Which feature codes belong to which split."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha1
from itertools import combinations
from math import comb, prod

import numpy as np
import numpy.typing as npt

from bindscope.codes.space import CodeSpace, build_space, feature_counts
from bindscope.config.codes import HashedSplit, RankedSplit, SceneDistribution
from bindscope.core.errors import ConfigError
from bindscope.core.splits import SPLITS

MAX_FEATURE_CODES = 2**20


def feature_codes(dataset: SceneDistribution, split: str) -> npt.NDArray[np.uint8]:
    """List the feature codes of a split, uint8 (m, n).

    `random`: all feature codes of the space, in lexicographic order of their bits;
    `hashed_feature_codes`: those of the split, in the same order; `ranked_feature_codes`: those of
    the split, in the order of their rank. ConfigError if there is none, or too many to list.
    """
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    codes = space_feature_codes(build_space(dataset.space), f"datasets.{dataset.name}")
    rule = dataset.split
    if isinstance(rule, RankedSplit):
        return codes[_ranked(rule, split, codes, f"datasets.{dataset.name}.split")]
    if isinstance(rule, HashedSplit):
        return codes[_hashed(rule, split, codes, f"datasets.{dataset.name}.split")]
    return codes


def space_feature_codes(space: CodeSpace, where: str) -> npt.NDArray[np.uint8]:
    """List all feature codes of a space, uint8 (m, n), in lexicographic order of their bits."""
    counts = space.covers()
    sizes = [sorted({vector[g] for vector in counts}) for g in range(len(space.sizes))]
    listed = prod(
        sum(comb(size, count) for count in occurring)
        for size, occurring in zip(space.sizes, sizes, strict=True)
    )
    if listed > MAX_FEATURE_CODES:
        raise ConfigError(
            f"{where}.space.groups",
            f"the space has {listed:,} feature codes; at most {MAX_FEATURE_CODES:,} can be listed",
            "use smaller groups, or (uniform space) `split: {rule: random}`, which lists none",
        )
    codes = np.zeros((1, 0), np.uint8)
    for size, occurring in zip(space.sizes, sizes, strict=True):
        group = _subsets(size, occurring)
        codes = np.hstack([np.repeat(codes, len(group), axis=0), np.tile(group, (len(codes), 1))])
    allowed = np.zeros([size + 1 for size in space.sizes], bool)
    for vector in counts:
        allowed[vector] = True
    selected: npt.NDArray[np.uint8] = codes[allowed[tuple(feature_counts(codes, space.sizes).T)]]
    return selected


def _subsets(size: int, counts: Iterable[int]) -> npt.NDArray[np.uint8]:
    """List the subsets of `size` values with one of `counts` members, in order of their bits."""
    members = sorted(
        tuple(int(i in chosen) for i in range(size))
        for count in counts
        for chosen in combinations(range(size), count)
    )
    return np.array(members, np.uint8).reshape(-1, size)


def _digests(codes: npt.NDArray[np.uint8], salt: str) -> Iterable[str]:
    """Hash ``"salt|bits"`` with sha1 for each row of bits."""
    for row in codes + ord("0"):
        yield sha1(f"{salt}|{row.tobytes().decode()}".encode()).hexdigest()


def _ranked(
    rule: RankedSplit, split: str, codes: npt.NDArray[np.uint8], where: str
) -> npt.NDArray[np.int64]:
    """Rank by digest; the first codes are train, the next val, the next test."""
    sizes = [getattr(rule.n_feature_codes, name) for name in SPLITS]
    if sum(sizes) > len(codes):
        raise ConfigError(
            f"{where}.n_feature_codes",
            f"the splits ask for {sum(sizes)} feature codes, the space has {len(codes)}",
            f"lower train, val or test so that they add up to at most {len(codes)}, "
            "or use `split: {rule: random}`",
        )
    order = np.argsort(np.array(list(_digests(codes, rule.salt))), kind="stable")
    start = sum(sizes[: SPLITS.index(split)])
    return order[start : start + getattr(rule.n_feature_codes, split)]


def _hashed(
    rule: HashedSplit, split: str, codes: npt.NDArray[np.uint8], where: str
) -> npt.NDArray[np.int64]:
    """Select the codes whose digest, modulo the number of buckets, is a bucket of the split.

    Validation without buckets of its own has the codes of train.
    """
    buckets = np.array([int(text, 16) % rule.buckets for text in _digests(codes, rule.salt)])
    ranges = {"test": rule.test, "val": rule.val}
    if split == "train" or not ranges[split]:
        mine = ~np.isin(buckets, rule.test + rule.val)
    else:
        mine = np.isin(buckets, ranges[split])
    if not mine.any():
        key = "buckets" if split == "train" else split
        raise ConfigError(
            f"{where}.{key}",
            f"none of the space's {len(codes)} feature codes falls into the {split} split",
            f"give {split} more buckets, change `salt`, or use `split: {{rule: random}}`",
        )
    return np.flatnonzero(mine)
