"""Pairs of patches of one object in arrays, the study's public function.

The same steps as the pipeline's: patches are drawn by `patch_samples.sample`, probes are fitted by
`fit.fit_probe`, which the fit's job calls too, and compared by `estimates.add_leads`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from bindscope.arrays.inputs import (
    Representation,
    on_threads,
    read_layers,
    read_probe,
    row_number,
    to_array,
    train_val_test,
)
from bindscope.arrays.near_duplicates import near_duplicate_note
from bindscope.arrays.result import Result
from bindscope.core.array_types import Array, Integers
from bindscope.core.devices import hold_device, make_current
from bindscope.core.errors import InputError
from bindscope.core.progress import progress_bar
from bindscope.core.splits import SPLITS
from bindscope.fitting.rows import ArrayRows, whole
from bindscope.scenes.patch_labels import GridShape, PatchLabels, patch_labels
from bindscope.studies.same_object.config import FAMILIES, AnyScorer, PatchSampling
from bindscope.studies.same_object.data import PairData, trimmed
from bindscope.studies.same_object.estimates import add_leads
from bindscope.studies.same_object.fit import ProbeResult, fit_probe
from bindscope.studies.same_object.patch_samples import sample
from bindscope.studies.same_object.quantities import ALL, ARRAYS, NO_MODEL, WITHOUT_MODEL

FEWEST_SCENES: Final = 30
USUAL: Final = ("quadratic", "class_position", "position")
_NEED_CLASSES: Final = ("class_pointwise",)
_BLIND: Final = "`class_position` was fitted without `classes`: it reads positions and the image."
_VIEW: Final = "bindscope.studies.same_object.result_view:VIEW"


def same_object(
    patches: Any,
    segments: Any,
    *,
    classes: Any = None,
    probes: Sequence[str | Mapping[str, Any] | AnyScorer] = USUAL,
    groups: Any = None,
    split: Any = None,
    random_state: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Result:
    """Measure how well patch tokens predict whether two patches show the same object.

    Parameters
    ----------
    patches
        Patch tokens (N, T, d), row by row, without [CLS] and registers; or ``{layer: array}``.
    segments
        Ids of objects per patch, integers (N, T) or (N, rows, columns), or masks (N, H, W), of
        which a patch shows the object with most of its pixels. 0: none.
    classes
        A DataFrame of objects: `scene`, `segment`, `class`; or integers above 0 per patch, (N, T).
    probes
        Families, or probes as in the configuration (``{"family": "quadratic", "ranks": [8]}``).
    groups
        Labels (N,) of near-duplicates, which are split (70, 10, 20 %) together.
    split
        ``"train"``, ``"val"`` or ``"test"`` for each scene (N,), in place of a random split.
    random_state
        Seed of the split, of the drawn patches (64 a scene) and of the probes.
    device
        Where probes that are named by their family are fitted.

    Returns
    -------
    Result
        A row per layer and probe (docs/tables.md).

    Raises
    ------
    InputError
        If inputs do not fit together, or a part of the split has no pair.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("clutter", n=100)
    >>> bs.same_object(data.arrays, data.segments, probes=["quadratic"]).best["layer"]
    'objects'
    """
    layers, n, n_patches = _read(patches)
    chosen = [read_probe(entry, FAMILIES, AnyScorer, device, WHERE) for entry in probes]
    index = train_val_test(n, split, groups, random_state, WHERE, FEWEST_SCENES)
    labels, grid = read_labels(segments, classes, n, n_patches)
    samples = draw_samples(labels, grid, index, PatchSampling(seed=random_state))
    used = [probe for probe in chosen if classes is not None or probe.family not in _NEED_CLASSES]
    rows = _measured(used, layers, samples, random_state)
    notes = _notes(samples, n_patches, [p.name for p in chosen if p not in used], groups)
    if classes is None:
        rows = _without_classes(rows)
        notes = (*(_BLIND for p in used if p.family == "class_position"), *notes)
    if groups is None and (copies := _note_copies(layers, labels, index)):
        rows, notes = _flagged(rows), (copies, *notes)
    return Result(rows, _VIEW, notes)


def _note_copies(
    layers: Mapping[str, Representation], labels: PatchLabels, index: Mapping[str, Integers]
) -> str:
    """Say that test scenes have near-duplicates in train; empty where few have any."""
    note = near_duplicate_note(layers, labels.instances, index, are_codes_rich=True)
    return f"{note} No claim is tested." if note else ""


def _read(patches: Any) -> tuple[dict[str, Representation], int, int]:
    """Return tokens by layer, and their numbers of scenes and patches, the same in all layers."""
    layers = read_layers(patches, WHERE, "patches", axes=(3,))
    n, n_patches, _ = next(iter(layers.values())).shape
    for layer, tokens in layers.items():
        if tokens.shape[1] != n_patches:
            raise InputError(
                WHERE,
                f"layer {layer!r} has {tokens.shape[1]} patches, and others {n_patches}",
                "give layers of one patch grid in a call",
            )
    return layers, n, n_patches


def _measured(
    probes: Sequence[AnyScorer],
    layers: Mapping[str, Representation],
    samples: Mapping[str, SplitSample],
    random_state: int,
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Fit every probe to every layer, those that read no token once; compare them."""
    blind = [probe for probe in probes if probe.family in WITHOUT_MODEL]
    tasks = [(layer, probe) for layer in layers for probe in probes if probe not in blind]
    tasks += [(NO_MODEL, probe) for probe in blind]
    if not tasks:
        raise InputError(WHERE, "there is no probe to fit", 'add "quadratic" to `probes`')
    n_skipped = samples["test"].skipped.total()
    results: list[ProbeResult] = []
    read, data = None, list[PairData]()
    for layer, probe in progress_bar(tasks, "fits"):
        if layer != read:
            read, data = layer, [part.with_tokens(layers.get(layer)) for part in samples.values()]
        names = {
            "dataset": ARRAYS,
            "model": NO_MODEL if layer == NO_MODEL else ARRAYS,
            "layer": layer,
            "probe": probe.name,
            "spec_key": "",
            "code_key": "",
        }
        with on_threads(probe.threads), hold_device(probe.device) as device, make_current(device):
            results += fit_probe(
                probe, *data, names=names, n_skipped=n_skipped, seeds=[random_state]
            )
    for result in results:
        result.row["n_layers"] = None
    add_leads([(result.row, result.of_images.astype(np.float64)) for result in results])
    strata = tuple(row for result in results for row in result.strata)
    return {"same_object": tuple(result.row for result in results), "same_object_strata": strata}


