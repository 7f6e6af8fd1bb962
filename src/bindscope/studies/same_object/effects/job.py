"""One job: what a fitted probe reads of one layer is edited, and the effects are measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.numpy import load_file
from torch import Tensor

from bindscope.config.models import Controlled, Zoo
from bindscope.config.zoo import read_manifest
from bindscope.core.errors import ModelError, StoreError
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model
from bindscope.models.pretraining_loss import load
from bindscope.studies.same_object.data import Background
from bindscope.studies.same_object.effects.losses import Losses, pretraining_losses
from bindscope.studies.same_object.effects.passes import Measuring, Scenes, Unedited
from bindscope.studies.same_object.effects.rows import (
    PLAIN,
    Edited,
    ablation_rows,
    attention_rows,
    edit_names,
    loss_rows,
    refitted_rows,
    strongest,
)
from bindscope.studies.same_object.estimates import Bootstrap, row
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.marks import CONTROLS, JUDGED, weights_name
from bindscope.studies.same_object.probes_config import AnyScorer
from bindscope.studies.same_object.subspace import (
    Editor,
    Intervention,
    directions,
    matched_basis,
    order_of_patches,
    orthonormal,
    outside,
    overlap,
    random_basis,
    variance_basis,
)

SEED = 0  # of fits that have none
Rows = list[dict[str, Any]]
Weights = Mapping[str, NDArray[Any]]


def interventions(effects: Mapping[str, Any]) -> list[Intervention]:
    """Return the edits that a configuration asks for, and those that claims are about."""
    shares, alphas = sorted({*effects["shuffle"], 1.0}), sorted({*effects["inject"], 0.0})
    found = []
    for subspace in ("probe", JUDGED, *CONTROLS):
        if subspace != "mean":
            found += [Intervention("shuffle", share, subspace) for share in shares]
            found += [Intervention("inject", 1 - alpha, subspace) for alpha in reversed(alphas)]
            found += [Intervention("weights", 1.0, subspace)] if effects["weights"] else []
        found.append(Intervention("remove", 1.0, subspace))
    return found


def fit_name(weights: Weights, layer: int) -> str:
    """Return what the fit of a layer is called in its file."""
    name = weights_name(str(layer), SEED, 0)
    if not any(key.startswith(f"{name}.") for key in weights):
        raise StoreError(
            f"weights of layer {layer}", "are not in the file of the fit",
            "run snakemake again, which fits the probe to that layer",
        )  # fmt: skip
    return name


def editor_of(
    weights: Weights, layer: int, found: Unedited, scenes: Scenes, effects: Mapping[str, Any]
) -> Editor:
    """Return the editor of a layer: the probe's subspace, the judged part of it, and controls."""
    name, seed = fit_name(weights, layer), effects["seed"]
    probe = orthonormal(directions(weights, name, effects["directions"]))
    judged = outside(probe, (found.classes, found.positions))
    dim, k = judged.shape
    bases = {
        "probe": probe,
        JUDGED: judged,
        "random": random_basis(dim, k, seed),
        "matched": matched_basis(found.covariance, judged, seed),
        "variance": variance_basis(found.covariance, k),
    }
    mean = FittedScorer.read(weights, name).mean
    return Editor(bases, mean, _order(scenes, seed), scenes.instances)


def _order(scenes: Scenes, seed: int) -> Tensor:
    n, patches = scenes.instances.shape
    return order_of_patches(n, patches, seed)


def measured(config: Any, files: Any, spec: Mapping[str, Any], device: torch.device | str) -> Rows:
    """Measure one layer of a model.

    Parameters
    ----------
    config
        The model's configuration.
    files
        Paths `scenes`, `samples`, `fit` (rows), `fit_weights`, `weights`; for a model that may have
        a loss of its own `codes`, and `heads` where these were fitted again; scenes and samples of
        train and val (`train_scenes`, ...) where probes are fitted again.
    spec
        The job's `layer`, `later`, `effects`, `retrained`, `n_scenes`, `background` and
        `intervals`.
    device
        Where it is computed.
    """
    scenes, _ = read_scenes(files.scenes, files.samples[0], spec["n_scenes"], spec["background"])
    fits: dict[str, NDArray[Any]] = {}
    for path in files.fit_weights:
        fits |= load_file(path)
    measuring = _measuring(config, files, spec, scenes, fits, device)
    splits, plain = _splits(files, spec, measuring, fits)
    edits = interventions(spec["effects"])
    losses = _losses(config, files, spec, device, splits["test"], edits)
    about = [row("val_loss_bits", validation_loss(files, spec))]
    if not isinstance(losses, str):
        about += heads_rows(config, files)
    return [
        *(PLAIN | one for one in about),
        *measured_edits(splits, plain, edits, losses, spec),
    ]


