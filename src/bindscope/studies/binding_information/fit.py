"""One fit job: read representation, codes and anchors, fit, write rows and what stands beside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from bindscope.activations.reader import Activations, RowReader
from bindscope.core.array_types import Array
from bindscope.core.devices import hold_device, make_current
from bindscope.core.files import canonical_json, write_atomic, write_json
from bindscope.core.splits import SPLITS
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.rows import Rows, whole
from bindscope.priors.labels import DatasetLabels
from bindscope.studies.binding_information.config import AnyProbe, Information
from bindscope.studies.binding_information.estimates import estimate
from bindscope.studies.binding_information.probes.base import FitResult
from bindscope.studies.binding_information.probes.data import (
    ProbeData,
    SplitData,
    anchors_of,
)
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.weights import to_safetensors
from bindscope.studies.binding_information.quantities import PARTS, WHOLE
from bindscope.studies.binding_information.sharing_cost import to_arrays
from bindscope.tables.numbers import at_least, number

log = logging.getLogger(__name__)


def load_data(
    labels: DatasetLabels,
    index: str | None,
    representation: Mapping[str, Any],
    sizes: Sequence[int],
) -> ProbeData:
    """Open what one fit needs; labels and activations are read when the fit asks for them.

    `index` is that of the activations, None for a null probe. The representation says tokens and
    layer; tokens ``null`` is z = 0, as one patch token where ``patches`` is true.
    """
    tokens = representation["tokens"]
    activations = Activations(index) if index else None
    splits = {}
    for name in SPLITS:
        codes, anchors = [labels.codes(name)], [labels.anchors(name)]
        objects, features = (RowReader(codes, [array]) for array in ("objects", "features"))
        zeros = np.zeros((objects.shape[0], 1), np.float32)
        z: Array | Rows = zeros
        cls: Array | Rows | None = None
        if tokens == "null" and representation["patches"]:
            z, cls = zeros[:, None], zeros
        elif activations and tokens == "patches":
            z = patches = activations.patches(name)
            cls = patches.cls()
        elif activations:
            z = activations.vectors(name, tokens, representation["layer"])
        chosen = anchors_of(anchors[0].manifest.arrays)
        prior = {anchor: RowReader(anchors, [anchor]) for anchor in chosen}
        splits[name] = SplitData(z, objects, features, prior, cls=cls)
    return ProbeData(splits["train"], splits["val"], splits["test"], tuple(sizes))


def run_fit(
    probe: AnyProbe,
    data: ProbeData,
    seeds: Sequence[int],
    control: str,
    checkpoints: Checkpoints | None = None,
) -> list[FitResult]:
    """Fit all seeds of a block, on shuffled labels if configured, on a device of this job's own."""
    with hold_device(probe.device) as device, make_current(device):
        if control == "shuffled_labels":
            return [
                fit(probe, data.shuffled_labels(seed), [seed], checkpoints)[0] for seed in seeds
            ]
        return fit(probe, data, seeds, checkpoints)


def fit_row(
    result: FitResult,
    data: ProbeData,
    prior: Mapping[str, Any],
    names: Mapping[str, Any],
    probe: AnyProbe,
    information: Information,
    *,
    disjoint: bool = False,
) -> dict[str, Any]:
    """Make the row of one seed of a fit; parameters are those of `write_fit`."""
    # Memory is a matter of the job where a few numbers a scene are read, as threads are.
    about_the_job = {"name", "protocol", "threads", "device"}
    about_the_job |= set() if data.patches else {"memory_mb"}
    options = probe.model_dump(mode="json", exclude=about_the_job)
    counts = {f"n_{name}": split.n_scenes for name, split in data.splits.items()}
    shuffled = names.get("control") == "shuffled_labels"
    # Intervals are over the feature codes that the probe was tested on.
    test = data.shuffled_labels(result.seed).test if shuffled else data.test
    row = estimate(
        result,
        prior,
        test.objects,
        whole(test.features),
        information,
        disjoint=disjoint,
        nothing_to_learn=shuffled,
        groups=data.test.groups,
    )
    return {
        **names,
        "seed": result.seed,
        **counts,
        "protocol": probe.protocol,
        "options": canonical_json(options),
        **row,
    }


def write_fit(
    output: Any,
    results: Sequence[FitResult],
    data: ProbeData,
    prior: Mapping[str, Any],
    names: Mapping[str, Any],
    probe: AnyProbe,
    information: Information,
    disjoint: bool,
) -> None:
    """Write rows (one per seed), weights, histories; losses per object and feature, and per scene.

    `prior` is the test split's row of the priors, `names` the columns that the job knows. Where
    splits share no feature code (`disjoint`), the bootstrap resamples feature codes.
    """
    rows, details = [], {}
    for result in results:
        row = fit_row(result, data, prior, names, probe, information, disjoint=disjoint)
        rows.append(row)
        log.info("seed %d: %s", result.seed, _summary(row))
        for target, losses in result.head_losses.items():
            details[f"{result.seed}.{target}_loss_bits"] = losses
        for target, losses in result.anchor_head_losses.items():
            details[f"{result.seed}.{target}_prior_bits"] = losses
    if names.get("control") != "shuffled_labels":
        features = whole(data.test.features)
        of_scenes = {r.seed: r.losses["object"] for r in results if "object" in r.losses}
        details |= to_arrays(of_scenes, features, disjoint)
    write_atomic(output.weights, to_safetensors(results))
    write_json(output.history, [line for result in results for line in result.history])
    write_atomic(output.details, save(details))
    write_atomic(Path(output.rows), "".join(canonical_json(row) + "\n" for row in rows))


def _summary(row: Mapping[str, Any]) -> str:
    """Return a line of the log: bounds, entropies, flags."""
    parts = [
        f"{q.symbol} >= {at_least(row[q.value])} of {number(row[q.entropy])} bits"
        for q in (WHOLE, *PARTS)
        if row[q.value] is not None
    ]
    return ", ".join([*parts, *filter(None, [row["flags"], row["reason"]])])
