"""Fitting a probe of pairs to each layer of a block, and measuring it on the test split."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from bindscope.activations.reader import RowReader
from bindscope.core.errors import InputError, StoreError
from bindscope.core.files import canonical_json, write_atomic
from bindscope.core.registries import resolve
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import Store, open_store
from bindscope.fitting.checkpoint import (
    Checkpoints,
    SavedState,
    join_states,
    remember,
    split_states,
)
from bindscope.fitting.denormals import flushed
from bindscope.studies.same_object.config import FAMILIES, AnyScorer
from bindscope.studies.same_object.data import PairData, PatchPairs, trimmed
from bindscope.studies.same_object.metrics import UNCHANGED, calibrated, measure, tally
from bindscope.studies.same_object.quantities import NO_MODEL, weights_name
from bindscope.studies.same_object.scorers.base import FitTask, FittedProbe
from bindscope.studies.same_object.scores import RESAMPLES

log = logging.getLogger(__name__)
ABOUT_THE_JOB = {"name", "threads", "device", "memory_mb"}


@dataclass(frozen=True)
class ProbeResult:
    """One scorer that was fitted and measured."""

    # Columns of the table `same_object`, JSON.
    row: dict[str, Any]
    strata: list[dict[str, Any]]  # rows of the table `same_object_strata`, likewise
    weights: Mapping[str, npt.NDArray[np.float32]]  # flat name -> float32 array
    # float32 (n, 5): what `metrics.Tally.of_images` counts of each test image.
    of_images: npt.NDArray[np.float32]

    def state(self) -> SavedState:
        """Return it as a checkpoint holds it."""
        arrays = {"images": self.of_images} | {f"w.{name}": w for name, w in self.weights.items()}
        tensors = {name: torch.from_numpy(np.asarray(a, order="C")) for name, a in arrays.items()}
        return tensors, {"row": self.row, "strata": self.strata}

    @classmethod
    def from_state(cls, state: SavedState) -> ProbeResult:
        """Return that of a checkpoint."""
        tensors, record = state
        weights = {n.removeprefix("w."): w.numpy() for n, w in tensors.items() if n != "images"}
        of_images = tensors["images"].numpy()
        return cls(record["row"], record["strata"], weights, of_images)


@flushed()
@torch.no_grad()
def fit_probe(
    probe: AnyScorer,
    train: PairData,
    val: PairData,
    test: PairData,
    *,
    names: Mapping[str, Any] | None = None,
    n_skipped: int = 0,
    seeds: Sequence[int] = (0,),
    bootstrap_samples: int = RESAMPLES,
    checkpoints: Checkpoints | None = None,
) -> list[ProbeResult]:
    """Fit a probe to one layer and measure it; rows are whole, but for gains over other probes.

    Parameters
    ----------
    probe
        Its configuration.
    train, val, test
        Patches of the three splits. Train decides the weights, validation what is chosen among
        them and the calibration, test nothing.
    names, n_skipped
        Columns that name the fit, and test images without a pair of patches.
    seeds
        Seeds of a family that has one; the others are fitted once, and their rows have seed 0.
    bootstrap_samples
        Resamples of the test images.
    checkpoints
        Of the fit.

    Returns
    -------
    One result per seed. A quadratic probe with `ranks` has one per rank before its own.

    Raises
    ------
    InputError
        If a split has no pair of patches, or train only one label.
    """
    for name, split in zip(SPLITS, (train, val, test), strict=True):
        _refuse_without_pairs(name, split)
    task = FitTask(train, val, probe.memory_mb * 2**20, probe.device, seeds, checkpoints)
    fitted: list[FittedProbe] = resolve(FAMILIES[probe.family])(probe, task)
    here = {**(names or {}), "family": probe.family, "grid": "x".join(map(str, test.grid))}
    about = {
        "n_train_images": train.n_images_with_pairs,
        "n_val_images": val.n_images_with_pairs,
        "n_skipped": n_skipped,
        "options": canonical_json(probe.model_dump(mode="json", exclude=ABOUT_THE_JOB)),
    }

    results = []
    for scorer in fitted:
        result = _measured(scorer, task, test, bootstrap_samples)
        strata = [{**row, **here} for row in result.strata]
        results.append(replace(result, row={**result.row, **about, **here}, strata=strata))
    return results


def _refuse_without_pairs(name: str, data: PairData) -> None:
    same = int(data.same_of_images.sum())
    if 0 < same < data.n_pairs or (name == "test" and data.n_pairs):
        return
    problem = f"has {data.n_pairs} pairs of patches, {same} of them of the same object"
    remedy = "use more images, or a smaller `min_purity`"
    raise InputError(f"patch sample of {name}", problem, remedy)


def _graded(fitted: FittedProbe, test: PatchPairs) -> dict[str, float]:
    """Return what a pointwise scorer's row says of its own labels: means of ratios."""
    totals: dict[str, npt.NDArray[np.float64]] = {}
    for block in test.blocks():
        for name, graded in fitted.scorer.graded(block).items():
            totals[name] = totals.get(name, 0) + np.stack([np.atleast_1d(f) for f in graded])
    means = {}
    for name, (hits, n) in totals.items():
        there = n > 0
        means[name] = float((hits[there] / n[there]).mean()) if there.any() else 0.0
    return means


