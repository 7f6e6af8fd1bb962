"""Frozen samples: the patches of each image that all models and probes of a grid are asked about.

Which patches of an image are drawn depends on the seed, the split, the image's number in it and the
grid, not on how many images there are or how they are cut into shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.core.errors import InputError, StoreError
from bindscope.core.progress import Progress
from bindscope.core.splits import SplitName
from bindscope.core.store.reader import Store, open_store
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.patch_labels import GridShape, PatchLabels, patch_labels
from bindscope.scenes.placement import RandomWords
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.quantities import patches_of

STREAM = (int.from_bytes(b"patches", "big"),)  # apart from the words that place objects
UNLABELLED_CLASS = 4096  # beyond those of any source
UNLABELLED = "no patch shows a labelled object"
TOO_FEW = "fewer than two valid patches"
ONE_OBJECT = "all valid patches are of one object"


@dataclass(frozen=True)
class PatchSamples:
    """Sampled patches of successive images, padded with -1 and 0 behind the last one."""

    # `patches` int16 (n, M): number of the patch in its grid, ascending, -1 = none; `instances`,
    # `classes` int16 (n, M); `purity` float32 (n, M). In a store also `copy_of`
    # int16 (n, M): the exact copy of that object (`scenes.clutter.render`); 0 where there is none.
    arrays: dict[str, NDArray[Any]]
    skipped: list[tuple[int, str]]  # (image, reason) of those without patches


def valid_patches(labels: PatchLabels, sampling: PatchSampling) -> NDArray[np.bool_]:
    """Tell which patches take part, by object, purity and stuff; bool (n, P)."""
    valid = (labels.purity >= np.float32(sampling.min_purity)) & (labels.instances > 0)
    if sampling.stuff == "drop":
        valid &= ~labels.stuff
    return valid


def with_unlabelled_object(labels: PatchLabels) -> PatchLabels:
    """Make the unlabelled patches of each image one more object, of the class after all others."""
    none = labels.instances == 0
    number = labels.instances.max(axis=1, keepdims=True, initial=0) + 1
    return replace(
        labels,
        instances=np.where(none, number, labels.instances).astype(np.int16),
        classes=np.where(none, UNLABELLED_CLASS, labels.classes).astype(np.int16),
    )


def skip_reasons(labels: PatchLabels, valid: NDArray[np.bool_]) -> list[str | None]:
    """Say of each image why no pair of its patches can be asked about; None where one can."""
    unlabelled = ~labels.instances.any(axis=1)
    too_few = valid.sum(axis=1) < 2
    smallest = np.where(valid, labels.instances, np.iinfo(np.int16).max).min(axis=1)
    largest = np.where(valid, labels.instances, -1).max(axis=1)
    reasons = np.select(
        [unlabelled, too_few, smallest == largest], [UNLABELLED, TOO_FEW, ONE_OBJECT], ""
    )
    return [reason or None for reason in reasons.tolist()]


def draw_patches(
    valid: NDArray[np.bool_], n_patches: int, seed: int, split: SplitName, start: int
) -> NDArray[np.int16]:
    """Draw patches of each image without replacement, all of its valid ones if there are no more.

    `valid` bool (n, P). `start`: number of the first image in its split. Returns: int16
    (n, min(n_patches, P)): numbers of patches, ascending, -1 behind the last one.
    """
    width = min(n_patches, valid.shape[1])
    words = RandomWords(seed, split, start).draw(STREAM, 0, *valid.shape)
    last = np.iinfo(np.uint64).max
    keys = np.where(valid, words >> np.uint64(1), last)
    chosen = np.argsort(keys, axis=1, kind="stable")[:, :width]
    beyond = valid.shape[1]
    chosen = np.where(np.take_along_axis(valid, chosen, axis=1), chosen, beyond)
    chosen.sort(axis=1)
    return np.where(chosen < beyond, chosen, -1).astype(np.int16)


def sample(
    labels: PatchLabels, sampling: PatchSampling, split: SplitName, start: int
) -> PatchSamples:
    """Choose patches of successive images; `start` is the number in `split` of the first one."""
    if sampling.unlabelled == "object":
        labels = with_unlabelled_object(labels)
    valid = valid_patches(labels, sampling)
    reasons = skip_reasons(labels, valid)
    valid &= np.array([reason is None for reason in reasons], bool)[:, None]
    patches = draw_patches(valid, patches_of(sampling, split), sampling.seed, split, start)
    there = patches >= 0

    def take(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
        sampled = np.take_along_axis(values, np.maximum(patches, 0).astype(np.intp), axis=1)
        return np.where(there, sampled, 0).astype(dtype)

    arrays = {
        "patches": patches,
        "instances": take(labels.instances, np.int16),
        "classes": take(labels.classes, np.int16),
        "purity": take(labels.purity, np.float32),
    }
    skipped = [(start + i, reason) for i, reason in enumerate(reasons) if reason]
    return PatchSamples(arrays, skipped)


def write_samples(
    shards: Sequence[Path | str],
    split: SplitName,
    n_images: int,
    grid: GridShape,
    groups: Mapping[str, int],
    sampling: PatchSampling,
    writer: StoreWriter,
) -> None:
    """Sample the patches of the first images of a split into a store that is being written.

    Attributes: `split`, `grid`, `skipped` (a list of ``{"image": i, "reason": text}``).

    `shards`: manifests of the split's scenes, in order. `groups`: as `object_classes` takes them.
    """
    width = min(patches_of(sampling, split), prod(grid))
    for name, dtype in _DTYPES.items():
        writer.create(name, (n_images, width), dtype)
    skipped: list[tuple[int, str]] = []
    done, progress = 0, Progress(n_images, "images")
    for labels, copy_of in _labelled(shards, n_images, grid, groups, sampling):
        sampled = sample(labels, sampling, split, done)
        copies = of_objects(copy_of, sampled.arrays["instances"])
        for name, values in (sampled.arrays | {"copy_of": copies}).items():
            writer.write(name, values)
        skipped += sampled.skipped
        done += len(copy_of)
        progress.advance(len(copy_of))
    _check_use(shards, done, n_images, skipped)
    listed = [{"image": image, "reason": reason} for image, reason in skipped]
    writer.attributes.update(split=split, grid=list(grid), skipped=listed)


_DTYPES = {
    "patches": "int16",
    "instances": "int16",
    "classes": "int16",
    "purity": "float32",
    "copy_of": "int16",
}


def of_objects(values: NDArray[Any], instances: NDArray[np.int16]) -> NDArray[Any]:
    """Give each patch what its object has: (n, ids) and int16 (n, M) make (n, M); else 0."""
    instances = np.where(instances <= values.shape[1], instances, 0)
    padded = np.concatenate([np.zeros((len(values), 1), values.dtype), values], axis=1)
    return np.take_along_axis(padded, instances.astype(np.intp), axis=1)


def _labelled(
    shards: Sequence[Path | str],
    n: int,
    grid: GridShape,
    groups: Mapping[str, int],
    sampling: PatchSampling,
) -> Iterator[tuple[PatchLabels, NDArray[Any]]]:
    """Label the patches of the first `n` scenes, a chunk of masks at a time.

    Yields also the exact copy of each object, (b, ids).
    """
    for path in shards:
        if n <= 0:
            return
        store = open_store(path)
        _check_masks(store, str(path))
        layout = store.layout("masks")
        for first in range(0, min(layout.n_rows, n), layout.chunk_rows):
            rows = slice(first, min(first + layout.chunk_rows, layout.n_rows, n))
            cells = store.read("cells", rows)
            nothing = np.zeros(cells.shape, np.int16)
            stuff, copies = (
                store.read(name, rows) if name in store.names else nothing
                for name in ("stuff", "copy_of")
            )
            stored = store.read("classes", rows) if "classes" in store.names else None
            classes = object_classes(cells, stored, groups, sampling.class_groups)
            masks, where = store.read("masks", rows), f"{path}, from scene {first}"
            labels = patch_labels(masks, classes, stuff, grid, where)
            if "n_crops" in store.names:
                n_crops = store.read("n_crops", rows)
                labels = without_empty_crops(labels, n_crops, store.attributes["crops"], grid)
            yield labels, copies
        n -= layout.n_rows


def without_empty_crops(
    labels: PatchLabels, n_crops: NDArray[Any], crops: Sequence[int], grid: GridShape
) -> PatchLabels:
    """Give patches of the empty part of a sheet a purity that no rule admits, -1.

    `n_crops` (n,): filled crops of each sheet, in raster order. `crops`: its rows and columns.
    """
    row, column = np.divmod(np.arange(prod(grid)), grid[1])
    down, across = (side // n for side, n in zip(grid, crops, strict=True))
    crop = row // down * crops[1] + column // across
    is_empty = crop[None] >= n_crops[:, None]
    return replace(labels, purity=np.where(is_empty, np.float32(-1), labels.purity))


def object_classes(
    cells: NDArray[np.int16],
    stored: NDArray[np.int16] | None,
    groups: Mapping[str, int],
    chosen: Sequence[str] | None,
) -> NDArray[np.int16]:
    """Give each object a class above 0, (n, M); 0 = none.

    `cells` (n, M): object-code index of the j-th object, -1 = none, or no object of the code.
    `stored` (n, M): classes that the scenes come with, if they do. `groups`: number of values of
    each feature group, in the order of the object code. `chosen`: groups whose values make the
    class; None: `stored` where there are, else all groups. What is no object of the code (stuff,
    occluders) has its own class behind those of the chosen groups.
    """
    if chosen is None and stored is not None:
        return stored
    names = tuple(groups) if chosen is None else tuple(chosen)
    if unknown := [name for name in names if name not in groups]:
        raise InputError(
            "sampling.class_groups",
            f"{unknown[0]!r} is no feature group of the dataset ({', '.join(groups)})",
            "name some of its groups, or leave class_groups out",
        )
    sizes = tuple(groups.values())
    values = dict(zip(groups, np.unravel_index(np.maximum(cells, 0), sizes), strict=True))
    picked = [groups[name] for name in names]
    of_code = np.ravel_multi_index([values[name] for name in names], picked) + 1
    rest = (
        np.zeros_like(cells) if stored is None else np.where(stored > 0, stored + prod(picked), 0)
    )
    return np.where(cells >= 0, of_code, rest).astype(np.int16)


def _check_masks(store: Store, where: str) -> None:
    """Refuse scenes without masks, or whose masks are of another size than the images."""
    if "masks" not in store.names:
        raise StoreError(
            where,
            "these scenes have no masks, so no one knows which patches are of one object",
            "use a dataset that is drawn, or whose source has masks",
        )
    masks, images = store.layout("masks").shape[1:3], store.layout("images").shape[1:3]
    if masks != images:
        raise StoreError(
            where,
            f"masks of {masks[0]} x {masks[1]} pixels and images of {images[0]} x {images[1]}",
            "make them anew: both must show the same pixels",
        )


def _check_use(
    shards: Sequence[Path | str], n_scenes: int, n_required: int, skipped: Sequence[tuple[int, str]]
) -> None:
    """Refuse fewer scenes than were asked for, and a split in which none can be used."""
    where = str(shards[0]) if shards else "patch_samples"
    if n_scenes < n_required:
        raise InputError(
            where,
            f"the split has {n_scenes} scenes and {n_required} are asked for",
            "lower `scenes` of the study, or raise the dataset's n_scenes",
        )
    if len(skipped) == n_required:
        counted = Counter(reason for _, reason in skipped)
        reasons = ", ".join(f"{reason}: {n}" for reason, n in counted.most_common())
        raise InputError(
            where,
            f"none of the {n_required} images has two patches to compare ({reasons})",
            "lower sampling.min_purity, choose another `stuff`, or other scenes",
        )
