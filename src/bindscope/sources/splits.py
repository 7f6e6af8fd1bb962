"""Assignment of scenes that are read to splits, and their order in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha1

from bindscope.config.codes import HashedSplit, SceneDistribution
from bindscope.config.observed import ColumnSplit, HashedImagesSplit, IndexSplit
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.splits import SPLITS
from bindscope.sources.base import Scene
from bindscope.sources.problems import Problems


def assign(
    dataset: SceneDistribution, scenes: Sequence[Scene], features: Sequence[str]
) -> dict[str, list[int]]:
    """Assign scenes in the source's order to splits by the dataset's rule: split -> their numbers.

    `features` are the bits of each scene's feature code as text (``"01101"``). The rules `index`
    and `column` keep the source's order; the hashed rules order a split's scenes by the hash of
    their images, so that the first n of them are as good as any. ConfigError or InputError if a
    split has no scene, or a scene a split that does not exist.
    """
    rule = dataset.split
    where = f"datasets.{dataset.name}.split"
    if isinstance(rule, IndexSplit):
        return _by_index(rule, len(scenes), where)
    if isinstance(rule, ColumnSplit):
        return _by_column(rule, scenes)
    assert isinstance(rule, HashedSplit | HashedImagesSplit)
    by_image = isinstance(rule, HashedImagesSplit)
    rows_by_split: dict[str, list[int]] = {split: [] for split in SPLITS}
    for i in sorted(range(len(scenes)), key=lambda i: _digest(rule.salt, scenes[i].image)):
        bucket = _digest(rule.salt, scenes[i].image if by_image else features[i]) % rule.buckets
        split = "test" if bucket in rule.test else "val" if bucket in rule.val else "train"
        rows_by_split[split].append(i)
    for split, mine in rows_by_split.items():
        if not mine:
            key = "buckets" if split == "train" else split
            raise ConfigError(
                f"{where}.{key}",
                f"none of the {len(scenes)} scenes falls into the {split} split",
                f"give {split} more buckets, change `salt`, or use another rule",
            )
    return rows_by_split


def _digest(salt: str, text: str) -> int:
    return int(sha1(f"{salt}|{text}".encode()).hexdigest(), 16)


def _by_index(rule: IndexSplit, n: int, where: str) -> dict[str, list[int]]:
    sizes = [getattr(rule.sizes, split) for split in SPLITS]
    if sum(sizes) > n:
        raise ConfigError(
            f"{where}.sizes",
            f"the splits ask for {sum(sizes)} scenes, the source has {n}",
            f"lower train, val or test so that they add up to at most {n}",
        )
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return {
        split: list(range(end - size, end))
        for split, size, end in zip(SPLITS, sizes, ends, strict=True)
    }


def _by_column(rule: ColumnSplit, scenes: Sequence[Scene]) -> dict[str, list[int]]:
    rows_by_split: dict[str, list[int]] = {split: [] for split in SPLITS}
    problems = Problems()
    for i, scene in enumerate(scenes):
        if scene.split in rows_by_split:
            rows_by_split[str(scene.split)].append(i)
        else:
            problems.add(
                scene.where,
                f"column {rule.column!r} says {scene.split!r}",
                f"write one of {', '.join(SPLITS)}",
            )
    path = scenes[0].where.partition(",")[0]
    problems.check(path)
    if missing := [split for split, mine in rows_by_split.items() if not mine]:
        counts = Counter(scene.split for scene in scenes)
        raise InputError(
            path,
            f"no scene is in {' or '.join(missing)} ({dict(counts)})",
            "mark some, or use `split: {rule: hashed_images}`",
        )
    return rows_by_split
