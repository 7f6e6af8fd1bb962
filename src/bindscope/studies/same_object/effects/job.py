"""Edits of what a fitted probe reads in one layer: a job, and the rows that it writes.

A probe that was fitted to tokens as they are may fail on edited ones that say as much as before,
elsewhere. A probe of the same kind, fitted to tokens of train under the same edit, fails where the
tokens no longer say it (arXiv 2510.24709, section 4.4 and Table 2: heads per condition).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from safetensors.numpy import load_file
from torch import Tensor

from bindscope.config.models import Controlled, Zoo
from bindscope.core.array_types import Doubles
from bindscope.core.errors import ModelError
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.checkpoint import (
    Checkpoints,
    SavedState,
    join_states,
    remember,
    split_states,
)
from bindscope.models.loading import load_model
from bindscope.models.objectives.base import TokenSources
from bindscope.models.objectives.evaluation import EditFactory, Evaluation
from bindscope.models.pretraining_loss import load
from bindscope.statistics.means import mean_interval
from bindscope.studies.same_object.config import AnyScorer
from bindscope.studies.same_object.data import PairData, PatchPairs
from bindscope.studies.same_object.effects.attention import fisher
from bindscope.studies.same_object.effects.passes import (
    Measuring,
    Reading,
    SampledScenes,
    Unedited,
    logits_name,
)
from bindscope.studies.same_object.effects.proxy_loss import proxy_losses
from bindscope.studies.same_object.effects.subspace import (
    SEED,
    Editor,
    SubspaceEdit,
    matched_basis,
    orthonormal,
    outside,
    overlap,
    random_basis,
    variance_basis,
)
from bindscope.studies.same_object.estimates import (
    Bootstrap,
    ImageSums,
    ScoreColumns,
    estimate,
    row,
)
from bindscope.studies.same_object.fit import ProbeResult, fit_probe
from bindscope.studies.same_object.fitted_scorer import FittedScorer
from bindscope.studies.same_object.quantities import (
    CONTROLS,
    CORRELATIONS,
    EDITS,
    JUDGED,
    MEAN_HEAD,
    OBJECT_SHARE,
    PRETRAINING_LOSS,
    PROXY_LOSS,
    READERS,
    VAL_LOSS,
    weights_name,
)
from bindscope.studies.same_object.scores import couples_won
from bindscope.tables.rows import Row

# (quantity, at) -> resamples, or numbers of batches
ScoreNumbers = Mapping[tuple[str, str], Doubles]
Losses = Mapping[SubspaceEdit | None, Doubles]  # of batches, in bits
PLAIN: Row = {"edit": "none", "strength": 0.0, "subspace": "none"}
LOSS = PRETRAINING_LOSS.name


def edit_names(what: SubspaceEdit | None) -> Row:
    """Return the columns that name an edit, or none."""
    return dict(PLAIN) if what is None else what._asdict()


def attention_rows(reading: Reading, by: Bootstrap) -> list[Row]:
    """Return what is measured of each head, and of their mean; correlations as Fisher's z."""
    columns = {("uniform_share", ""): over_images(reading["uniform"])}
    heads = [str(head + 1) for head in range(len(reading["share"]))]
    for i, head in enumerate((*heads, MEAN_HEAD)):
        columns |= {(name, head): over_images(fisher(reading[name][i])) for name in CORRELATIONS}
        if head != MEAN_HEAD:  # that of all heads is measured under edits
            columns[OBJECT_SHARE.name, head] = over_images(reading["share"][i])
    rows = []
    for (name, at), drawn in by.ratios(columns).items():
        n = int(columns[name, at][1].sum())
        drawn = np.tanh(drawn) if name in CORRELATIONS else drawn
        rows.append(PLAIN | estimate(name, drawn, at=at, n=n))
    return rows


def over_images(values: Doubles) -> ImageSums:
    """Return numbers (n,) as sums and counts of images; NaN is no image."""
    there = np.isfinite(values)
    return np.where(there, values, 0.0), there.astype(np.float64)


