"""One job: what a fitted probe reads of one layer is edited, and the effects are measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.numpy import load_file
from torch import Tensor

from bindscope.config.models import Controlled, Zoo
from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Edit
from bindscope.core.store.reader import open_store
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.models.loading import load_model
from bindscope.models.objectives.base import TokenSources
from bindscope.models.objectives.evaluation import Edits, Evaluation
from bindscope.models.pretraining_loss import load
from bindscope.studies.same_object.effects.passes import Measuring, Scenes, Unedited
from bindscope.studies.same_object.effects.rows import (
    PLAIN,
    Losses,
    ablation_rows,
    attention_rows,
    edit_names,
    loss_rows,
    refitted_rows,
    strongest,
)
from bindscope.studies.same_object.effects.subspace import (
    SEED,
    Editor,
    Intervention,
    matched_basis,
    order_of_patches,
    orthonormal,
    outside,
    overlap,
    random_basis,
    variance_basis,
)
from bindscope.studies.same_object.estimates import Bootstrap, Row, row
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.probes_config import AnyScorer
from bindscope.studies.same_object.quantities import CONTROLS, JUDGED, weights_name


def pretraining_losses(
    evaluation: Evaluation,
    images: NDArray[np.uint8],
    objects: NDArray[np.uint8],
    test: Measuring,
    edits: Sequence[Intervention],
) -> Losses | str:
    """Return the loss (batches,) of a model in bits, without an edit (None) and under each.

    `evaluation`: its objective with its heads. `images`, `objects`: scenes (n, H, W, 3) and their
    object codes (n, K). `test`: layer, editor and grid of these scenes. Or why there is none.
    """
    rows, grid, editor = evaluation.objective.vit.rows, test.scenes.labels.grid, test.editor
    assert editor is not None
    if (rows, rows) != grid:
        return f"it was trained with {rows} x {rows} patches, and {grid[0]} x {grid[1]} are read"

    def edits_of(what: Intervention) -> Edits:
        def make_edits(visible: TokenSources) -> Mapping[int, Edit]:
            def edited(tokens: Tensor) -> Tensor:
                sources = visible.scenes.to(tokens.device), visible.patches.to(tokens.device)
                return editor.edited(tokens, what, *sources)

            return {test.layer: edited}

        return make_edits

    return {
        what: evaluation.bits(images, objects, what and edits_of(what)) for what in (None, *edits)
    }


# Shares of the patches of an image that exchange b; shares of its own b that a patch keeps.
SHARES, ALPHAS = (0.5, 1.0), (0.5, 0.0)


def interventions() -> list[Intervention]:
    """Return all edits of a layer."""
    edits = []
    for subspace in ("probe", JUDGED, *CONTROLS):
        if subspace != "mean":
            edits += [Intervention("shuffle", share, subspace) for share in SHARES]
            edits += [Intervention("inject", 1 - alpha, subspace) for alpha in ALPHAS]
        edits.append(Intervention("remove", 1.0, subspace))
    return edits


def editor_of(
    scorer: FittedScorer, unedited: Unedited, scenes: Scenes, n_directions: int
) -> Editor:
    """Return the editor of a layer: its probe's subspace, the judged part of it, and controls."""
    probe = orthonormal(scorer.directions(n_directions))
    judged = outside(probe, (unedited.classes, unedited.positions))
    dim, k = judged.shape
    bases = {
        "probe": probe,
        JUDGED: judged,
        "random": random_basis(dim, k, SEED),
        "matched": matched_basis(unedited.covariance, judged, SEED),
        "variance": variance_basis(unedited.covariance, k),
    }
    order = order_of_patches(len(scenes), scenes.instances.shape[1], SEED)
    return Editor(bases, scorer.mean, order, scenes.instances)


def measured(
    config: Any,
    files: Any,
    spec: Mapping[str, Any],
    device: torch.device | str,
    checkpoints: Checkpoints | None = None,
) -> list[Row]:
    """Measure one layer of a model.

    `files`: paths `scenes`, `samples`, `fit` (rows), `fit_weights`, `weights`; for a model that may
    have a loss of its own `codes`; scenes and samples of train and val (`train_scenes`, ...).
    `spec`: the job's `layer`, `later`, `directions`, `retrained`, `n_scenes` and `intervals`.
    """
    test = _measuring(config, files, spec, device)
    plain = test.unedited(checkpoints)
    editor = editor_of(test.scorers[spec["layer"]], plain, test.scenes, spec["directions"])
    splits = {"test": test.edit(editor)}
    for split in ("train", "val"):
        stores, samples = (getattr(files, f"{split}_{role}") for role in ("scenes", "samples"))
        scenes = Scenes.open(stores, samples[0], spec["retrained"][split])
        splits[split] = test.edit(editor, scenes)
    edits = interventions()
    losses = _losses(config, files, device, splits["test"], edits)
    return [
        PLAIN | row("val_loss_bits", validation_loss(files, spec)),
        *measured_edits(splits, plain, edits, losses, spec, checkpoints),
    ]


