"""One job: what a fitted probe reads of one layer is edited, and the effects are measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.numpy import load_file
from torch import Tensor

from bindscope.config.models import Controlled, Zoo
from bindscope.config.zoo import read_manifest
from bindscope.core.errors import ModelError, StoreError
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.store.reader import open_store
from bindscope.models.loading import load_model
from bindscope.models.pretraining_loss import load
from bindscope.studies.same_object.data import Background
from bindscope.studies.same_object.effects import Measuring, Scenes, Unedited
from bindscope.studies.same_object.effects_loss import (
    Losses,
    Part,
    pretraining_losses,
    refitted_losses,
)
from bindscope.studies.same_object.effects_retrained import (
    Edited,
    retrained_rows,
    strongest,
    with_old_reader,
)
from bindscope.studies.same_object.effects_rows import (
    ablation_rows,
    attention_rows,
    loss_columns,
    losses_compared,
)
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.marks import weights_name
from bindscope.studies.same_object.probes_config import AnyScorer
from bindscope.studies.same_object.subspace import (
    Editor,
    Intervention,
    directions,
    matched_basis,
    order_of_patches,
    orthonormal,
    overlap,
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
            found += [Intervention("weights", 1.0, subspace)] if effects["weights"] else []
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
    bases = {
        "probe": basis,
        "random": random_basis(dim, k, effects["seed"]),
        "matched": matched_basis(found.covariance, basis, effects["seed"]),
        "variance": variance_basis(found.covariance, k),
    }
    mean = FittedScorer.read(weights, name).mean
    return Editor(bases, mean, _order(scenes, effects["seed"]), scenes.instances)


def _order(scenes: Scenes, seed: int) -> Tensor:
    n, patches = scenes.instances.shape
    return order_of_patches(n, patches, seed)


class Measured(NamedTuple):
    """Rows of the three tables of a job; `retrained` is empty where nothing is fitted again."""

    ablation: Rows
    attention: Rows
    retrained: Rows


def measured(
    config: Any, files: Any, spec: Mapping[str, Any], device: torch.device | str
) -> Measured:
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
    scenes, grid = read_scenes(files.scenes, files.samples[0], spec["n_scenes"], spec["background"])
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
    splits = _splits(files, spec, measuring, editor)
    losses, again = _losses(config, files, spec, device, splits, edits)
    heads = {} if isinstance(losses, str) else heads_columns(config, files)
    later = None if spec["later"] is None else str(spec["later"])
    about = {"grid": "x".join(map(str, grid)), "val_loss_bits": validation_loss(files, spec)}
    for row, what in zip(rows, [None, *edits], strict=True):
        row |= loss_columns(losses, what) | heads | about | {"later_layer": later}
        row |= losses_compared("own_heads_loss", again, what) if what in again else {}
        row["directions"] = 0 if what is None else editor.bases["probe"].shape[1]
        if what is not None and what.subspace in editor.bases:
            row["overlap"] = overlap(editor.bases["probe"], editor.bases[what.subspace])
    retrained = [row | about for row in _retrained(spec, splits, edits, rows)]
    of_attention = attention_rows(plain, *resamples)
    return Measured(rows, [row | about for row in of_attention], retrained)


def validation_loss(files: Any, spec: Mapping[str, Any]) -> float:
    """Return the validation loss of the probe of the layer, from the row of its fit."""
    rows = [json.loads(line) for path in files.fit for line in Path(path).read_text().splitlines()]
    here = [row for row in rows if (row["layer"], row["seed"]) == (str(spec["layer"]), SEED)]
    return float(max(here, key=lambda row: int(row["rank"]))["val_loss_bits"])


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
    files: Any, spec: Mapping[str, Any], measuring: Measuring, editor: Editor
) -> dict[str, Edited]:
    """Return the scenes of test and, where probes are fitted again, of train and validation."""
    asked = spec["retrained"]
    splits = {"test": Edited(measuring, editor)}
    for split in ("train", "val") if asked else ():
        stores, samples = (getattr(files, f"{split}_{role}") for role in ("scenes", "samples"))
        scenes, _ = read_scenes(stores, samples[0], asked[split], spec["background"])
        order = _order(scenes, spec["effects"]["seed"])
        splits[split] = Edited(
            replace(measuring, scenes=scenes),
            replace(editor, order=order, instances=scenes.instances),
        )
    return splits


def _retrained(
    spec: Mapping[str, Any], splits: Mapping[str, Edited], edits: Sequence[Intervention], rows: Rows
) -> Rows:
    """Fit probes again to edited tokens, where that is asked for."""
    asked = spec["retrained"]
    if asked is None:
        return []
    probes = [TypeAdapter(AnyScorer).validate_python(one) for one in asked["probes"]]
    resamples = spec["intervals"]["bootstrap_samples"], spec["intervals"]["bootstrap_seed"]
    found = retrained_rows(splits, strongest(edits, asked["edits"]), probes, *resamples)
    return with_old_reader(found, rows, spec["layer"], asked["old"])


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
    splits: Mapping[str, Edited],
    edits: Sequence[Intervention],
) -> tuple[Losses | str, Losses]:
    """Return the model's own loss under each edit, or why it has none; and with heads fitted on.

    The second is of the edits that `retrained` names, empty where it does not ask for it.
    """
    if not isinstance(config, Controlled | Zoo):
        return "its pretraining heads are not at hand", {}
    own, heads = (next(iter(paths), None) for paths in (files.weights, files.heads))
    try:
        evaluation = load(config, own and Path(own), device, heads and Path(heads))
    except ModelError as error:
        return error.problem, {}
    parts = [
        _part(splits[split], codes)
        for split, codes in zip(("test", "train"), files.codes)  # noqa: B905
    ]
    test, grid = parts[0], splits["test"].measuring.scenes.labels.grid
    found = pretraining_losses(
        evaluation, test.images, test.objects, spec["layer"], test.editor, edits, grid
    )
    asked = spec["retrained"]
    if isinstance(found, str) or asked is None or not asked["own_heads"]:
        return found, {}
    chosen = strongest(edits, asked["edits"])
    again = refitted_losses(evaluation, parts[1], test, spec["layer"], chosen, asked["own_heads"])
    return found, again


def _part(split: Edited, codes: str) -> Part:
    scenes = split.measuring.scenes
    objects = open_store(codes).read("objects", slice(0, len(scenes)))
    return Part(scenes.images(), objects, split.editor)


def heads_columns(config: Any, files: Any) -> dict[str, Any]:
    """Return whether the heads behind a loss were fitted again, and what that loses."""
    if not files.heads:
        return {"pretraining_heads": "kept"}
    history = json.loads(Path(files.heads_history[0]).read_text())
    return {
        "pretraining_heads": "refitted",
        "refitted_loss_bits": [e["loss_bits"] for e in history if e["split"] == "val"][-1],
        "trained_loss_bits": read_manifest(config.source)["val_loss_bits"],
    }


def write_effects(output: Any, found: Measured, names: Mapping[str, Any]) -> None:
    """Write the rows of the three tables, with the columns that the job knows."""
    for name, rows in found._asdict().items():
        lines = [canonical_json({**row, **names}) + "\n" for row in rows]
        write_atomic(getattr(output, name), "".join(lines))