def _measured(
    fitted: FittedProbe, task: FitTask, test: PairData, bootstrap_samples: int
) -> ProbeResult:
    val, last = (
        PatchPairs(split, fitted.scaling, device=task.device) for split in (task.val, test)
    )
    calibration = calibrated(fitted.scorer, val) if fitted.calibrate else UNCHANGED
    tallied = tally(fitted.scorer, last, calibration)
    row, strata = measure(tallied, bootstrap_samples)
    columns = dict(fitted.columns) | _graded(fitted, last)
    flags = {*columns.pop("flags", ()), *(() if tallied.finite else ("diverged",))}
    names = {"seed": fitted.seed, "rank": fitted.rank}
    row = {**names, **row, **columns, "flags": ";".join(sorted(flags))}
    log.info("%s: accuracy %.4f, majority %.4f", names, row["accuracy"], row["majority_accuracy"])
    return ProbeResult(row, [names | line for line in strata], fitted.weights, tallied.of_images())


def pair_data(sample: Store, tokens: Sequence[Store], layer: str) -> PairData:
    """Put the patches of a split and their tokens in one layer together; tokens are read later.

    `tokens`: in the order of their scenes; none for what reads labels and positions alone.
    """
    whole = {name: sample.read(name) for name in ("patches", "instances", "classes")}
    arrays = trimmed(whole)
    rows, columns = sample.attributes["grid"]
    split = sample.attributes["split"]
    reader = RowReader(tokens, ["patches"], layer, split) if tokens else None
    expected = whole["patches"].shape
    if reader is not None and reader.shape[:2] != expected:
        raise StoreError(
            str(tokens[0].manifest.path),
            f"holds tokens of {reader.shape[0]} x {reader.shape[1]} patches, and the sample "
            f"{sample.manifest.path} has {expected[0]} x {expected[1]}",
            "run snakemake again, which makes both of the same images",
        )
    return PairData.from_arrays(arrays, reader, (rows, columns))


def read_layers(
    samples: Sequence[str], tokens: Mapping[str, Sequence[str]], layers: Sequence[int | str]
) -> dict[str, list[PairData]]:
    """Return the patches of train, val and test by layer; their tokens are read later.

    `samples`: manifests of the patches of the splits. `tokens`: manifests of their tokens by split;
    empty, as `layers`, for what reads labels and positions alone, whose layer is `none`.
    """
    opened = [
        (open_store(path), [open_store(part) for part in tokens.get(split, ())])
        for split, path in zip(SPLITS, samples, strict=True)
    ]
    names = [str(layer) for layer in layers] or [NO_MODEL]
    return {name: [pair_data(*stores, name) for stores in opened] for name in names}


def fit_layers(
    probe: AnyScorer,
    samples: Sequence[str],
    tokens: Mapping[str, Sequence[str]],
    spec: Mapping[str, Any],
    names: Mapping[str, Any],
    checkpoints: Checkpoints | None = None,
) -> Iterator[ProbeResult]:
    """Fit a probe to each layer of a block, as `bindscope.same_object` does.

    `samples`, `tokens`: as in `read_layers`. `names`: columns that the job knows.
    """
    skipped = len(open_store(samples[-1]).attributes["skipped"])

    def fit_layer(layer: str, data: list[PairData], parts: Checkpoints | None) -> SavedState:
        results = fit_probe(
            probe,
            *data,
            names={**names, "layer": layer},
            n_skipped=skipped,
            seeds=spec["seeds"],
            checkpoints=parts,
        )
        return join_states([result.state() for result in results])

    for layer, data in read_layers(samples, tokens, spec["layers"]).items():
        state = remember(checkpoints, partial(fit_layer, layer, data))
        yield from map(ProbeResult.from_state, split_states(state))


def write_results(output: Any, results: Iterable[ProbeResult]) -> None:
    """Write rows, strata, weights, and what is told right of each test image.

    `output`: paths `rows`, `strata`, `weights`, `images`. `results`: what `fit_layers` yields.
    """
    rows, strata = [], []
    weights: dict[str, NDArray[Any]] = {}
    of_images: dict[str, NDArray[Any]] = {}
    for result in results:
        rows.append(result.row)
        strata += result.strata
        which = weights_name(result.row["layer"], result.row["seed"], result.row["rank"])
        weights |= {
            f"{which}.{name}": np.ascontiguousarray(value) for name, value in result.weights.items()
        }
        of_images[which] = result.of_images
    write_atomic(output.weights, save(weights))
    write_atomic(output.images, save(of_images))
    write_atomic(output.strata, "".join(canonical_json(row) + "\n" for row in strata))
    write_atomic(output.rows, "".join(canonical_json(row) + "\n" for row in rows))
