"""Object codes of arrays' scenes, and their prior: exact where the scene distribution is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.arrays.inputs import ObjectTable, read_objects, read_options, to_array
from bindscope.codes.space import feature_code
from bindscope.config.base import ConfigModel
from bindscope.config.codes import RandomSplit, SceneDistribution, Space
from bindscope.config.observed import CountedSpace
from bindscope.core.array_types import Array, Bits, Integers
from bindscope.core.errors import InputError
from bindscope.priors.anchors import anchors, clipped
from bindscope.priors.counted import CountedPrior, counted_entropies
from bindscope.priors.entropies import entropies
from bindscope.studies.binding_information.names import ARRAYS

if TYPE_CHECKING:
    import pandas as pd

WHERE = "bindscope.binding_information"

Anchors = Mapping[str, Array]


@dataclass(frozen=True)
class ArrayLabels:
    """Codes of all scenes, and what is known of them before a representation is seen.

    `objects` are uint8 (N, K), `features` (N, n); `sizes` those of the feature groups. By split,
    `anchors` are prior log-odds of its scenes, in the order of `rows`, and their count bits.
    `prior` are entropies of the test split (a row of `priors.entropies`), `notes` what contradicts
    the prior or is not encoded, in sentences, `groups` labels (N,) of near-duplicates, `flags`
    those of all rows.
    """

    objects: Bits
    features: Bits
    sizes: tuple[int, ...]
    anchors: Mapping[str, Anchors]
    prior: Mapping[str, Any]
    rows: Mapping[str, Integers]
    notes: tuple[str, ...] = ()
    groups: Integers | None = None
    flags: tuple[str, ...] = ()


def read_labels(
    objects: Any,
    space: Any,
    rows: Mapping[str, Integers],
    more_notes: Sequence[str] = (),
    scenes: Any = None,
    groups: Any = None,
) -> ArrayLabels:
    """Check codes and space (`measure.binding_information`) of the splits, and count the prior."""
    notes, n_scenes = [*more_notes], sum(map(len, rows.values()))
    if hasattr(objects, "columns"):
        known, codes, note = _from_table(objects, space, n_scenes, scenes)
        notes += [note] if note else []
    else:
        if scenes is not None:
            raise InputError(
                WHERE,
                "`scenes` names the scenes of a table, and `objects` are object codes",
                "leave it out: codes are in the order of `Z`",
            )
        codes = _bits(objects)
        if len(codes) != n_scenes:
            raise InputError(
                WHERE,
                f"there are {len(codes)} object codes for {n_scenes} scenes",
                "give one object code for each scene of `Z`",
            )
        known = _space(space, codes)
    sizes = tuple(group.size for group in known.groups)
    codes = _flat(codes, sizes)
    if (codes == codes[0]).all():
        raise InputError(
            WHERE,
            "all scenes have the same objects",
            "give scenes that differ: there is nothing to decode",
        )
    of_split, prior = _priors(known, codes, rows)
    if groups is not None:
        groups = np.unique(np.asarray(groups), return_inverse=True)[1]
    features = feature_code(codes, sizes)
    return ArrayLabels(codes, features, sizes, of_split, prior, rows, tuple(notes), groups)


def _from_table(
    frame: pd.DataFrame, space: Any, n_scenes: int, scenes: Any
) -> tuple[Any, Bits, str]:
    """Return the space, the codes (N, K) and a note of a table with a row per object."""
    if isinstance(space, Mapping) and "groups" in space:
        space = _space(space, np.zeros((0, 0), np.uint8))
    declared = [group.name for group in getattr(space, "groups", ())]
    table = read_objects(frame, n_scenes, WHERE, "objects", declared, scenes)
    if declared and sorted(declared) != sorted(_slugs(table.levels)):
        raise InputError(
            WHERE,
            f"`space` has the feature groups {', '.join(declared)}, and `objects` the columns "
            f"{', '.join(table.levels)}",
            "give them the same names",
        )
    if space is None:
        space = table.sizes
    elif isinstance(space, Mapping):
        space = {**space, "groups": dict(zip(_slugs(table.levels), table.sizes, strict=True))}
    codes = np.zeros((n_scenes, prod(table.sizes)), np.uint8)
    codes[table.scene, np.ravel_multi_index(tuple(table.codes.T), table.sizes)] = 1
    known = _space(space, codes)
    sizes = tuple(group.size for group in known.groups)
    if sizes != table.sizes:
        raise InputError(
            WHERE,
            f"`space` has feature groups of {sizes} values, `objects` of {table.sizes}",
            "make columns categorical if some of their values never occur",
        )
    return known, codes, _note_of(table)


def _note_of(table: ObjectTable) -> str:
    """Say how many scenes have two equal objects, of which a code has one; "" for none."""
    rows = np.column_stack([table.scene, table.codes])
    distinct, repeats = np.unique(rows, axis=0, return_counts=True)
    n_scenes = len(np.unique(distinct[repeats > 1, 0]))
    if not n_scenes:
        return ""
    return f"{n_scenes} scenes have equal objects; a code says which objects occur, not how many."


def _slugs(names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return names of feature groups that the configuration accepts."""
    slugs = ["".join(c if c.isalnum() and c.isascii() else "-" for c in n.lower()) for n in names]
    slugs = [slug.strip("-")[:32].strip("-") for slug in slugs]
    if all(slugs) and len(set(slugs)) == len(slugs):
        return slugs
    return [f"group{i}" for i in range(1, len(slugs) + 1)]


