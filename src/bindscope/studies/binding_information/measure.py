"""Binding information of arrays, the study's public function.

The same steps as the pipeline's, in one call: codes are split, their prior is counted, probes are
fitted by `fit.run_fit`, and `fit.fit_row` makes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bindscope.arrays.inputs import (
    Representation,
    notes_of_layers,
    on_threads,
    read_layers,
    read_probe,
    train_val_test,
)
from bindscope.arrays.near_duplicates import near_duplicate_note
from bindscope.arrays.result import Result
from bindscope.config.base import ConfigModel
from bindscope.core.array_types import Integers
from bindscope.core.errors import InputError
from bindscope.core.progress import progress_bar
from bindscope.fitting.rows import as_rows
from bindscope.studies.binding_information.array_baselines import PREFIX, read_baselines
from bindscope.studies.binding_information.array_labels import (
    WHERE,
    ArrayLabels,
    read_labels,
)
from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.columns import BINDING_COLUMNS
from bindscope.studies.binding_information.config import AnyProbe, Information
from bindscope.studies.binding_information.contradictions import checked
from bindscope.studies.binding_information.fit import fit_row, run_fit
from bindscope.studies.binding_information.names import ARRAYS
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.registry import known_families
from bindscope.tables.flags import flag_list, flag_text

FEWEST_SCENES = 50
_VIEW = "bindscope.studies.binding_information.result_view:VIEW"
_SCENES_AT_ONCE = 512  # of patch tokens on disk


def binding_information(
    Z: Any,
    objects: Any,
    *,
    space: Mapping[str, Any] | ConfigModel | Sequence[int] | None = None,
    probes: Sequence[str | Mapping[str, Any] | AnyProbe] = ("linear", "set"),
    images: Any = None,
    scenes: Any = None,
    groups: Any = None,
    split: Any = None,
    control: Literal["shuffled_labels"] | None = None,
    random_state: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Result:
    """Measure how many bits about objects, and their pairing of features, a representation holds.

    Parameters
    ----------
    Z
        Floats (N, d), a vector per scene, or (N, T, d), its patch tokens, of any framework or on
        disk (memory-mapped, Zarr, HDF5); or ``{layer: array}``.
    objects
        A DataFrame with a row per object: `scene` (row of `Z`), then a column per feature group; or
        codes of 0 and 1 (N, K), the last group varying fastest, or (N, size of group 1, ...).
    space
        The scene distribution, a `space` section of the configuration (docs/arrays.md). Nothing, or
        the groups' sizes: the prior is estimated (flag `assumed_prior`).
    probes
        Families, or probes as in the configuration (``{"family": "quadratic", "rank": 8}``).
    images
        The scenes' images, uint8 (N, H, W, 3), whose baselines are then measured (docs/arrays.md).
    scenes
        Names (N,) of the rows of `Z`, if `scene` of `objects` has names.
    groups
        Labels (N,) of near-duplicates, which are split (70, 10, 20 %) and resampled together.
    split
        ``"train"``, ``"val"`` or ``"test"`` for each scene (N,), in place of a random split.
    control
        ``"shuffled_labels"``: the labels of scenes are shuffled, a negative control.
    random_state
        Seed of the split and of the probes.
    device
        Where probes that are named by their family are fitted.

    Returns
    -------
    Result
        A row per layer, token input and probe, and one of the `best`; bits (docs/tables.md).

    Raises
    ------
    InputError
        If inputs do not fit together or to the space, or no probe can read `Z`.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("matching", n=400)
    >>> bs.binding_information(data.arrays, data.objects, space=data.space).best["layer"]
    'pairs'
    """
    if control not in (None, "shuffled_labels"):
        raise InputError(WHERE, f"there is no control {control!r}", 'give "shuffled_labels"')
    chosen = [read_probe(entry, known_families(), AnyProbe, device, WHERE) for entry in probes]
    of_model = read_layers(Z, WHERE, "Z", centered=True)
    n_scenes = next(iter(of_model.values())).shape[0]
    rows = train_val_test(n_scenes, split, groups, random_state, WHERE, FEWEST_SCENES)
    layers = of_model | _baselines(images, of_model, n_scenes)
    labels = checked(read_labels(objects, space, rows, notes_of_layers(layers), scenes, groups))
    labels = _without_near_duplicates(labels, of_model)
    return _measured(chosen, layers, labels, random_state, control or "none")


def _baselines(
    images: Any, layers: Mapping[str, Representation], n_scenes: int
) -> dict[str, Representation]:
    """Return the baselines of the images, if any, by the layer that they stand in."""
    if reserved := [layer for layer in layers if layer.startswith(PREFIX)]:
        raise InputError(
            WHERE,
            f"a layer of `Z` is called {reserved[0]!r}",
            "call it otherwise: baselines of `images` have such names",
        )
    return {} if images is None else read_baselines(images, n_scenes, WHERE)


def _without_near_duplicates(
    labels: ArrayLabels, layers: Mapping[str, Representation]
) -> ArrayLabels:
    """Flag all rows if test scenes have near-duplicates in train, unless there are groups."""
    if labels.groups is not None:
        return labels
    if not (note := near_duplicate_note(layers, labels.objects, labels.rows)):
        return labels
    note += " No number is a bound (flag near_duplicates)."
    return replace(labels, notes=(note, *labels.notes), flags=("near_duplicates",))


def _measured(
    probes: Sequence[AnyProbe],
    layers: Mapping[str, Representation],
    labels: ArrayLabels,
    random_state: int,
    control: str,
) -> Result:
    """Fit every probe on every token input of every layer that it reads."""
    tasks = [
        (probe, layer, tokens)
        for layer, z in layers.items()
        for probe in probes
        if (tokens := _token_input(probe, z))
    ]
    used = {probe.name for probe, *_ in tasks}
    unused = dict.fromkeys(probe.name for probe in probes if probe.name not in used)
    notes = tuple(f"{name} was not fitted: it reads patch tokens (N, T, d)." for name in unused)
    if layers.keys() - {layer for _, layer, _ in tasks}:
        notes += ('Baselines were not fitted: they are vectors, add "linear" to `probes`.',)
    if not tasks:
        shapes = ", ".join(str(z.shape) for z in layers.values())
        raise InputError(
            WHERE,
            f"no probe can read `Z` {shapes}. {' '.join(notes)}",
            'give patch tokens (N, T, d), or add "linear" to `probes`',
        )
    inputs: dict[tuple[str, str], ProbeData] = {}
    rows = []
    for probe, layer, tokens in progress_bar(tasks, "fits"):
        if (layer, tokens) not in inputs:
            inputs = {(layer, tokens): _probe_data(labels, layers[layer], tokens)}
        data = inputs[layer, tokens]
        rows.append(_fitted(probe, data, labels, (layer, tokens), random_state, control))
    parts = [row.pop("parts") for row in rows]
    absent = {column.name: None for column in BINDING_COLUMNS}
    rows = [{**absent, **row} for row in rows]
    rows += best_rows(rows, parts, {ARRAYS: labels.prior.get("counts_reason")})
    return Result({"binding_information": tuple(rows)}, _VIEW, (*labels.notes, *notes))


def _fitted(
    probe: AnyProbe,
    data: ProbeData,
    labels: ArrayLabels,
    place: tuple[str, str],
    random_state: int,
    control: str,
) -> dict[str, Any]:
    """Fit one probe and make its row."""
    layer, tokens = place
    names = {
        "dataset": ARRAYS,
        "model": ARRAYS,
        "layer": layer,
        "tokens": tokens,
        "probe": probe.name,
        "control": control,
        "spec_key": "",
        "code_key": "",
    }
    with on_threads(probe.threads):
        (result,) = run_fit(probe, data, [random_state], control)
    row = fit_row(result, data, labels.prior, names, probe, Information())
    assumed = ("assumed_prior",) if labels.prior["method"] != "exact" else ()
    row["flags"] = flag_text([*flag_list(row["flags"]), *labels.flags, *assumed])
    return row


def _token_input(probe: AnyProbe, z: Representation) -> str:
    """Return the token input that a probe reads; "" if there is none."""
    if probe.patches:
        return "patches" if len(z.shape) == 3 else ""
    return "vectors" if len(z.shape) == 2 else "mean"


def _probe_data(labels: ArrayLabels, z: Representation, tokens: str) -> ProbeData:
    """Combine one token input and the labels, split by split."""
    splits = {
        name: SplitData(
            _token_rows(z, index, tokens),
            labels.objects[index],
            labels.features[index],
            labels.anchors[name],
            None if labels.groups is None else labels.groups[index],
        )
        for name, index in labels.rows.items()
    }
    return ProbeData(**splits, sizes=labels.sizes)


def _token_rows(z: Representation, index: Integers, tokens: str) -> Any:
    if tokens != "mean":
        return z.take(index)
    rows, n = as_rows(z.take(index)), len(index)
    starts = range(0, n, _SCENES_AT_ONCE)
    blocks = (rows.read(start, min(start + _SCENES_AT_ONCE, n)) for start in starts)
    return np.concatenate([block.mean(axis=1, dtype=np.float32) for block in blocks])