def _means(columns: Sequence[ScoreColumns], by: Bootstrap) -> list[ScoreNumbers]:
    """Return means (1 + B,) of each measure: of the images, and of resamples that all share."""
    ratios = by.ratios({(i, *key): group[key] for i, group in enumerate(columns) for key in group})
    return [{key: ratios[i, *key] for key in group} for i, group in enumerate(columns)]


def ablation_rows(
    labels: PairData,
    layers: Sequence[int],
    readings: Mapping[SubspaceEdit | None, Reading],
    by: Bootstrap,
) -> list[Row]:
    """Return the rows of the tokens as they are, and of every edit.

    `layers`: those that probes read, the edited one first. All edits share each resample of the
    images, so that differences are paired.
    """
    same = torch.cat([block.same for block in PatchPairs(labels).blocks()]).numpy()
    counts, rows = labels.pairs_of_images, list[Row]()
    for what, reading in readings.items():
        moved, whole = reading["change"].sum(1)
        rows.append(edit_names(what) | row("change", moved / whole))
    columns = [_columns(reading, layers, same, counts) for reading in readings.values()]
    if "summary" in (plain := readings[None]):
        for reading, of_edit in zip(readings.values(), columns, strict=True):
            losses = proxy_losses(plain["summary"], reading["summary"])
            of_edit[PROXY_LOSS.name, ""] = over_images(losses)
    means = dict(zip(readings, _means(columns, by), strict=True))
    return rows + compared(means, partial(estimate, n=int((counts > 0).sum())))


def _columns(
    reading: Reading,
    layers: Sequence[int],
    same: NDArray[np.bool_],
    counts: NDArray[np.int64],
) -> ScoreColumns:
    """Return what is averaged over images of one edit; the mean over heads is of their numbers."""
    columns: ScoreColumns = {}
    image = np.repeat(np.arange(len(counts)), counts)
    for layer, reader in zip(layers, READERS, strict=False):
        won = couples_won(reading[logits_name(layer)], same, image, len(counts))
        columns[reader.auc_within.name, str(layer)] = won
    columns[OBJECT_SHARE.name, MEAN_HEAD] = over_images(reading["share"].mean(0))
    return columns


def compared(
    numbers: Mapping[SubspaceEdit | None, ScoreNumbers], make_row: Callable[..., Row]
) -> list[Row]:
    """Return measures, their changes by the edit, and what is beyond the controls.

    `numbers`: under no edit (None) and each; their differences are paired. `make_row` makes a row
    of a quantity and its numbers.
    """
    rows = []
    for what, here in numbers.items():
        controls = [
            rival
            for rival in numbers
            if what
            and rival
            and what.subspace == JUDGED
            and rival.subspace in CONTROLS
            and rival[:2] == what[:2]
        ]
        for (name, at), values in here.items():
            lines, quantity = [make_row(name, values, at=at)], EDITS[name]
            if what is not None and quantity.change:
                plain = numbers[None][name, at]
                lines.append(make_row(quantity.change, values - plain, at=at))
                rivals: dict[str, Row] = {
                    rival.subspace: make_row(
                        quantity.beyond_controls, values - numbers[rival][name, at], at=at
                    )
                    for rival in controls
                }
                falls = quantity not in (PRETRAINING_LOSS, PROXY_LOSS) and what.edit != "inject"
                lines += beyond(rivals, falls=falls)
            rows += [edit_names(what) | line for line in lines]
    return rows


def beyond(rivals: Mapping[str, Row], *, falls: bool) -> list[Row]:
    """Return the row of an effect beyond every control: of each number that nearest to no effect.

    An interval on the claimed side of 0 is there for every control, so that to claim it of all
    needs no correction (an intersection-union test). `falls`: whether the measure is claimed to.
    """
    rivals = {control: line for control, line in rivals.items() if line["value"] is not None}
    if not rivals:
        return []
    nearest = max if falls else min
    strictest = nearest(rivals, key=lambda control: rivals[control]["value"])
    ends = {
        end: nearest(rival[end] for rival in rivals.values())
        for end in ("low", "high")
        if all(rival[end] is not None for rival in rivals.values())
    }
    return [rivals[strictest] | ends | {"reason": f"strictest control: {strictest}"}]


