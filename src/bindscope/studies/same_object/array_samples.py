"""Patches, segments and classes of arrays as samples of pairs: the inputs of `same_object`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bindscope.arrays.inputs import Representation, to_array
from bindscope.core.errors import InputError
from bindscope.core.splits import SPLITS, SplitName
from bindscope.fitting.rows import Array, ArrayRows, whole
from bindscope.scenes.patch_labels import Grid, PatchLabels, patch_labels, patch_pieces
from bindscope.studies.same_object.config import PatchSampling
from bindscope.studies.same_object.data import PairData, trimmed
from bindscope.studies.same_object.patch_samples import sample

WHERE: Final = "bindscope.same_object"
_AT_ONCE = 64  # images
_TOKENS = "leave [CLS] and register tokens out of `patches`"

Integers = npt.NDArray[np.int64]
# Number of the first image, ids by the number that they have in each, instances (b, P) -> classes
# (b, 1 + objects), 0 for no object.
_Classes = Callable[[int, Sequence[Integers], npt.NDArray[np.int16]], npt.NDArray[np.int16]]


@dataclass(frozen=True, eq=False)
class ImageLabels:
    """Labels of all patches of all images.

    Attributes
    ----------
    labels
        Objects are numbered from 1 on in each image, in the order of their ids; all have class 0
        where no classes are known.
    pieces
        int16 (N, P), as `patch_pieces`; None where there are no masks.
    grid
        Rows and columns of patches.
    """

    labels: PatchLabels
    pieces: npt.NDArray[np.int16] | None
    grid: Grid


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Patches whose pairs count, of each split, without their tokens.

    Attributes
    ----------
    index
        Images of each split, ascending.
    patches
        Numbers of the patches (n, M) in the grid, -1 behind the last one.
    data
        The pairs.
    skipped
        Reason -> images without a pair, by split.
    """

    index: Mapping[str, Integers]
    patches: Mapping[str, npt.NDArray[np.int16]]
    data: Mapping[str, PairData]
    skipped: Mapping[str, Counter[str]]

    def with_tokens(self, tokens: Representation) -> dict[str, PairData]:
        """Return the pairs with the tokens of a layer, float32, in memory."""
        return {
            name: replace(data, tokens=ArrayRows(self._tokens(tokens, name)))
            for name, data in self.data.items()
        }

    def _tokens(self, tokens: Representation, split: str) -> Array:
        index, patches = self.index[split], np.maximum(self.patches[split], 0).astype(np.intp)
        out = np.empty((*patches.shape, tokens.shape[2]), np.float32)
        for first in range(0, len(index), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            block = whole(tokens.take(index[rows]))
            out[rows] = np.take_along_axis(block, patches[rows][..., None], axis=1)
        return out


def read_labels(segments: Any, classes: Any, n: int, n_patches: int) -> ImageLabels:
    """Label the patches of images by segments.

    Parameters
    ----------
    segments
        Ids of patches (n, T), or masks (n, H, W); 0 and below: no object.
    classes
        As `measure.same_object` has them.
    n, n_patches
        Images, and patches of each.

    Raises
    ------
    InputError
        If shapes do not fit, or an object has no class.
    """
    masks = segments if hasattr(segments, "chunks") else to_array(segments, WHERE, "segments")
    if masks.dtype.kind not in "iu":
        raise InputError(
            WHERE, f"`segments` is an array of {masks.dtype}", "give integer ids, 0 for no object"
        )
    if len(masks.shape) not in (2, 3) or masks.shape[0] != n:
        raise InputError(
            WHERE, f"`segments` is {tuple(masks.shape)}, and there are {n} scenes of {n_patches} "
            "patches", f"give ids ({n}, {n_patches}) or masks ({n}, height, width)",
        )  # fmt: skip
    grid = _grid(tuple(masks.shape), n_patches)
    classes_of = _read_classes(classes, masks.shape, n, n_patches)
    has_pixels = len(masks.shape) == 3 and grid != tuple(masks.shape[1:])
    parts, pieces = [], []
    for first in range(0, n, _AT_ONCE):
        block = np.asarray(masks[first : first + _AT_ONCE])
        dense, ids = _numbered(
            block.reshape(len(block), *(block.shape[1:] if has_pixels else grid))
        )
        known = np.ones((len(block), max(1, int(dense.max()))), np.int16)
        labels = patch_labels(dense, known, np.zeros_like(known), grid, WHERE)
        of_objects = classes_of(first, ids, labels.instances)
        image = np.arange(len(block))[:, None]
        parts.append(replace(labels, classes=of_objects[image, labels.instances]))
        if has_pixels:
            pieces.append(patch_pieces(dense, labels.instances, grid))
    names = ("instances", "classes", "stuff", "purity")
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    labels = PatchLabels(*joined)
    if classes is not None and len(np.unique(labels.classes[labels.classes > 0])) < 2:
        raise InputError(
            WHERE, "all objects have the same class", "leave `classes` out: none can be told apart"
        )
    return ImageLabels(labels, np.concatenate(pieces) if pieces else None, grid)


def _grid(shape: tuple[int, ...], n_patches: int) -> Grid:
    """Return rows and columns of the patches."""
    if len(shape) == 2:
        side = isqrt(n_patches)
        if shape[1] != n_patches:
            raise InputError(
                WHERE, f"`segments` names {shape[1]} patches of a scene, and `patches` has "
                f"{n_patches}", f"give an id for each patch; {_TOKENS}",
            )  # fmt: skip
        if side * side != n_patches:
            raise InputError(
                WHERE, f"{n_patches} patches are no square grid",
                f"{_TOKENS}, or give `segments` as (N, rows, columns)",
            )  # fmt: skip
        return side, side
    height, width = shape[1:]
    size = isqrt(height * width // n_patches)
    if size < 1 or size * size * n_patches != height * width or height % size or width % size:
        raise InputError(
            WHERE, f"masks of {height} x {width} pixels do not make {n_patches} square patches",
            f"resize them to the pixels that the model sees; {_TOKENS}",
        )  # fmt: skip
    return height // size, width // size


def _numbered(masks: Array) -> tuple[npt.NDArray[np.int32], list[Integers]]:
    """Number the ids of each image (b, H, W) from 1 on; return also the ids, without the 0."""
    out, ids = np.zeros(masks.shape, np.int32), []
    for i, mask in enumerate(masks):
        values, place = np.unique(mask, return_inverse=True)
        out[i] = (np.cumsum(values > 0) * (values > 0))[place].reshape(mask.shape)
        ids.append(values[values > 0].astype(np.int64))
    return out, ids


# --- Classes ------------------------------------------------------------------------------------


def _read_classes(classes: Any, shape: Sequence[int], n: int, n_patches: int) -> _Classes:
    """Return how the classes of objects are numbers; that of no object is 0."""
    if classes is None:
        return lambda first, ids, instances: np.zeros((len(ids), 1 + _most(ids)), np.int16)
    if hasattr(classes, "columns"):
        return _classes_of_table(classes, n)
    array = to_array(classes, WHERE, "classes")
    if array.shape == (n, n_patches) or (
        array.shape == tuple(shape) and array.size == n * n_patches
    ):
        return _classes_of_patches(_codes(array).reshape(n, n_patches))
    if array.ndim != 2 or len(array) != n:
        raise InputError(
            WHERE, f"`classes` is {array.shape}, and there are {n} scenes of {n_patches} patches",
            "give a DataFrame with `scene`, `segment` and `class`, or integers: per patch, "
            f"({n}, {n_patches}), or ({n}, objects) in the order of their ids from 1 on",
        )  # fmt: skip
    codes = _codes(array)

    def look_up(first: int, image: int, ids: Integers) -> npt.NDArray[np.int16]:
        known = ids <= codes.shape[1]
        numbers: npt.NDArray[np.int16] = codes[first + image, np.where(known, ids, 1) - 1] * known
        return numbers

    return _by_image(look_up)


def _codes(array: Array) -> npt.NDArray[np.int16]:
    """Number classes from 1 on, in their order; 0 and below are none."""
    values, place = np.unique(array, return_inverse=True)
    codes = np.cumsum(values > 0) * (values > 0)
    numbers: npt.NDArray[np.int16] = codes[place].reshape(array.shape).astype(np.int16)
    return numbers


def _classes_of_table(table: Any, n: int) -> _Classes:
    names = [name for name in ("scene", "segment", "class") if name not in table]
    if names or not table["scene"].isin(range(n)).all():
        problem = f"no column `{names[0]}`" if names else "a scene that is none of the arrays'"
        raise InputError(
            WHERE, f"`classes` has {problem}",
            f"give a row per object: `scene`, from 0 to {n - 1}, `segment` and `class`",
        )  # fmt: skip
    codes = table["class"].astype("category").cat.codes + 1
    known = dict(zip(zip(table["scene"], table["segment"], strict=True), codes, strict=True))

    def look_up(first: int, image: int, ids: Integers) -> npt.NDArray[np.int16]:
        return np.array([known.get((first + image, i), 0) for i in ids.tolist()], np.int16)

    return _by_image(look_up)


def _by_image(look_up: Callable[[int, int, Integers], npt.NDArray[np.int16]]) -> _Classes:
    """Return classes by a function of the first image of a block, an image in it, and its ids."""

    def find(
        first: int, ids: Sequence[Integers], instances: npt.NDArray[np.int16]
    ) -> npt.NDArray[np.int16]:
        numbers = np.zeros((len(ids), 1 + _most(ids)), np.int16)
        for i, each in enumerate(ids):
            numbers[i, 1 : 1 + len(each)] = look_up(first, i, each)
        _refuse_without_class(numbers, first, ids, instances)
        return numbers

    return find


def _classes_of_patches(codes: npt.NDArray[np.int16]) -> _Classes:
    """Give each object the class of most of its patches."""
    n_classes = int(codes.max()) + 1

    def find(
        first: int, ids: Sequence[Integers], instances: npt.NDArray[np.int16]
    ) -> npt.NDArray[np.int16]:
        numbers = np.zeros((len(ids), 1 + _most(ids)), np.int16)
        for i, owners in enumerate(instances.astype(np.int64)):
            counts = np.bincount(
                owners * n_classes + codes[first + i], minlength=numbers.shape[1] * n_classes
            ).reshape(-1, n_classes)
            counts[:, 0] = 0
            numbers[i, 1:] = counts.argmax(1)[1:]
        _refuse_without_class(numbers, first, ids, instances)
        return numbers

    return find


def _refuse_without_class(
    numbers: npt.NDArray[np.int16],
    first: int,
    ids: Sequence[Integers],
    instances: npt.NDArray[np.int16],
) -> None:
    """Refuse objects that patches show and that have no class."""
    missing = (np.take_along_axis(numbers, instances.astype(np.intp), 1) == 0) & (instances > 0)
    if missing.any():
        image, patch = np.argwhere(missing)[0]
        raise InputError(
            WHERE, f"segment {ids[image][instances[image, patch] - 1]} of scene {first + image} "
            "has no class", "give each object a class (numbers: above 0), or leave `classes` out",
        )  # fmt: skip


def _most(ids: Sequence[Integers]) -> int:
    return max(map(len, ids))


# --- Samples ------------------------------------------------------------------------------------


def draw_samples(
    images: ImageLabels, index: Mapping[str, Integers], sampling: PatchSampling
) -> ArraySamples:
    """Draw patches of each image as the pipeline does, split by split.

    Raises
    ------
    InputError
        If no image of a split has a pair.
    """
    patches: dict[str, npt.NDArray[np.int16]] = {}
    data: dict[str, PairData] = {}
    skipped: dict[str, Counter[str]] = {}
    for name in SPLITS:
        rows = index[name]
        arrays, reasons = _sample(images, rows, sampling, name)
        patches[name] = arrays["patches"]
        data[name] = PairData.of(arrays, None, images.grid, sampling.background)
        skipped[name] = Counter(reasons)
        if len(reasons) == len(rows):
            counts = ", ".join(f"{reason}: {n}" for reason, n in skipped[name].most_common())
            raise InputError(
                WHERE, f"no scene of {name} has two patches to compare ({counts})",
                "give scenes of several objects, each with an id above 0",
            )  # fmt: skip
    return ArraySamples(index, patches, data, skipped)


def _sample(
    images: ImageLabels, rows: Integers, sampling: PatchSampling, split: SplitName
) -> tuple[dict[str, Array], list[str]]:
    """Return the patches of some images, and why others have none."""
    labels = images.labels
    labels = PatchLabels(
        labels.instances[rows], labels.classes[rows], labels.stuff[rows], labels.purity[rows]
    )
    drawn = sample(labels, sampling, split, 0)
    arrays = dict(drawn.arrays)
    if images.pieces is not None:
        patches = np.maximum(arrays["patches"], 0).astype(np.intp)
        pieces = np.take_along_axis(images.pieces[rows], patches, 1)
        arrays["pieces"] = np.where(arrays["patches"] >= 0, pieces, 0)
    return trimmed(arrays), [reason for _, reason in drawn.skipped]