def measured_edits(
    splits: Mapping[str, Measuring],
    plain: Unedited,
    edits: Sequence[Intervention],
    losses: Losses | str,
    spec: Mapping[str, Any],
    checkpoints: Checkpoints | None = None,
) -> list[Row]:
    """Return the rows about edits of one layer, without what the job knows from its files.

    `splits`: the model with its editor on the scenes of test; of train and val too where probes are
    fitted again. `plain`: what was measured of those of test as they are. `losses`: the model's
    own, or why it has none.
    """
    by = Bootstrap(spec["intervals"]["bootstrap_samples"], spec["intervals"]["bootstrap_seed"])
    test = splits["test"]
    assert test.editor is not None
    rows = ablation_rows(test.scenes.labels, test.under(edits, checkpoints), by)
    rows += attention_rows(plain, by) + loss_rows(losses)
    for what in edits:
        rows += [edit_names(what) | line for line in _overlaps(test.editor, plain, what)]
    if retrained := spec["retrained"]:
        probes = [TypeAdapter(AnyScorer).validate_python(probe) for probe in retrained["probes"]]
        rows += refitted_rows(splits, strongest(edits), probes, by, checkpoints)
    return rows


def _overlaps(editor: Editor, plain: Unedited, what: Intervention) -> list[Row]:
    """Return how many directions an edit has, and what of them is of class and position."""
    if what.subspace not in editor.bases:
        return []
    basis, judged = editor.bases[what.subspace], editor.bases[JUDGED]
    numbers = {"directions": float(basis.shape[1])}
    if basis.shape[1]:
        numbers["class_overlap"] = overlap(basis, plain.classes)
        numbers["position_overlap"] = overlap(basis, plain.positions)
    if judged.shape[1]:
        numbers["overlap"] = overlap(judged, basis)
    return [row(name, value) for name, value in numbers.items()]


def validation_loss(files: Any, spec: Mapping[str, Any]) -> float:
    """Return the validation loss of the probe of the layer, from the row of its fit."""
    rows = [json.loads(line) for path in files.fit for line in Path(path).read_text().splitlines()]
    where = (str(spec["layer"]), SEED, 0)
    (row,) = [row for row in rows if (row["layer"], row["seed"], int(row["rank"])) == where]
    return float(row["val_loss_bits"])


def _measuring(
    config: Any, files: Any, spec: Mapping[str, Any], device: torch.device | str
) -> Measuring:
    """Load the model, its fitted probes and the test scenes."""
    scenes = Scenes.open(files.scenes, files.samples[0], spec["n_scenes"])
    fits: dict[str, NDArray[Any]] = {}
    for path in files.fit_weights:
        fits |= load_file(path)
    weights = next(iter(files.weights), None)
    size_px = scenes.stores[0].layout("images").shape[1]
    layers = [layer for layer in (spec["layer"], spec["later"]) if layer is not None]
    measuring = Measuring(
        load_model(config, weights and Path(weights), device, size_px),
        spec["layer"],
        {layer: FittedScorer.read(fits, weights_name(str(layer), SEED, 0)) for layer in layers},
        scenes,
        getattr(torch, config.extraction.dtype),
        f"{config.name} ({config.source})",
        device,
    )
    grid, expected = measuring.tokens.grid, scenes.labels.grid
    if grid != expected:
        raise ModelError(
            measuring.where,
            f"has {grid[0]} x {grid[1]} patches in layer {spec['layer']}, and the sampled ones "
            f"are of a grid of {expected[0]} x {expected[1]}",
            "edit layers whose patches are those of the sample",
        )
    return measuring


def _losses(
    config: Any,
    files: Any,
    device: torch.device | str,
    test: Measuring,
    edits: Sequence[Intervention],
) -> Losses | str:
    """Return the model's own loss under each edit, or why it has none."""
    if not isinstance(config, Controlled | Zoo):
        return "its pretraining heads are not available"
    weights = next(iter(files.weights), None)
    try:
        evaluation = load(config, weights and Path(weights), device)
    except ModelError as error:
        return error.problem
    objects = open_store(files.codes[0]).read("objects", slice(0, len(test.scenes)))
    return pretraining_losses(evaluation, test.scenes.images(), objects, test, edits)
