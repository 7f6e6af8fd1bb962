"""What a probe is fitted to: a representation, codes and prior anchors, per split.

Arrays are numpy and stay where they are, or readers over a store, which read a range of scenes when
it is needed.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from bindscope.core.array_types import Array
from bindscope.core.errors import StoreError
from bindscope.fitting.rows import Rows, whole

_WITHOUT_COUNTS = ("object", "feature", "object_given_feature")
_WITH_COUNTS = ("object", "feature", "counts", "counts_given_feature", "object_given_counts")


def anchors_of(names: Container[str]) -> tuple[str, ...]:
    """Choose the anchors that a fit takes of those that there are: with counts, if there are."""
    targets = _WITH_COUNTS if "counts" in names else _WITHOUT_COUNTS
    return tuple(name for name in targets if name in names)


@dataclass(frozen=True)
class SplitData:
    """One split; every array is in memory or `Rows`.

    `z` are floats (N, d), or patch tokens (N, T, d) with `cls`, [CLS] tokens (N, d), where the
    model has them; object codes uint8 (N, K), feature codes (N, n). Anchors are what
    `priors.anchors` returns: prior log-odds in nats, float32 `object` (N, K), `feature` (N, n) and
    `object_given_feature` (N, K). Where there are count bits, those too, `counts` uint8 (N, T),
    with `counts_given_feature` (N, T) and `object_given_counts` (N, K).
    Scenes with one of the labels `groups`, integers (N,), are near-duplicates and count as one.
    """

    z: Array | Rows
    objects: Array | Rows
    features: Array | Rows
    anchors: Mapping[str, Array | Rows]
    groups: npt.NDArray[np.integer] | None = None
    cls: Array | Rows | None = None

    @property
    def n_scenes(self) -> int:
        """Number of scenes."""
        return self.objects.shape[0]

    @property
    def labels(self) -> dict[str, Array | Rows]:
        """What is fitted, by name: `objects`, `features`, and those of `anchors` that it takes."""
        anchors = {name: self.anchors[name] for name in anchors_of(self.anchors)}
        return {"objects": self.objects, "features": self.features, **anchors}

    def halves(self) -> npt.NDArray[np.integer]:
        """Deal scenes out to two halves, (N,): every second one, or every second group."""
        if self.groups is None:
            return np.arange(self.n_scenes) % 2
        _, numbers = np.unique(self.groups, return_inverse=True)
        return np.asarray(numbers % 2)


@dataclass(frozen=True)
class ProbeData:
    """The three splits of one fit: `val` chooses, `test` is reported.

    K is the product of the feature groups' `sizes`, n their sum.
    """

    train: SplitData
    val: SplitData
    test: SplitData
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        k, n = prod(self.sizes), sum(self.sizes)
        shapes = {"objects": k, "features": n, "object": k, "feature": n}
        if self.n_counts:
            shapes |= {"counts": self.n_counts, "counts_given_feature": self.n_counts}
            shapes |= {"object_given_counts": k}
        else:
            shapes |= {"object_given_feature": k}
        for name, split in self.splits.items():
            arrays = split.labels
            for array, width in shapes.items():
                shape = np.shape(arrays[array]) if array in arrays else "absent"
                if shape != (split.n_scenes, width):
                    raise StoreError(
                        f"{array} of split {name}",
                        f"it is {shape} where ({split.n_scenes}, {width}) is expected",
                        "rebuild codes, anchors and activations of this dataset together",
                    )
            _check_representation(name, split, self.train.z)

    @property
    def n_counts(self) -> int:
        """Number T of count bits, 0 where the chain has none."""
        return self.train.anchors["counts"].shape[1] if "counts" in self.train.anchors else 0

    @property
    def splits(self) -> dict[str, SplitData]:
        """The splits by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def patches(self) -> bool:
        """Whether the representation is patch tokens."""
        return len(self.train.z.shape) == 3

    def shuffled_labels(self, seed: int) -> ProbeData:
        """Return the data with codes and anchors permuted over each split's scenes, in memory."""

        def permute(split: SplitData, index: int) -> SplitData:
            rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, index])))
            order = rng.permutation(split.n_scenes)
            return replace(
                split,
                objects=whole(split.objects)[order],
                features=whole(split.features)[order],
                anchors={name: whole(array)[order] for name, array in split.anchors.items()},
            )

        splits = enumerate(self.splits.values())
        train, val, test = (permute(split, i) for i, split in splits)
        return ProbeData(train, val, test, self.sizes)


def _check_representation(name: str, split: SplitData, train: Array | Rows) -> None:
    if split.z.shape[0] != split.n_scenes or split.z.shape[1:] != train.shape[1:]:
        raise StoreError(
            f"activations of split {name}",
            f"they are {tuple(split.z.shape)} where {split.n_scenes} scenes of shape "
            f"{tuple(train.shape[1:])} are expected",
            "rebuild codes, anchors and activations of this dataset together",
        )
    if isinstance(split.z, np.ndarray) and not np.isfinite(split.z).all():
        raise StoreError(
            f"activations of split {name}",
            "they hold values that are not finite",
            "rebuild the store (`bindscope verify --repair`), in a wider `store.dtype` if the "
            "model's activations overflow",
        )
