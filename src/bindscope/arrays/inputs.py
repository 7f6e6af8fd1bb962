"""Arrays of any framework, objects in a long table, splits: the inputs of the public functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from bindscope.arrays.precision import in_float32
from bindscope.config.wording import instead
from bindscope.core.array_types import Array, Integers
from bindscope.core.errors import InputError
from bindscope.core.splits import SPLITS
from bindscope.fitting.rows import Rows

if TYPE_CHECKING:
    import pandas as pd


_AXES = {2: "(N, d)", 3: "(N, T, d)"}


@dataclass(frozen=True)
class StoredRows:
    """Some scenes of an array on disk (memory-mapped, Zarr, HDF5), as `fitting.rows.Rows`.

    Parameters
    ----------
    values
        The array, scenes first.
    index
        Which scenes, ascending, int64.
    where, name
        Of the array, for messages.
    """

    values: Any
    index: Integers
    where: str
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Scenes, and the shape of what each scene has."""
        return len(self.index), *self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns."""
        return np.dtype(np.float32)

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Read scenes [start, stop), in `out` where given."""
        index = self.index[start:stop]
        block = np.asarray(getattr(self.values, "oindex", self.values)[index], np.float32)
        refuse_unless_finite(block, self.where, self.name, index)
        if out is None:
            return block
        out[...] = block
        return out


@dataclass(frozen=True)
class Representation:
    """A vector, or patch tokens, of every scene: in memory as float32, or on disk.

    Attributes
    ----------
    values
        (N, d) or (N, T, d).
    where, name
        For messages.
    notes
        What probes cannot read of it; nothing is said of arrays on disk.
    """

    values: Any
    where: str
    name: str
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.values.shape)

    @property
    def is_stored(self) -> bool:
        """Whether the array is on disk."""
        return _is_stored(self.values)

    def take(self, index: Integers) -> Array | Rows:
        """Return some scenes, ascending; those of an array on disk are read on use."""
        if self.is_stored:
            return StoredRows(self.values, index, self.where, self.name)
        scenes: Array = self.values[index]
        return scenes


def read_layers(
    values: Any, where: str, name: str, axes: tuple[int, ...] = (2, 3), *, centered: bool = False
) -> dict[str, Representation]:
    """Check an array, or several of the same scenes by the name of their layer.

    Parameters
    ----------
    values
        The array, or a mapping of layers to arrays: NumPy, torch on any device, or what
        `numpy.asarray` reads; memory-mapped, Zarr and HDF5 arrays stay on disk.
    where, name
        The function and its parameter, for messages.
    axes
        Numbers of axes that are allowed.
    centered
        Whether columns may be centered and scaled, for probes that do so anyway (`in_float32`).

    Returns
    -------
    dict
        The representations by layer; a single array has the layer "".
    """
    named = values if isinstance(values, Mapping) else {"": values}
    if not named:
        raise InputError(where, f"`{name}` has no layer", "give {layer: array}, or an array")
    layers = {
        str(layer): _representation(
            array, where, f"{name}[{layer!r}]" if layer != "" else name, axes, centered=centered
        )
        for layer, array in named.items()
    }
    numbers = {layer: rep.shape[0] for layer, rep in layers.items()}
    if len(set(numbers.values())) > 1:
        counts = ", ".join(f"{layer}: {n}" for layer, n in numbers.items())
        raise InputError(
            where,
            f"layers of `{name}` differ in their number of scenes ({counts})",
            "give the same scenes, in the same order, in every layer",
        )
    return layers


def _representation(
    values: Any, where: str, name: str, axes: tuple[int, ...], *, centered: bool
) -> Representation:
    array = values if _is_stored(values) else to_array(values, where, name)
    if len(array.shape) not in axes or 0 in array.shape:
        shapes = " or ".join(_AXES[n] for n in axes)
        raise InputError(where, f"`{name}` is {tuple(array.shape)}", f"give it as {shapes}")
    if _is_stored(values):
        return Representation(array, where, name)
    refuse_unless_finite(array, where, name)
    if not centered:
        return Representation(array.astype(np.float32, copy=False), where, name)
    cast, notes = in_float32(array)
    return Representation(cast, where, name, notes)


def notes_of_layers(layers: Mapping[str, Representation]) -> tuple[str, ...]:
    """Return the notes of all layers, in sentences."""
    return tuple(
        f"{f'Layer {layer}: ' if layer else ''}{note}."
        for layer, representation in layers.items()
        for note in representation.notes
    )


def _is_stored(values: Any) -> bool:
    return isinstance(values, np.memmap) or hasattr(values, "chunks")


def refuse_unless_finite(
    values: Array, where: str, name: str, scenes: Integers | None = None
) -> None:
    """Refuse an array with a value that is not finite; `scenes` are the numbers of its rows."""
    bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if bad.any():
        first = int(np.argmax(bad))
        raise InputError(
            where,
            f"`{name}` has values that are not finite in {bad.sum()} scenes, the first of "
            f"them scene {first if scenes is None else scenes[first]}",
            "leave these scenes out, or find out why",
        )


