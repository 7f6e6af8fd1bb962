"""Pairs of patches of one object in arrays, the study's public function.

The same steps as the pipeline's: patches are drawn by `patch_samples.sample`, probes are fitted by
`fit.fit_rows`, which the fit's job calls too, and compared by `leads.add_leads`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from bindscope.arrays.inputs import (
    Representation,
    on_threads,
    read_layers,
    read_probe,
    train_val_test,
)
from bindscope.arrays.result import Result
from bindscope.core.devices import hold_device, make_current
from bindscope.core.errors import InputError
from bindscope.core.progress import progress_bar
from bindscope.studies.same_object.array_samples import (
    WHERE,
    ArraySamples,
    draw_samples,
    read_labels,
)
from bindscope.studies.same_object.config import Intervals, PatchSampling
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.fit import ProbeResult, fit_rows
from bindscope.studies.same_object.leads import add_leads
from bindscope.studies.same_object.probes_config import FAMILIES, AnyScorer
from bindscope.studies.same_object.quantities import ARRAYS, NO_MODEL, WITHOUT_MODEL

FEWEST_SCENES: Final = 30
USUAL: Final = ("quadratic", "class_position", "position")
_NEED_CLASSES: Final = ("class_pointwise", "class_position")
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
) -> Result:  # fmt: skip
    """Measure how well patch tokens predict whether two patches show the same object.

    Parameters
    ----------
    patches
        Patch tokens (N, T, d), row by row, without [CLS] and registers; or ``{layer: array}``.
        NumPy, torch, what `numpy.asarray` reads; memory-mapped, Zarr and HDF5 are read in parts.
    segments
        Ids of objects per patch, integers (N, T), or masks (N, H, W), of which a patch shows the
        object with most of its pixels; (N, rows, columns) for grids that are not square. 0: none.
    classes
        A DataFrame with a row per object: `scene`, `segment` and `class`; or integers above 0: per
        patch, (N, T), or per object, (N, objects), in the order of ids from 1 on.
    probes
        Families, or probes as in the configuration (``{"family": "quadratic", "ranks": [8]}``).
    groups, split
        Labels (N,) of near-duplicates, which stay on one side of the split (70, 10 and 20 %); or
        `train`, `val` or `test` for each scene (N,).
    random_state, device
        Seed of the split, of the patches that are drawn (64 a scene) and of the probes; where
        probes named by their family are fitted.

    Returns
    -------
    Result
        A row per layer and probe, with the columns of docs/tables.md; shares of test pairs.

    Raises
    ------
    InputError
        If inputs do not fit together, or a part of the split has no pair.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("clutter", n=100)
    >>> result = bs.same_object(data.arrays, data.segments, probes=["quadratic", "position"])
    >>> result.best["layer"]
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
    return Result(_without_classes(rows) if classes is None else rows, _VIEW, notes)


def _read(patches: Any) -> tuple[dict[str, Representation], int, int]:
    """Return tokens by layer, and their numbers of scenes and patches, the same in all layers."""
    layers = read_layers(patches, WHERE, "patches", axes=(3,))
    n, n_patches, _ = next(iter(layers.values())).shape
    for layer, tokens in layers.items():
        if tokens.shape[1] != n_patches:
            raise InputError(
                WHERE, f"layer {layer!r} has {tokens.shape[1]} patches, and others {n_patches}",
                "give layers of one patch grid in a call",
            )  # fmt: skip
    return layers, n, n_patches


def _measured(
    probes: Sequence[AnyScorer],
    layers: Mapping[str, Representation],
    samples: ArraySamples,
    random_state: int,
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Fit every probe to every layer, those that read no token once; compare them."""
    tasks = [(probe, layer) for layer in layers for probe in probes
             if probe.family not in WITHOUT_MODEL]  # fmt: skip
    tasks += [(probe, NO_MODEL) for probe in probes if probe.family in WITHOUT_MODEL]
    if not tasks:
        raise InputError(WHERE, "there is no probe to fit", 'add "quadratic" to `probes`')
    intervals = Intervals().model_dump()
    n_skipped = samples.skipped["test"].total()
    results: list[ProbeResult] = []
    read: tuple[str, Mapping[str, PairData]] = NO_MODEL, samples.data
    for probe, layer in progress_bar(tasks, "fits"):
        if layer != read[0]:
            read = layer, samples.data if layer == NO_MODEL else samples.with_tokens(layers[layer])
        model = NO_MODEL if layer == NO_MODEL else ARRAYS
        names = {
            "dataset": ARRAYS, "model": model, "layer": layer, "probe": probe.name, "spec_key": "",
            "code_key": "",
        }  # fmt: skip
        with on_threads(probe.threads), hold_device(probe.device) as device, make_current(device):
            results += fit_rows(probe, read[1], names, n_skipped, seeds=[random_state], **intervals)
    for result in results:
        result.row["n_layers"] = None
    counted = [(result.row, result.of_images.astype(np.float64)) for result in results]
    add_leads(counted, intervals["bootstrap_samples"], intervals["bootstrap_seed"])
    strata = tuple(row for result in results for row in result.strata)
    return {"same_object": tuple(result.row for result in results), "same_object_strata": strata}


def _without_classes(
    rows: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Leave out what is said of classes."""
    return {
        "same_object": tuple({**row, "class_oracle_accuracy": None} for row in rows["same_object"]),
        "same_object_strata": tuple(
            row for row in rows["same_object_strata"] if row["same_class"] == "all"
        ),
    }


def _notes(
    samples: ArraySamples, n_patches: int, unused: Sequence[str], groups: Any
) -> tuple[str, ...]:
    """Say what was left out, and why."""
    notes = [f"{name} was not fitted: it needs `classes`." for name in unused]
    skipped = sum(samples.skipped.values(), Counter[str]())
    if skipped:
        reasons = ", ".join(f"{reason} ({n})" for reason, n in skipped.most_common())
        notes.append(f"{skipped.total()} scenes were left out: {reasons}.")
    most = max(int((patches >= 0).sum(1).max()) for patches in samples.patches.values())
    if most < n_patches:
        notes.append(
            f"At most {most} of the {n_patches} patches of a scene are in pairs: drawn, and most "
            "of their pixels of one object."
        )
    if groups is not None:
        notes.append("Intervals resample scenes, not groups: they may be too narrow.")
    return tuple(notes)
