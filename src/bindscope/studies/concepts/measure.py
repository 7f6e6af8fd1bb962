"""Concepts in embeddings of arrays, the study's public function; its jobs call it too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from bindscope.arrays.inputs import (
    ObjectTable,
    Representation,
    device_kind,
    on_threads,
    read_layers,
    read_objects,
    read_options,
    read_split,
    refuse_unless_finite,
    to_array,
)
from bindscope.arrays.result import Result
from bindscope.config.wording import instead
from bindscope.core.array_types import Floats, Integers
from bindscope.core.devices import hold_device, make_current
from bindscope.core.errors import InputError
from bindscope.core.progress import progress_bar
from bindscope.core.registries import resolve
from bindscope.fitting.rows import whole
from bindscope.studies.concepts.config import (
    Analysis,
    ApproximatorOptions,
    Complexity,
)
from bindscope.studies.concepts.counting import (
    FEWER_SLOTS,
    PROBE_STEPS,
    PROTOCOLS,
    SPLITS_BY,
    Protocol,
    SplitBy,
    too_many,
)
from bindscope.studies.concepts.protocols import split_by_protocol
from bindscope.studies.concepts.recognition import Embedded, Readout, queries
from bindscope.studies.concepts.registry import ANALYSES
from bindscope.studies.concepts.scenes import Parts, Scenes, ids_of
from bindscope.studies.concepts.vectors import SingleScenes
from bindscope.tables.rows import Row

if TYPE_CHECKING:
    import pandas as pd

USUAL: Final = ("recognition", "decomposition", "editing", "approximators")
WHERE: Final = "bindscope.concepts"
FEWEST_SETS: Final = 10  # of objects: three parts of fewer are too small to say anything
# Unless a call gives other options, those that a configuration has unless it gives others.
ESTIMATORS: Final = Analysis.model_fields["estimators"].default
STRENGTHS: Final = Analysis.model_fields["strengths"].default
N_SPLITS: Final = len(Complexity.model_fields["seeds"].default)  # of objects, for approximators
APPROXIMATORS: Final = ("additive", "per_object")
# Analysis -> its options with their defaults; without estimators: all that there are scenes for.
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "recognition": {},
    "decomposition": {"estimators": None},
    "removal": {},
    "alignment": {},
    "editing": {
        "estimators": None,
        "strengths": STRENGTHS,
        "types": (),
        "max_edits": Analysis.model_fields["max_edits"].default,
    },
    "approximators": {"approximators": APPROXIMATORS, "coverages": (0.8,)},
}
_PARTS: Final = ("vectors", "probes", "scores")
_VIEW: Final = "bindscope.studies.concepts.result_view:VIEW"


def concepts(
    embeddings: Any,
    values: pd.DataFrame | Any,
    *,
    texts: Mapping[str, Any] | None = None,
    analyses: Sequence[str | Mapping[str, Any]] = USUAL,
    scenes: Any = None,
    split: Any = None,
    random_state: int = 0,
    protocol: Protocol = "converged",
    probe_steps: int = PROBE_STEPS,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 1,
) -> Result:
    """Measure how embeddings bind the values of objects: recognition, sums, edits, rules.

    Parameters
    ----------
    embeddings
        Floats (N, d) of any framework, a vector per scene, or ``{layer: array}``.
    values
        A DataFrame with a row per object: `scene` (row of `embeddings`, or its name in `scenes`), a
        column per feature group and, unless rows are in their order, `slot`; or
        integers (N, slots, groups), -1: no object. Those of one object serve ``"single"``.
    texts
        Captions: of the `scenes` (N, d'), for ``"alignment"``; and as queries, of `objects` (K, d),
        all combinations of values, the last group varying fastest (NaN: none), and of `values`, an
        array (V, d) per feature group, by name or in order.
    analyses
        Names, or mappings with options: ``{"analysis": "editing", "strengths": [1.0]}``.
    scenes
        Names (N,) of the rows of `embeddings`, if `scene` of `values` has names.
    split
        By sets of objects (default), by ``"scenes"``, or `vectors`, `probes` or `scores` for each
        scene (N,): what is estimated, fitted or scored on it.
    random_state
        Seed of the split and of the approximators.
    protocol
        How probes, removals and approximators are fitted: to their optimum, or as in the paper's
        released code (``"paper"``).
    probe_steps
        Of the protocol ``"paper"``: steps of a probe.
    device
        Where approximators and probes are fitted.
    threads
        CPU threads.

    Returns
    -------
    Result
        A row per layer, analysis, quantity and stratum, with the columns of docs/tables.md.

    Raises
    ------
    InputError
        If inputs do not fit together, or an analysis lacks what it needs.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("pairs", n=200)
    >>> bs.concepts(data.arrays, data.objects, analyses=["recognition"]).best["layer"]
    'products'
    """
    layers = read_layers(embeddings, WHERE, "embeddings", axes=(2,))
    read = _read_scenes(values, next(iter(layers.values())).shape[0], scenes)
    chosen = [_analysis(entry, read) for entry in analyses]
    inputs = _inputs(texts, read, chosen, random_state)
    parts, split_by = _parts(split, read, protocol, random_state)
    _check_protocol(protocol, split_by)
    with on_threads(threads), hold_device(device_kind(device)) as used, make_current(used):
        embed = partial(
            read.embedded,
            split_by=split_by,
            device=used,
            parts=parts,
            protocol=protocol,
            probe_steps=probe_steps,
        )
        rows = [*_rows(layers, read.n, chosen, inputs, embed)]
    return Result({"concepts": rows}, _VIEW, _notes(read, split_by, texts, chosen))


def _check_protocol(protocol: Protocol, split_by: SplitBy) -> None:
    if protocol not in PROTOCOLS:
        raise InputError(
            WHERE, f"there is no protocol {protocol!r}", f"choose among {', '.join(PROTOCOLS)}"
        )
    if protocol == "paper" and split_by != "scenes":
        raise InputError(WHERE, "the paper's protocol splits by scenes", 'give split="scenes"')


def _inputs(
    texts: Mapping[str, Any] | None,
    scenes: _ArrayScenes,
    analyses: Sequence[tuple[str, Any]],
    random_state: int,
) -> dict[str, dict[str, Any]]:
    """Return what analyses read beside an embedding and their options, by name."""
    text_queries, captions = _texts(texts, scenes)
    if captions is None and "alignment" in [name for name, _ in analyses]:
        raise InputError(
            WHERE,
            "`alignment` compares two modalities, and there is one",
            'give `texts` with "scenes", or leave it out of `analyses`',
        )
    return {
        "recognition": {"queries": text_queries},
        "alignment": {"other_modality": captions},
        "approximators": {"seeds": range(random_state, random_state + N_SPLITS)},
    }


def _rows(
    layers: Mapping[str, Representation],
    n_scenes: int,
    analyses: Sequence[tuple[str, Mapping[str, Any]]],
    inputs: Mapping[str, Mapping[str, Any]],
    embed: Callable[[Floats], Embedded],
) -> Iterator[Row]:
    """Yield the rows of all analyses of all layers, of which one is in memory."""
    of_layer: dict[str, Embedded] = {}
    for layer, (name, options) in progress_bar([*product(layers, analyses)], "analyses"):
        if layer not in of_layer:
            of_layer = {layer: embed(whole(layers[layer].take(np.arange(n_scenes))))}
        about = {"layer": layer} if layer else {}
        about |= {"analysis_kind": name, **of_layer[layer].about()}
        run = resolve(ANALYSES[name])
        for row in run(of_layer[layer], **inputs.get(name, {}), **options):
            yield {**about, **row}


def _analysis(entry: str | Mapping[str, Any], scenes: _ArrayScenes) -> tuple[str, dict[str, Any]]:
    """Return the name and all options of an analysis."""
    options: dict[str, Any] = {"analysis": entry} if isinstance(entry, str) else dict(entry)
    name = str(options.pop("analysis", ""))
    if name not in OPTIONS:
        raise InputError(
            WHERE,
            f"there is no analysis {name!r}{instead(name, [*OPTIONS])}",
            f"choose among {', '.join(OPTIONS)}",
        )
    if unknown := sorted(set(options) - set(OPTIONS[name])):
        raise InputError(
            WHERE,
            f"`{name}` has no option {unknown[0]!r}",
            f"its options: {', '.join(OPTIONS[name]) or 'none'}",
        )
    options = {**OPTIONS[name], **options}
    if options.get("estimators", ()) is None:
        options["estimators"] = (*ESTIMATORS, *(("single",) if len(scenes.single) else ()))
    if name == "approximators":
        options["approximators"] = [*map(_approximator, options["approximators"])]
    return name, options


def _approximator(entry: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the options of an approximator, given as its kind or as a mapping."""
    content = {"kind": entry} if isinstance(entry, str) else dict(entry)
    content = {"name": str(content.get("kind", "")).replace("_", "-"), **content}
    checked = read_options(ApproximatorOptions, content, WHERE, f"approximator {entry!r}")
    return {"name": checked.name, "options": checked.model_dump(mode="json", exclude={"name"})}


# --- Scenes and their split ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ArrayScenes:
    """Scenes of the arrays by their number of objects."""

    scenes: Scenes  # those that fill all slots
    full: Integers  # their rows in the arrays
    single: Integers  # rows of scenes of one object, and these objects and slots (-1: unknown)
    objects: Integers
    positions: Integers
    n: int  # all scenes of the arrays
    groups: tuple[str, ...]  # names of the feature groups; none where they have none

    @property
    def n_omitted(self) -> int:
        """Scenes of other numbers of objects."""
        return self.n - len(self.full) - len(self.single)

    def embedded(self, z: Floats, **how: Any) -> Embedded:
        """Return the embedding of these scenes, of the arrays' (N, d), with its options."""
        single = SingleScenes(z[self.single], self.objects, self.positions)
        return Embedded(
            z[self.full], self.scenes, single=single if len(self.single) else None, **how
        )


def _read_scenes(values: Any, n: int, names: Any) -> _ArrayScenes:
    """Read which object is in which slot of each scene; `names` are those of the scenes."""
    table = None
    if hasattr(values, "columns"):
        table = read_objects(values, n, WHERE, "values", scenes=names)
    elif names is not None:
        raise InputError(
            WHERE,
            "`scenes` names the scenes of a table, and `values` is an array",
            "leave it out: the array is in the order of `embeddings`",
        )
    slots, sizes = _slots(table, n) if table else _slots_of_array(values, n)
    n_slots, number = slots.shape[1], (slots >= 0).sum(axis=1)
    if n_slots < 2:
        raise InputError(
            WHERE, "no scene has two objects", "give scenes of several objects: one binds nothing"
        )
    full, single = np.flatnonzero(number == n_slots), np.flatnonzero(number == 1)
    if problem := too_many(sizes, n_slots):
        raise InputError(WHERE, problem, FEWER_SLOTS)
    scenes = Scenes(slots[full], sizes)
    if (n_sets := len(np.unique(scenes.unordered))) < FEWEST_SETS:
        raise InputError(
            WHERE,
            f"scenes of {n_slots} objects hold {n_sets} different sets of objects",
            f"give scenes of at least {FEWEST_SETS} sets, better hundreds",
        )
    position = (slots[single] >= 0).argmax(axis=1)
    objects = slots[single, position]
    if table and table.slot is None:
        position = np.full(len(single), -1)
    groups = tuple(table.levels) if table else ()
    return _ArrayScenes(scenes, full, single, objects, position, n, groups)


def _slots(table: ObjectTable, n: int) -> tuple[Integers, tuple[int, ...]]:
    """Return the object in each slot (n, m), -1 for none, and the numbers of values."""
    if (slot := table.slot) is None:
        changes = np.flatnonzero(np.diff(table.scene)) + 1
        if len(changes) + 1 > len(np.unique(table.scene)):
            raise InputError(
                WHERE,
                "rows of one scene do not follow each other in `values`: they do not say "
                "which object is in which slot",
                "sort the rows, or add a column `slot`",
            )
        order = np.argsort(table.scene, kind="stable")
        ordered = table.scene[order]
        slot = np.empty(len(order), np.int64)
        slot[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    if slot.min() < 0 or len(np.unique(np.stack([table.scene, slot]), axis=1).T) < len(slot):
        raise InputError(
            WHERE,
            "two objects of a scene have the same slot, or a slot is negative",
            "number the slots of each scene from 0, or leave the column `slot` out",
        )
    slots = np.full((n, slot.max() + 1), -1, np.int64)
    slots[table.scene, slot] = ids_of(table.codes, table.sizes)
    return slots, table.sizes


def _slots_of_array(values: Any, n: int) -> tuple[Integers, tuple[int, ...]]:
    array = to_array(values, WHERE, "values")
    if array.ndim != 3 or len(array) != n or array.dtype.kind not in "iu":
        raise InputError(
            WHERE,
            f"`values` is {array.shape} of {array.dtype}, and there are {n} scenes",
            "give a DataFrame with a row per object, or integers (N, slots, groups)",
        )
    codes = array.astype(np.int64)
    sizes = tuple(int(top) + 1 for top in codes.max(axis=(0, 1)))
    if min(sizes) < 2:
        raise InputError(
            WHERE,
            f"all objects have the same value of feature group {sizes.index(min(sizes))}",
            "leave this group out: there is nothing to distinguish",
        )
    empty = (codes < 0).any(axis=2)
    return np.where(empty, -1, ids_of(codes.clip(0), sizes)), sizes


def _parts(
    split: Any, scenes: _ArrayScenes, protocol: Protocol, seed: int
) -> tuple[Parts, SplitBy]:
    """Return which scenes estimate, fit and score, and what is on one side of that."""
    if split is None or isinstance(split, str):
        by: SplitBy = "scenes" if split == "scenes" else "objects"
        if split not in (None, *SPLITS_BY):
            raise InputError(
                WHERE,
                f"there is no split {split!r}",
                'give "objects", "scenes" or a word per scene',
            )
        return split_by_protocol(scenes.scenes, by, protocol, seed), by
    if np.shape(split) != (scenes.n,):
        raise InputError(
            WHERE,
            f"`split` is {np.shape(split)}, and there are {scenes.n} scenes",
            f"give a word per scene: {', '.join(_PARTS)}",
        )
    rows = read_split(np.asarray(split)[scenes.full], len(scenes.full), _PARTS, WHERE)
    sets = [set(scenes.scenes.unordered[index].tolist()) for index in rows.values()]
    shared = len(set().union(*sets)) < sum(map(len, sets))
    read = np.sort(np.concatenate([rows["vectors"], rows["scores"]]))
    return Parts(rows["vectors"], rows["probes"], rows["scores"], read), (
        "scenes" if shared else "objects"
    )


def _notes(
    scenes: _ArrayScenes,
    split_by: SplitBy,
    texts: Mapping[str, Any] | None,
    analyses: Sequence[tuple[str, Any]],
) -> tuple[str, ...]:
    """Say what was left out, and why."""
    notes = []
    if scenes.n_omitted:
        notes.append(
            f"{scenes.n_omitted} scenes were left out: they have neither "
            f"{scenes.scenes.n_slots} objects nor one."
        )
    if split_by == "scenes":
        notes.append(
            "Scenes of the same objects are on both sides of the split: no claim is tested."
        )
    if texts and "scenes" in texts and "alignment" not in [name for name, _ in analyses]:
        notes.append('Captions of scenes were not used: add "alignment" to `analyses`.')
    return tuple(notes)


# --- The other modality -------------------------------------------------------------------------


def _texts(
    texts: Mapping[str, Any] | None, scenes: _ArrayScenes
) -> tuple[dict[str, Readout], Floats | None]:
    """Return queries by the name of their modality, and the scenes in that modality."""
    if texts is None:
        return {}, None
    if not isinstance(texts, Mapping):
        raise InputError(
            WHERE, f"`texts` is {type(texts).__name__}", 'give {"scenes": array} of captions'
        )
    if unknown := sorted(set(texts) - {"scenes", "objects", "values"}):
        raise InputError(
            WHERE, f"`texts` has {unknown[0]!r}", "give some of: scenes, objects, values"
        )
    full, captions = scenes.scenes, None
    if "scenes" in texts:
        captions = to_array(texts["scenes"], WHERE, "texts['scenes']")
        if captions.ndim != 2 or len(captions) != scenes.n:
            raise InputError(
                WHERE,
                f"texts['scenes'] is {captions.shape}, and there are {scenes.n} scenes",
                "give a caption's embedding (N, d) for each scene",
            )
        captions = captions[scenes.full]
        refuse_unless_finite(captions, WHERE, "texts['scenes']", scenes.full)
    if ("objects" in texts) != ("values" in texts):
        raise InputError(
            WHERE, "`texts` has one of `objects` and `values`", "give both, or neither"
        )
    if "objects" not in texts:
        return {}, captions
    objects = to_array(texts["objects"], WHERE, "texts['objects']")
    per_group = _by_group(texts["values"], scenes.groups)
    values = [to_array(array, WHERE, "texts['values']") for array in per_group]
    if len(objects) != full.n_objects or tuple(map(len, values)) != full.sizes:
        raise InputError(
            WHERE,
            f"`texts` has {len(objects)} objects and {[*map(len, values)]} values; there "
            f"are {full.n_objects} combinations of {[*full.sizes]} values",
            "give a row per combination, the last group varying fastest, and a row per value",
        )
    known = full.present[np.isfinite(objects[full.present]).all(axis=1)]
    return {"captions": queries(values, objects[known], known)}, captions


def _by_group(arrays: Any, groups: Sequence[str]) -> list[Any]:
    """Return an array per feature group, in their order; a mapping is read by its names."""
    if not isinstance(arrays, Mapping):
        return [*arrays]
    if sorted(map(str, arrays)) != sorted(groups):
        has = ", ".join(groups) if groups else "no names of groups, for it is an array"
        raise InputError(
            WHERE,
            f"texts['values'] has {', '.join(map(str, arrays))}, and `values` has {has}",
            "give an array per feature group, by the name of its column, or a list in their order",
        )
    return [arrays[group] for group in groups]