def _flagged(
    rows: Mapping[str, tuple[dict[str, Any], ...]],
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Add the flag `near_duplicates` to the rows of fits."""
    fits = [
        {**row, "flags": ";".join(sorted({*row["flags"].split(";"), "near_duplicates"} - {""}))}
        for row in rows["same_object"]
    ]
    return {**rows, "same_object": tuple(fits)}


def _without_classes(
    rows: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Leave out what is said of classes."""
    return {
        name: tuple(
            {**row, "class_oracle_accuracy": None}
            for row in of_table
            if row.get("same_class", ALL) == ALL
        )
        for name, of_table in rows.items()
    }


def _notes(
    samples: Mapping[str, SplitSample], n_patches: int, unused: Sequence[str], groups: Any
) -> tuple[str, ...]:
    """Say what was left out, and why."""
    notes = [f"{name} was not fitted: it needs `classes`." for name in unused]
    skipped = sum((part.skipped for part in samples.values()), Counter[str]())
    if skipped:
        reasons = ", ".join(f"{reason} ({n})" for reason, n in skipped.most_common())
        notes.append(f"{skipped.total()} scenes were left out: {reasons}.")
    most = max(int((part.patches >= 0).sum(1).max()) for part in samples.values())
    if most < n_patches:
        notes.append(
            f"At most {most} of the {n_patches} patches of a scene are in pairs: drawn, and most "
            "of their pixels of one object."
        )
    if groups is not None:
        notes.append("Intervals resample scenes, not groups: they may be too narrow.")
    return tuple(notes)


# --- Arrays as samples of pairs -------------------------------------------------------------------


WHERE: Final = "bindscope.same_object"
_AT_ONCE = 64  # images
_TOKENS = "leave [CLS] and register tokens out of `patches`"


@dataclass(frozen=True, eq=False)
class SplitSample:
    """Patches of a split whose pairs count, without their tokens."""

    images: Integers  # numbers of the images, ascending
    patches: npt.NDArray[np.int16]  # numbers of the patches (n, M) in the grid, -1 behind the last
    data: PairData  # the pairs
    skipped: Counter[str]  # reason -> images without a pair

    def with_tokens(self, tokens: Representation | None) -> PairData:
        """Return the pairs with the tokens of a layer, float32, in memory; None: without any."""
        if tokens is None:
            return self.data
        patches = np.maximum(self.patches, 0).astype(np.intp)
        out = np.empty((*patches.shape, tokens.shape[2]), np.float32)
        for first in range(0, len(out), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            block = whole(tokens.take(self.images[rows]))
            out[rows] = np.take_along_axis(block, patches[rows][..., None], axis=1)
        return replace(self.data, tokens=ArrayRows(out))


def read_labels(
    segments: Any, classes: Any, n: int, n_patches: int
) -> tuple[PatchLabels, GridShape]:
    """Label the patches of images by segments and classes, as `measure.same_object` has them.

    Objects are numbered from 1 on in each image, in the order of their ids; all have class 0 where
    no classes are known. Returns also rows and columns of patches.
    """
    masks = segments if hasattr(segments, "chunks") else to_array(segments, WHERE, "segments")
    if masks.dtype.kind not in "iu":
        raise InputError(
            WHERE, f"`segments` is an array of {masks.dtype}", "give integer ids, 0 for no object"
        )
    if len(masks.shape) not in (2, 3) or masks.shape[0] != n:
        raise InputError(
            WHERE,
            f"`segments` is {tuple(masks.shape)}, and there are {n} scenes of {n_patches} patches",
            f"give ids ({n}, {n_patches}) or masks ({n}, height, width)",
        )
    grid = _grid(tuple(masks.shape), n_patches)
    has_pixels = len(masks.shape) == 3 and grid != tuple(masks.shape[1:])
    parts, owners = [], []  # labels of patches, and the ids of their objects as given
    for first in range(0, n, _AT_ONCE):
        block = np.asarray(masks[first : first + _AT_ONCE])
        block = block.reshape(len(block), *(block.shape[1:] if has_pixels else grid))
        numbers, ids = zip(*map(_numbered, block), strict=True)
        dense = np.stack(numbers).astype(np.int32)
        known = np.ones((len(block), max(1, int(dense.max()))), np.int16)
        parts.append(patch_labels(dense, known, np.zeros_like(known), grid, WHERE))
        owners += [
            np.append(0, known_ids)[of_image]
            for known_ids, of_image in zip(ids, parts[-1].instances, strict=True)
        ]
    instances, stuff, purity = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("instances", "stuff", "purity")
    )
    patch_classes = np.zeros_like(instances)
    if classes is not None:
        codes = _read_classes(classes, masks.shape, np.stack(owners))
        patch_classes = _classes_of_objects(codes, instances, np.stack(owners))
    return PatchLabels(instances, patch_classes, stuff, purity), grid


def _grid(shape: tuple[int, ...], n_patches: int) -> GridShape:
    """Return rows and columns of the patches."""
    if len(shape) == 2:
        side = isqrt(n_patches)
        if shape[1] != n_patches:
            raise InputError(
                WHERE,
                f"`segments` names {shape[1]} patches of a scene, and `patches` has {n_patches}",
                f"give an id for each patch; {_TOKENS}",
            )
        if side * side != n_patches:
            raise InputError(
                WHERE,
                f"{n_patches} patches are no square grid",
                f"{_TOKENS}, or give `segments` as (N, rows, columns)",
            )
        return side, side
    height, width = shape[1:]
    size = isqrt(height * width // n_patches)
    if size < 1 or size * size * n_patches != height * width or height % size or width % size:
        raise InputError(
            WHERE,
            f"masks of {height} x {width} pixels do not make {n_patches} square patches",
            f"resize them to the pixels that the model sees; {_TOKENS}",
        )
    return height // size, width // size


def _numbered(array: Array) -> tuple[Integers, Integers]:
    """Number ids from 1 on, in their order; 0 and below are none. Return also the ids."""
    values, place = np.unique(array, return_inverse=True)
    codes = np.cumsum(values > 0) * (values > 0)
    numbers: Integers = codes[place].reshape(array.shape).astype(np.int64)
    return numbers, values[values > 0].astype(np.int64)


# --- Classes ------------------------------------------------------------------------------------


def _read_classes(classes: Any, shape: Sequence[int], owners: Integers) -> Integers:
    """Return the class of each patch, (n, P), numbers from 1 on; 0: it has none.

    `shape` is that of the segments, `owners` (n, P): the ids of the patches' objects.
    """
    if hasattr(classes, "columns"):
        return _classes_of_table(classes, owners)
    array = to_array(classes, WHERE, "classes")
    if array.size == owners.size and array.shape in (owners.shape, tuple(shape)):
        return _numbered(array)[0].reshape(owners.shape)
    n, n_patches = owners.shape
    raise InputError(
        WHERE,
        f"`classes` is {array.shape}, and there are {n} scenes of {n_patches} patches",
        "give a DataFrame with `scene`, `segment` and `class`, or integers per patch, "
        f"({n}, {n_patches})",
    )


def _classes_of_table(table: Any, owners: Integers) -> Integers:
    n, n_patches = owners.shape
    names = [name for name in ("scene", "segment", "class") if name not in table]
    scene = [] if names else [row_number(value) for value in table["scene"].tolist()]
    if names or not all(0 <= row < n for row in scene):
        problem = f"no column `{names[0]}`" if names else "a scene that is none of the arrays'"
        raise InputError(
            WHERE,
            f"`classes` has {problem}",
            f"give a row per object: `scene`, from 0 to {n - 1}, `segment` and `class`",
        )
    codes = table["class"].astype("category").cat.codes.to_numpy(np.int64) + 1
    objects = [*zip(scene, table["segment"].tolist(), strict=True)]
    known = dict(zip(objects, codes, strict=True))
    if different := [key for key, code in zip(objects, codes, strict=True) if known[key] != code]:
        raise InputError(
            WHERE,
            f"`classes` gives segment {different[0][1]} of scene {different[0][0]} two classes",
            "give a row per object",
        )
    scenes = np.repeat(np.arange(n), n_patches).tolist()
    numbers = [known.get(key, 0) for key in zip(scenes, owners.ravel().tolist(), strict=True)]
    return np.array(numbers, np.int64).reshape(owners.shape)


def _classes_of_objects(
    codes: Integers, instances: npt.NDArray[np.int16], owners: Integers
) -> npt.NDArray[np.int16]:
    """Give each object the class of most of its patches; refuse objects without one."""
    k, patch_classes = int(codes.max()) + 1, np.zeros_like(instances)
    for i, of_image in enumerate(instances.astype(np.int64)):
        counts = np.bincount(of_image * k + codes[i], minlength=(int(of_image.max()) + 1) * k)
        counts = counts.reshape(-1, k)
        counts[0] = counts[:, 0] = 0
        patch_classes[i] = counts.argmax(1)[of_image]
    without = np.argwhere((patch_classes == 0) & (instances > 0))
    if len(without):
        image, patch = without[0]
        raise InputError(
            WHERE,
            f"segment {owners[image, patch]} of scene {image} has no class",
            "give each object a class (numbers: above 0), or leave `classes` out",
        )
    if len(np.unique(patch_classes[patch_classes > 0])) < 2:
        raise InputError(
            WHERE, "all objects have the same class", "leave `classes` out: none can be told apart"
        )
    return patch_classes


# --- Samples ------------------------------------------------------------------------------------


def draw_samples(
    labels: PatchLabels, grid: GridShape, index: Mapping[str, Integers], sampling: PatchSampling
) -> dict[str, SplitSample]:
    """Draw patches of each image of every split as the pipeline does."""
    samples: dict[str, SplitSample] = {}
    for split in SPLITS:
        images = index[split]
        of_split = PatchLabels(
            labels.instances[images],
            labels.classes[images],
            labels.stuff[images],
            labels.purity[images],
        )
        drawn = sample(of_split, sampling, split, 0)
        skipped = Counter(reason for _, reason in drawn.skipped)
        if len(drawn.skipped) == len(images):
            counts = ", ".join(f"{reason}: {n}" for reason, n in skipped.most_common())
            raise InputError(
                WHERE,
                f"no scene of {split} has two patches to compare ({counts})",
                "give scenes of several objects, each with an id above 0",
            )
        arrays = trimmed(drawn.arrays)
        data = PairData.from_arrays(arrays, None, grid)
        samples[split] = SplitSample(images, arrays["patches"], data, skipped)
    return samples