def _priors(
    space: Any, codes: Bits, rows: Mapping[str, Integers]
) -> tuple[Mapping[str, Anchors], Mapping[str, Any]]:
    """Return anchors by split and the entropies of the test split: exact, or estimated."""
    by_split = {name: codes[index] for name, index in rows.items()}
    if isinstance(space, CountedSpace):
        _refuse_outside(codes.sum(1, dtype=np.int64), 1, space.max_objects)
        counted = CountedPrior(by_split, space)
        of_split = {name: clipped(counted.log_odds(name)) for name in by_split}
        by_name = counted_entropies(by_split, space)
    else:
        dataset = SceneDistribution(name=ARRAYS, space=space, split=RandomSplit(rule="random"))
        try:
            everything = anchors(dataset, codes)
        except ValueError as error:
            raise InputError(
                WHERE,
                str(error),
                f"correct its code, or `space`, which is {space.kind}: "
                f"{space.model_dump(exclude={'kind', 'groups'})}",
            ) from error
        of_split = {
            name: {kind: values[index] for kind, values in everything.items()}
            for name, index in rows.items()
        }
        by_name = entropies(dataset)
    return of_split, next(row for row in by_name if row["split"] == "test")


def _refuse_outside(numbers: Array, fewest: int, most: int) -> None:
    outside = (numbers < fewest) | (numbers > most)
    if outside.any():
        first = int(np.argmax(outside))
        raise InputError(
            WHERE,
            f"scene {first} has {numbers[first]} objects; the space allows {fewest} to {most}",
            "leave such scenes out, or widen `space`",
        )


def _space(space: Any, codes: Bits) -> Any:
    """Return the space as the configuration has it; `counted` where only sizes are known."""
    if isinstance(space, ConfigModel):
        return space
    if isinstance(space, Mapping):
        content = dict(space)
        if isinstance(content.get("groups"), Mapping):
            content["groups"] = [
                {"name": name, "size": size} for name, size in content["groups"].items()
            ]
        return read_options(Space, content, WHERE, "space")
    if space is None and codes.ndim == 2:
        raise InputError(
            WHERE,
            f"object codes {codes.shape} do not say what the feature groups are",
            "give `objects` as a DataFrame, as grids (N, 6, 6), or `space`: the groups' sizes",
        )
    sizes = codes.shape[1:] if space is None else tuple(space)
    most = int(codes.reshape(len(codes), -1).sum(1, dtype=np.int64).max(initial=1))
    groups = [{"name": f"group{i + 1}", "size": size} for i, size in enumerate(sizes)]
    content = {"kind": "counted", "groups": groups, "max_objects": max(most, 1)}
    return read_options(Space, content, WHERE, "space")


def _flat(codes: Bits, sizes: tuple[int, ...]) -> Bits:
    """Return codes or grids as codes (N, K)."""
    if codes.shape[1:] not in ((prod(sizes),), sizes):
        raise InputError(
            WHERE,
            f"objects are {codes.shape}, and the feature groups of `space` have sizes {sizes}",
            f"give codes (N, {prod(sizes)}) or grids (N, {', '.join(map(str, sizes))})",
        )
    return codes.reshape(len(codes), -1)


def _bits(values: Any) -> Bits:
    array = to_array(values, WHERE, "objects")
    if array.ndim < 2 or not len(array):
        raise InputError(
            WHERE,
            f"`objects` is {array.shape}",
            "give a DataFrame with a row per object, or a row of bits per scene",
        )
    if not ((array == 0) | (array == 1)).all():
        raise InputError(
            WHERE,
            "`objects` holds other values than 0 and 1",
            "a code says which objects occur, not how many of them",
        )
    return array.astype(np.uint8)