def loss_rows(losses: Losses | str) -> list[Row]:
    """Return the rows about the model's own loss: means over batches, or why there is none."""
    if isinstance(losses, str):
        return [PLAIN | row(LOSS, None, reason=losses)]
    return compared({what: {(LOSS, ""): values} for what, values in losses.items()}, _over_batches)


def _over_batches(quantity: str, values: Doubles, at: str = "") -> Row:
    """Return a mean over batches and, of several, the ends of its t interval."""
    ends = mean_interval(values)[1:] if len(values) > 1 else (None, None)
    return row(quantity, values.mean(), *ends, at=at, n=len(values))


def refitted_rows(
    splits: Mapping[str, Measuring],
    edits: Sequence[SubspaceEdit],
    probes: Sequence[AnyScorer],
    by: Bootstrap,
    checkpoints: Checkpoints | None = None,
) -> list[Row]:
    """Fit probes to tokens as they are and under edits; return what they predict of test.

    Of a probe with seeds it is the seed 0, of one with ranks the full form. Edits of half strength
    are those of the whole probe subspace, as in Table 2 of the IsSameObject paper.
    """
    layers = zip(sorted(splits["test"].scorers), READERS, strict=False)
    readers = [*product(probes, layers)]

    def fit_all(what: SubspaceEdit | None, parts: Checkpoints | None) -> SavedState:
        tokens = {name: splits[name].sampled_under(what, parts) for name in SPLITS}
        results = [
            fit_probe(
                probe,
                *(tokens[name][layer] for name in SPLITS),
                bootstrap_samples=by.samples,
                checkpoints=parts,
            )[-1]
            for probe, (layer, _) in readers
        ]
        return join_states([result.state() for result in results])

    rows: list[Row] = []
    whats = [None, *(what for what in edits if what.strength == 1 or what.subspace == "probe")]
    columns, n = list[ScoreColumns](), 0
    for what in whats:
        states = split_states(remember(checkpoints, partial(fit_all, what)))
        columns.append({})
        for state, (probe, (_, reader)) in zip(states, readers, strict=True):
            result = ProbeResult.from_state(state)
            n = result.row["n_images"]
            for miou, quantity in reader.refitted_mious.items():
                if (value := result.row.get(miou)) is not None:
                    line = row(quantity.name, value, at=probe.name, reason=result.row["flags"])
                    rows.append(edit_names(what) | line)
            *_, won, couples = result.of_images.astype(np.float64).T
            columns[-1][reader.refitted_auc_within.name, probe.name] = won, couples
    means = dict(zip(whats, _means(columns, by), strict=True))
    return rows + compared(means, partial(estimate, n=n))


def pretraining_losses(
    evaluation: Evaluation,
    images: NDArray[np.uint8],
    objects: NDArray[np.uint8],
    test: Measuring,
    edits: Sequence[SubspaceEdit],
) -> Losses | str:
    """Return the loss (batches,) of a model in bits, without an edit (None) and under each.

    `evaluation`: its objective with its heads. `images`, `objects`: scenes (n, H, W, 3) and their
    object codes (n, K). `test`: layer, editor and grid of these scenes. Or why there is none.
    """
    rows, grid, editor = evaluation.objective.vit.rows, test.scenes.labels.grid, test.editor
    assert editor is not None
    if (rows, rows) != grid:
        return f"it was trained with {rows} x {rows} patches, and {grid[0]} x {grid[1]} are read"

    def edits_of(what: SubspaceEdit) -> EditFactory:
        def edited(visible: TokenSources, tokens: Tensor) -> Tensor:
            sources = visible.scenes.to(tokens.device), visible.patches.to(tokens.device)
            return editor.edited(tokens, what, *sources)

        return lambda visible: {test.layer: partial(edited, visible)}

    return {
        what: evaluation.bits(images, objects, what and edits_of(what)) for what in (None, *edits)
    }


def interventions() -> list[SubspaceEdit]:
    """Return all edits of a layer."""
    edits = [
        SubspaceEdit(edit, strength, subspace)
        for subspace in ("probe", JUDGED, *CONTROLS)
        if subspace != "mean"
        for edit in ("shuffle", "inject", "remove")
        for strength in (0.5, 1.0)
        if edit != "remove" or strength == 1
    ]
    return [*edits, SubspaceEdit("remove", 1.0, "mean")]