def to_array(values: Any, where: str, name: str) -> Array:
    """Return any framework's array as numpy's, on the host."""
    if hasattr(values, "detach"):  # torch
        values = values.detach().cpu()
        if values.is_floating_point():  # numpy has no bfloat16
            values = values.float()
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise InputError(
            where, f"`{name}` is an array of {array.dtype}", "give numbers in an array"
        )
    return array


def device_kind(device: str) -> str:
    """Return "cpu" or "cuda"; of "auto" the GPU if torch sees one."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Compute on so many CPU threads: sums round by how they are split over threads.

    More than there are idle cores wait for each other: 20 times as long, seen on a busy machine.
    """
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with threadpool_limits(number):
            yield
    finally:
        torch.set_num_threads(before)


# --- Objects ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObjectTable:
    """Objects of scenes, a row per object.

    Attributes
    ----------
    scene
        Row of the arrays that the object's scene has, int64 (objects,).
    slot
        Its slot, int64 (objects,); None where the table has no such column.
    codes
        Number of its value in each feature group, int64 (objects, groups).
    levels
        Feature group -> its values, in order.
    """

    scene: Integers
    slot: Integers | None
    codes: Integers
    levels: Mapping[str, tuple[str, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each feature group."""
        return tuple(map(len, self.levels.values()))


def read_objects(
    frame: pd.DataFrame,
    n_scenes: int,
    where: str,
    name: str,
    kinds: Sequence[str] = (),
    scenes: Any = None,
) -> ObjectTable:
    """Read a long table: a row per object, columns `scene`, a column per feature group, `slot`.

    Parameters
    ----------
    frame
        `scene` is the row of the arrays, a whole number of any type from 0 to N - 1, or the name
        of a scene. Values of a categorical column may be missing.
    n_scenes
        Scenes of the arrays, N.
    where, name
        The function and its parameter, for messages.
    kinds
        Order of the feature groups, if they are the table's; default: that of its columns.
    scenes
        Names of the scenes (N,), in the order of the arrays; None: `scene` has row numbers.
    """
    columns = [str(column) for column in frame.columns if column not in ("scene", "slot")]
    if "scene" not in frame or not columns:
        raise InputError(
            where,
            f"`{name}` has the columns {', '.join(map(str, frame.columns))}",
            "give a row per object: `scene`, then a column per feature group (color, shape)",
        )
    kinds = kinds if sorted(kinds) == sorted(columns) else columns
    for column in ("scene", *kinds):
        if (empty := frame[column].isna().to_numpy()).any():
            raise InputError(
                where,
                f"`{name}` has no {column} in row {int(empty.argmax())}",
                "fill it in; an object without a value is still in the scene",
            )
    values = {kind: frame[kind].astype("category").cat for kind in kinds}
    for kind, accessor in values.items():
        if len(accessor.categories) < 2:
            raise InputError(
                where,
                f"all objects of `{name}` have the same {kind}",
                "leave this column out: there is nothing to distinguish",
            )
    codes = np.stack([np.asarray(each.codes, np.int64) for each in values.values()], axis=1)
    levels = {kind: tuple(map(str, each.categories)) for kind, each in values.items()}
    slot: Integers | None = None
    if "slot" in frame:
        slot = np.asarray(frame["slot"], np.int64)
    return ObjectTable(_scene_rows(frame, n_scenes, scenes, where, name), slot, codes, levels)


def _scene_rows(frame: pd.DataFrame, n_scenes: int, scenes: Any, where: str, name: str) -> Integers:
    """Return the row of each object's scene in the arrays; never by the order of the table."""
    column = frame["scene"].tolist()
    if scenes is None:
        rows = [row_number(scene) for scene in column]
        wrong = next((i for i, row in enumerate(rows) if not 0 <= row < n_scenes), None)
        remedy = (
            f"number `scene` by the rows of the arrays, 0 to {n_scenes - 1}, or give their names "
            "in that order: scenes=[...]"
        )
    else:
        order = {scene: i for i, scene in enumerate(scenes)}
        if len(order) != n_scenes or len(scenes) != n_scenes:
            raise InputError(
                where,
                f"`scenes` has {len(scenes)} names, {len(order)} different ones, and the "
                f"arrays have {n_scenes} scenes",
                "give each scene of the arrays a name of its own",
            )
        rows = [order.get(scene, -1) for scene in column]
        wrong = next((i for i, row in enumerate(rows) if row < 0), None)
        remedy = "add it to `scenes`, or leave its objects out"
    if wrong is not None:
        raise InputError(
            where,
            f"`{name}` has in row {wrong} the scene {column[wrong]!r}, which is none of the "
            f"arrays' {n_scenes}",
            remedy,
        )
    return np.array(rows, np.int64)


def row_number(value: Any) -> int:
    """Return a whole number as an integer, whatever its type; -1 for anything else."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or isinstance(value, bool) or value != value // 1:
        return -1
    return int(value)


# --- Splits -------------------------------------------------------------------------------------


def read_split(split: Any, n_scenes: int, words: Sequence[str], where: str) -> dict[str, Integers]:
    """Return the scenes of each part of a ready-made split: a word per scene."""
    split_words = np.asarray(split).astype(str)
    if split_words.shape != (n_scenes,):
        raise InputError(
            where,
            f"`split` is {split_words.shape}, and there are {n_scenes} scenes",
            f"give a word per scene: {', '.join(words)}",
        )
    parts = {word: np.flatnonzero(split_words == word) for word in words}
    unknown = sorted({*np.unique(split_words).tolist()} - {*words})
    if unknown or not all(map(len, parts.values())):
        counts = ", ".join(f"{word}: {len(rows)}" for word, rows in parts.items())
        raise InputError(
            where,
            f"`split` has {counts}" + (f"; and {unknown[0]!r}" if unknown else ""),
            f"give each scene one of {', '.join(words)}, and each of them some scenes",
        )
    return parts


SHARES: Final[dict[str, float]] = dict(zip(map(str, SPLITS), (0.7, 0.1, 0.2), strict=True))


def train_val_test(
    n_scenes: int, split: Any, groups: Any, random_state: int, where: str, fewest: int
) -> dict[str, Integers]:
    """Return the scenes of train, val and test, ascending: as somebody says, or at random.

    Parameters
    ----------
    n_scenes
        Scenes, N; less than the `fewest` are refused.
    split
        Words of `SPLITS` (N,), or None: `SHARES` of the scenes.
    groups
        Labels of near-duplicates (N,), which are on one side, or None.
    random_state
        Seed.
    where
        The function, for messages.
    """
    if n_scenes < fewest:
        raise InputError(
            where, f"there are {n_scenes} scenes", f"give at least {fewest}, better hundreds"
        )
    if split is None:
        return _random_split(n_scenes, groups, random_state, where)
    if groups is not None:
        raise InputError(where, "both `split` and `groups` are given", "give one of them")
    return read_split(split, n_scenes, SPLITS, where)


def _random_split(n_scenes: int, groups: Any, random_state: int, where: str) -> dict[str, Integers]:
    """Deal scenes out at random; scenes of one group are on one side."""
    members = np.arange(n_scenes)
    if groups is not None:
        if (shape := np.shape(groups)) != (n_scenes,):
            raise InputError(
                where,
                f"`groups` is {shape}, and there are {n_scenes} scenes",
                "give a label per scene, the same for near-duplicates",
            )
        _, members = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(members)
    order = np.random.Generator(np.random.PCG64(random_state)).permutation(len(sizes))
    ends = np.round(np.cumsum([*SHARES.values()]) * n_scenes).astype(int)
    part = np.empty(len(sizes), np.int64)
    part[order] = np.searchsorted(ends, np.cumsum(sizes[order]) - sizes[order], side="right")
    rows = {name: np.flatnonzero(part[members] == i) for i, name in enumerate(SHARES)}
    if empty := [name for name, scenes in rows.items() if not len(scenes)]:
        raise InputError(
            where,
            f"no scene is left for {empty[0]} ({len(sizes)} groups of {n_scenes} scenes)",
            "give more and smaller groups, or `split`",
        )
    return rows


def read_options(kind: Any, content: Mapping[str, Any], where: str, name: str) -> Any:
    """Return what a section of the configuration says, or raise an `InputError` with its `name`."""
    try:
        return TypeAdapter(kind).validate_python(dict(content))
    except ValidationError as error:
        problems = [_in_words(name, content, entry) for entry in error.errors()]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        remedy = f"correct `{name}`; config/README.md has all its keys"
        raise InputError(where, f"{problems[0]}{more}", remedy) from error


def _in_words(name: str, content: Mapping[str, Any], problem: Mapping[str, Any]) -> str:
    """Say what is wrong with a key of a section; `problem` is an entry of a `ValidationError`."""
    path = [str(part) for part in problem["loc"]]
    if path and path[0] not in content and path[0] in map(str, content.values()):
        del path[0]  # the value of `kind`, by which pydantic chose the rest
    key = ".".join([name, *path])
    if problem["type"] == "missing":
        return f"`{key}` is missing"
    if problem["type"] == "union_tag_not_found":
        return f"`{key}` has no {problem['ctx']['discriminator'].strip(chr(39))!r}"
    if problem["type"] == "union_tag_invalid":
        tags = problem["ctx"]["expected_tags"].replace("'", "")
        return f"`{key}` is of the kind {problem['ctx']['tag']!r}, not one of {tags}"
    return f"`{key}` is {problem['input']!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def read_probe(entry: Any, families: Iterable[str], kind: Any, device: str, where: str) -> Any:
    """Return a probe's configuration, of type `kind`; its name is its family where it has none.

    `entry` is one already, or its options, or the name of a family alone.
    """
    if not isinstance(entry, str | Mapping):
        return entry
    options: dict[str, Any] = {"family": entry} if isinstance(entry, str) else dict(entry)
    family, known = options.get("family"), list(families)
    if family not in known:
        raise InputError(
            where,
            f"there is no probe family {family!r}{instead(family, known)}",
            f"choose among {', '.join(known)}",
        )
    options = {"name": str(family).replace("_", "-"), "device": device_kind(device), **options}
    return read_options(kind, options, where, "probes")