def measured_edits(
    splits: Mapping[str, Edited],
    plain: Unedited,
    edits: Sequence[Intervention],
    losses: Losses | str,
    spec: Mapping[str, Any],
) -> Rows:
    """Return the rows about edits of one layer, without what the job knows from its files.

    Parameters
    ----------
    splits
        Scenes with their editors; train and val where probes are fitted again.
    plain
        What was measured of the test scenes as they are.
    edits, losses
        What is done, and the model's own loss under it, or why it has none.
    spec
        The job's `intervals` and `retrained`.
    """
    by = Bootstrap(spec["intervals"]["bootstrap_samples"], spec["intervals"]["bootstrap_seed"])
    measuring, editor = splits["test"].measuring, splits["test"].editor
    rows = ablation_rows(measuring.scenes.labels, measuring.under(editor, edits), by)
    rows += attention_rows(plain, by) + loss_rows(losses)
    for what in edits:
        rows += [edit_names(what) | one for one in _overlaps(editor, plain, what)]
    if asked := spec["retrained"]:
        probes = [TypeAdapter(AnyScorer).validate_python(one) for one in asked["probes"]]
        rows += refitted_rows(splits, strongest(edits, asked["edits"]), probes, by)
    return rows


def _overlaps(editor: Editor, plain: Unedited, what: Intervention) -> Rows:
    """Return how many directions an edit has, and what of them is of class and position."""
    if what.subspace not in editor.bases:
        return []
    basis, judged = editor.bases[what.subspace], editor.bases[JUDGED]
    found = {"directions": float(basis.shape[1])}
    if basis.shape[1]:
        found["class_overlap"] = overlap(basis, plain.classes)
        found["position_overlap"] = overlap(basis, plain.positions)
    if judged.shape[1]:
        found["overlap"] = overlap(judged, basis)
    return [row(name, value) for name, value in found.items()]


def validation_loss(files: Any, spec: Mapping[str, Any]) -> float:
    """Return the validation loss of the probe of the layer, from the row of its fit."""
    rows = [json.loads(line) for path in files.fit for line in Path(path).read_text().splitlines()]
    where = (str(spec["layer"]), SEED, 0)
    (row,) = [row for row in rows if (row["layer"], row["seed"], int(row["rank"])) == where]
    return float(row["val_loss_bits"])


def read_scenes(
    stores: Sequence[str], samples: str, n_scenes: int, background: Background
) -> tuple[Scenes, tuple[int, int]]:
    """Return the scenes that are used with their sampled patches, and the patch grid."""
    sample, part = open_store(samples), slice(0, n_scenes)
    arrays = {name: sample.read(name, part) for name in ("patches", "instances", "classes")}
    rows, columns = map(int, sample.attributes["grid"])
    opened = [open_store(path) for path in stores]
    return Scenes.of(opened, arrays, (rows, columns), background), (rows, columns)


def _splits(
    files: Any, spec: Mapping[str, Any], measuring: Measuring, fits: Weights
) -> tuple[dict[str, Edited], Unedited]:
    """Return the scenes of the splits, and what was measured of those of test as they are."""
    plain = measuring.unedited()
    editor = editor_of(fits, spec["layer"], plain, measuring.scenes, spec["effects"])
    splits = {"test": Edited(measuring, editor)}
    for split in ("train", "val"):
        stores, samples = (getattr(files, f"{split}_{role}") for role in ("scenes", "samples"))
        n_scenes = spec["retrained"][split]
        scenes, _ = read_scenes(stores, samples[0], n_scenes, spec["background"])
        order = _order(scenes, spec["effects"]["seed"])
        splits[split] = Edited(
            replace(measuring, scenes=scenes),
            replace(editor, order=order, instances=scenes.instances),
        )
    return splits, plain


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
    device: torch.device | str,
    test: Edited,
    edits: Sequence[Intervention],
) -> Losses | str:
    """Return the model's own loss under each edit, or why it has none."""
    if not isinstance(config, Controlled | Zoo):
        return "its pretraining heads are not available"
    weights, heads = (next(iter(paths), None) for paths in (files.weights, files.heads))
    try:
        evaluation = load(config, weights and Path(weights), device, heads and Path(heads))
    except ModelError as error:
        return error.problem
    scenes = test.measuring.scenes
    objects = open_store(files.codes[0]).read("objects", slice(0, len(scenes)))
    return pretraining_losses(
        evaluation, scenes.images(), objects, spec["layer"], test.editor, edits, scenes.labels.grid
    )


def heads_rows(config: Any, files: Any) -> Rows:
    """Return what is lost by heads behind a loss that were fitted again; nothing of those kept."""
    if not files.heads:
        return []
    history = json.loads(Path(files.heads_history[0]).read_text())
    refitted = [entry["loss_bits"] for entry in history if entry["split"] == "val"][-1]
    trained = read_manifest(config.source)["val_loss_bits"]
    return [row("refitted_loss_bits", refitted), row("trained_loss_bits", trained)]