def editor_of(
    scorer: FittedScorer, unedited: Unedited, scenes: SampledScenes, n_directions: int
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
    return Editor(bases, scorer.mean, scenes.instances)


def measured(
    config: Any,
    files: Any,
    spec: Mapping[str, Any],
    device: torch.device | str,
    checkpoints: Checkpoints | None = None,
) -> list[Row]:
    """Measure one layer of a model.

    `files`: paths `fit` (rows), `fit_weights`, `weights`, of each split `<split>_scenes` and
    `<split>_samples`; for a model that may have a loss of its own `codes`. `spec`: the job's
    `layer`, `later`, `directions`, `retrained` and `n_scenes`, and whether there are `edits`.
    """
    scenes = {
        split: SampledScenes.open(
            getattr(files, f"{split}_scenes"), getattr(files, f"{split}_samples")[0], n
        )
        for split, n in spec["n_scenes"].items()
    }
    test = _measuring(config, files, spec, scenes["test"], device)
    plain = test.unedited(checkpoints)
    if not spec["edits"]:
        readings: dict[SubspaceEdit | None, Reading] = {None: plain.reading}
        rows = ablation_rows(test.scenes.labels, sorted(test.scorers), readings, Bootstrap())
        return rows + attention_rows(plain.reading, Bootstrap())
    editor = editor_of(test.scorers[spec["layer"]], plain, test.scenes, spec["directions"])
    splits = {split: test.edit(editor, of_split) for split, of_split in scenes.items()}
    edits = interventions()
    losses = _losses(config, files, device, splits["test"], edits)
    probes = [TypeAdapter(AnyScorer).validate_python(probe) for probe in spec["retrained"]]
    return [
        PLAIN | row(VAL_LOSS.name, validation_loss(files, spec)),
        *measured_edits(splits, plain, edits, losses, probes, Bootstrap(), checkpoints),
    ]


def measured_edits(
    splits: Mapping[str, Measuring],
    plain: Unedited,
    edits: Sequence[SubspaceEdit],
    losses: Losses | str,
    probes: Sequence[AnyScorer],
    by: Bootstrap,
    checkpoints: Checkpoints | None = None,
) -> list[Row]:
    """Return the rows about edits of one layer, without what the job knows from its files.

    `splits`: the model with its editor on the scenes of test; of train and val too where probes are
    fitted again. `plain`: what was measured of those of test as they are. `losses`: the model's
    own, or why it has none. `probes`: those that are fitted again.
    """
    test = splits["test"]
    assert test.editor is not None
    readings = {None: plain.reading} | test.under(edits, checkpoints)
    rows = ablation_rows(test.scenes.labels, sorted(test.scorers), readings, by)
    rows += attention_rows(plain.reading, by) + loss_rows(losses)
    for what in edits:
        rows += [edit_names(what) | line for line in _overlaps(test.editor, plain, what)]
    if probes:
        rows += refitted_rows(splits, edits, probes, by, checkpoints)
    return rows


def _overlaps(editor: Editor, plain: Unedited, what: SubspaceEdit) -> list[Row]:
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
    config: Any,
    files: Any,
    spec: Mapping[str, Any],
    scenes: SampledScenes,
    device: torch.device | str,
) -> Measuring:
    """Load the model and its fitted probes."""
    fits: dict[str, NDArray[Any]] = {}
    for path in files.fit_weights:
        fits |= load_file(path)
    weights = next(iter(files.weights), None)
    size_px = scenes.images[:1].shape[1]
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
    edits: Sequence[SubspaceEdit],
) -> Losses | str:
    """Return the model's own loss under each edit, or why it has none."""
    if not isinstance(config, Controlled | Zoo):
        return "its pretraining heads are not available"
    weights = next(iter(files.weights), None)
    try:
        evaluation = load(config, weights and Path(weights), device)
    except ModelError as error:
        return error.problem
    every = slice(0, len(test.scenes))
    objects = open_store(files.codes[0]).read("objects", every)
    return pretraining_losses(evaluation, test.scenes.images[every], objects, test, edits)
