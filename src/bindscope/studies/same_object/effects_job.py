"""One job: what a fitted probe reads of one layer is edited, and the effects are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.config.models import Controlled, Zoo
from bindscope.core.errors import ModelError, StoreError
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model
from bindscope.models.pretraining_loss import load
from bindscope.studies.same_object.effects import Measuring, Scenes, Unedited
from bindscope.studies.same_object.effects_loss import pretraining_losses
from bindscope.studies.same_object.effects_rows import ablation_rows, attention_rows, loss_columns
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.marks import weights_name
from bindscope.studies.same_object.subspace import (
    Editor,
    Intervention,
    directions,
    order_of_patches,
    orthonormal,
    random_basis,
    variance_basis,
)

SEED = 0  # of fits that have none
Rows = list[dict[str, Any]]
Weights = Mapping[str, NDArray[Any]]


def interventions(effects: Mapping[str, Any]) -> list[Intervention]:
    """Return the edits that a configuration asks for, those of the probe's subspace first."""
    found = []
    for subspace in ("probe", *effects["controls"]):
        if subspace != "mean":
            found += [Intervention("shuffle", share, subspace) for share in effects["shuffle"]]
            found += [Intervention("inject", 1 - alpha, subspace) for alpha in effects["inject"]]
        found.append(Intervention("remove", 1.0, subspace))
    return found


def fit_name(weights: Weights, layer: int) -> str:
    """Return what the fit of a layer is called in its file; of several ranks the largest."""
    prefix = f"{layer}/{SEED}/"
    ranks = {int(key[len(prefix) :].partition(".")[0]) for key in weights if key.startswith(prefix)}
    if not ranks:
        raise StoreError(
            f"weights of layer {layer}", "are not in the file of the fit",
            "run snakemake again, which fits the probe to that layer",
        )  # fmt: skip
    return weights_name(str(layer), SEED, max(ranks))


def editor_of(
    weights: Weights, layer: int, found: Unedited, scenes: Scenes, effects: Mapping[str, Any]
) -> Editor:
    """Return the editor of a layer: the probe's subspace, and the controls'."""
    name = fit_name(weights, layer)
    basis = orthonormal(directions(weights, name, effects["directions"]))
    dim, k = basis.shape
    n, patches = scenes.instances.shape
    return Editor(
        {
            "probe": basis,
            "random": random_basis(dim, k, effects["seed"]),
            "variance": variance_basis(found.covariance, k),
        },
        FittedScorer.read(weights, name).mean,
        order_of_patches(n, patches, effects["seed"]),
        scenes.instances,
    )


def measured(
    config: Any, files: Any, spec: Mapping[str, Any], device: torch.device | str
) -> tuple[Rows, Rows]:
    """Measure one layer of a model.

    Parameters
    ----------
    config
        The model's configuration.
    files
        Paths `scenes`, `samples`, `fit_weights`, `weights` and, for a model that may have a loss of
        its own, `codes`.
    spec
        The job's `layer`, `later`, `effects`, `n_scenes`, `background` and `intervals`.
    device
        Where it is computed.

    Returns
    -------
    Rows of edits, and rows of attention.
    """
    scenes, grid = read_scenes(files, spec)
    fits: dict[str, NDArray[Any]] = {}
    for path in files.fit_weights:
        fits |= load_file(path)
    measuring = _measuring(config, files, spec, scenes, fits, device)
    plain = measuring.unedited()
    editor = editor_of(fits, spec["layer"], plain, scenes, spec["effects"])
    edits = interventions(spec["effects"])
    seen = measuring.under(editor, edits)
    resamples = spec["intervals"]["bootstrap_samples"], spec["intervals"]["bootstrap_seed"]
    rows = ablation_rows(
        scenes.labels, measuring.recorded(plain.logits),
        {what: measuring.recorded(kept.logits) for what, kept in seen.items()}, seen,
        plain.shares[-1], *resamples,
    )  # fmt: skip
    losses = _losses(config, files, spec, scenes, device, editor, edits)
    later = None if spec["later"] is None else str(spec["later"])
    about = {"grid": "x".join(map(str, grid)), "later_layer": later}
    for row, what in zip(rows, [None, *edits], strict=True):
        row |= loss_columns(losses, what) | about
        row["directions"] = 0 if what is None else editor.bases["probe"].shape[1]
    of_attention = attention_rows(plain, *resamples)
    return rows, [row | {"grid": about["grid"]} for row in of_attention]


def read_scenes(files: Any, spec: Mapping[str, Any]) -> tuple[Scenes, tuple[int, int]]:
    """Return the scenes that are used with their sampled patches, and the patch grid."""
    sample, part = open_store(files.samples[0]), slice(0, spec["n_scenes"])
    arrays = {name: sample.read(name, part) for name in ("patches", "instances", "classes")}
    rows, columns = map(int, sample.attributes["grid"])
    stores = [open_store(path) for path in files.scenes]
    return Scenes.of(stores, arrays, (rows, columns), spec["background"]), (rows, columns)


def _measuring(
    config: Any,
    files: Any,
    spec: Mapping[str, Any],
    scenes: Scenes,
    fits: Weights,
    device: torch.device | str,
) -> Measuring:
    own = next(iter(files.weights), None)
    size_px = scenes.stores[0].layout("images").shape[1]
    layers = [layer for layer in (spec["layer"], spec["later"]) if layer is not None]
    measuring = Measuring(
        load_model(config, own and Path(own), device, size_px),
        spec["layer"],
        {layer: FittedScorer.read(fits, fit_name(fits, layer)) for layer in layers},
        scenes,
        getattr(torch, config.extraction.dtype),
        f"{config.name} ({config.source})",
        device,
    )
    found, wanted = measuring.tokens.grid, scenes.labels.grid
    if found != wanted:
        raise ModelError(
            measuring.where,
            f"has {found[0]} x {found[1]} patches in layer {spec['layer']}, and the sampled ones "
            f"are of a grid of {wanted[0]} x {wanted[1]}",
            "edit layers whose patches are those of the sample",
        )
    return measuring


def _losses(
    config: Any,
    files: Any,
    spec: Mapping[str, Any],
    scenes: Scenes,
    device: torch.device | str,
    editor: Editor,
    edits: Sequence[Intervention],
) -> Mapping[Intervention | None, NDArray[np.float64]] | str:
    """Return the model's own loss under each edit, or why it has none."""
    if not isinstance(config, Controlled | Zoo):
        return "its pretraining heads are not at hand"
    own = next(iter(files.weights), None)
    try:
        evaluation = load(config, own and Path(own), device)
    except ModelError as error:
        return error.problem
    codes = open_store(files.codes[0]).read("objects", slice(0, len(scenes)))
    return pretraining_losses(
        evaluation, scenes.images(), codes, spec["layer"], editor, edits, scenes.labels.grid
    )


def write_effects(output: Any, found: tuple[Rows, Rows], names: Mapping[str, Any]) -> None:
    """Write rows of edits and of attention, with the columns that the job knows."""
    for path, rows in zip((output.ablation, output.attention), found, strict=True):
        write_atomic(path, "".join(canonical_json({**row, **names}) + "\n" for row in rows))
