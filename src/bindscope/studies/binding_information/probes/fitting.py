"""Fit a probe to data: all four targets and all seeds of a block in one job.

The fit of a seed does not depend on the other seeds of its block: initial weights and orders come
from generators keyed by the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bindscope.core.array_types import Singles
from bindscope.core.errors import ConfigError
from bindscope.fitting import denormals
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.statistics.control_variates import control_coefficient
from bindscope.statistics.prior_mixtures import fit_prior_weight, mixture_gains
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.families import DescendedProbe
from bindscope.studies.binding_information.probes.base import PRIOR, FitResult, chosen_targets
from bindscope.studies.binding_information.probes.batches import ProbeSource, make_source
from bindscope.studies.binding_information.probes.convex import fit_linear_parts
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.probes.module import PatchInputs, ProbeInputs
from bindscope.studies.binding_information.probes.protocols import fit_as_released, fit_in_cycles
from bindscope.studies.binding_information.probes.runs import (
    TOO_MUCH,
    PartEvaluation,
    ProbeRun,
    evaluate,
    start,
    unfitted_bits,
)

CONSTANT = 1e-3  # mean change of a probability when scenes swap inputs: collapsed
WATCHED = 512
NOTHING = np.empty(0)
UNFITTED = PartEvaluation(NOTHING, NOTHING, NOTHING, NOTHING, None, nan, nan)


@denormals.flushed()
def fit(
    probe: AnyProbe,
    data: ProbeData,
    seeds: Sequence[int],
    checkpoints: Checkpoints | None = None,
) -> list[FitResult]:
    """Fit the targets of a probe for every seed: a result each, with a flag if it diverges.

    Parts of the fit are kept in checkpoints, so that a fit that is killed goes on.
    """
    _check(probe, data)
    source = make_source(probe, data)
    targets = chosen_targets(probe, data.sizes, data.n_counts)

    def begin(seed: int) -> list[ProbeRun]:
        return [
            start(
                probe,
                heads,
                source.shape,
                seed,
                probe.device,
                target.parts if probe.jointly else (heads,),
            )
            for target in targets
            for heads in target.heads(probe.jointly)
        ]

    if probe.protocol == "converged" and probe.convex:
        runs = begin(seeds[0])
        fit_linear_parts(runs, source, probe, checkpoints)
        for run in runs:
            run.restore()
        result = _result(probe, source, runs)
        return [_for_seed(result, seed) for seed in seeds]
    block = [begin(seed) for seed in seeds]
    if probe.protocol == "converged":
        _fit_linear_parts(block, source, probe, checkpoints)
    for runs in [list(chain(*block))] if source.shared_order else block:
        if isinstance(probe, DescendedProbe) and probe.protocol == "converged":
            fit_in_cycles(runs, source, probe, checkpoints)
        else:
            fit_as_released(runs, source, checkpoints)
    return [_result(probe, source, runs) for runs in block]


def _fit_linear_parts(
    block: Sequence[Sequence[ProbeRun]],
    source: ProbeSource,
    probe: AnyProbe,
    checkpoints: Checkpoints | None,
) -> None:
    """Fit the linear parts of one seed; they are those of the others too."""
    first, *others = block
    fit_linear_parts(first, source, probe, checkpoints)
    for runs in others:
        for run, fitted in zip(runs, first, strict=True):
            ours, theirs = run.family.linear, fitted.family.linear
            assert ours is not None
            assert theirs is not None
            ours.load_state_dict(theirs.state_dict())
            run.options |= fitted.options
            run.flags |= fitted.flags
            run.optimism |= fitted.optimism


def _check(probe: AnyProbe, data: ProbeData) -> None:
    if probe.patches != data.patches:
        raise ConfigError(
            f"probes.{probe.name}",
            f"family {probe.family} reads {'vectors' if data.patches else 'patch tokens'}, which "
            "the data are not",
            f"use tokens: [{'cls' if data.patches else 'patches'}] with it",
        )
    if problem := probe.problem(data.sizes):
        what, _, remedy = problem.partition("; ")
        raise ConfigError(f"probes.{probe.name}", f"family {probe.family} {what}", remedy)
    if probe.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"probes.{probe.name}.device", "there is no CUDA device", "set device: cpu"
        )


class _Mixture(NamedTuple):
    """How a part is mixed with its exact prior, and what that loses on validation in bits.

    `control` is the coefficient of the prior's loss as a control variate.
    """

    prior_weight: float
    control: float
    val_loss: float


def _mixtures(
    probe: AnyProbe, source: ProbeSource, runs: Sequence[ProbeRun]
) -> dict[str, _Mixture]:
    """Fit the mixtures of all parts with anchors to the validation scenes."""
    anchored = [run for run in runs if run.heads.anchored]
    if not anchored:
        return {}
    val = evaluate(anchored, source, "val", probe.batch_size)
    mixtures = {}
    for run in anchored:
        for name in (part.name for part in run.parts):
            priors = val[name].anchors
            gains = priors - val[name].scenes - run.optimism.get(name, 0.0)
            gains[np.isnan(gains)] = -np.inf
            weight = fit_prior_weight(gains)
            losses = priors - mixture_gains(gains, weight)
            control = control_coefficient(losses, priors)
            mixtures[name] = _Mixture(weight, control, float(losses.mean()))
    return mixtures


def _result(probe: AnyProbe, source: ProbeSource, runs: list[ProbeRun]) -> FitResult:
    """Choose mixtures and flags on the validation split, and evaluate on the test split."""
    mixtures = _mixtures(probe, source, runs)
    weights = {name: mixture.prior_weight for name, mixture in mixtures.items()}
    flags: dict[str, set[str]] = {}
    for run in runs:
        flags |= _flags(run, source, probe.batch_size)
    for name in (name for name, weight in weights.items() if weight == 1):
        flags[name] = (flags[name] - {"collapsed"}) | {PRIOR}
    val = {run.heads.name: run.best_loss for run in runs if not run.heads.anchored}
    val |= {name: mixture.val_loss for name, mixture in mixtures.items()}
    parts = evaluate(runs, source, "test", probe.batch_size, weights)
    targets = chosen_targets(probe, source.sizes, source.n_counts)
    plain = {name: parts.get(name, UNFITTED) for name in ("object", "feature")}
    return FitResult(
        seed=runs[0].seed,
        losses={name: part.scenes for name, part in parts.items()},
        head_losses={
            t.name: np.concatenate([parts[part.name].heads for part in t.parts]) for t in targets
        },
        anchor_head_losses={
            t.name: np.concatenate([parts[part.name].anchor_heads for part in t.parts])
            for t in targets
            if t.parts[0].anchored
        },
        anchor_losses={n: part.anchors for n, part in parts.items() if len(part.anchors)},
        val_loss_bits=val | {t.name: sum(val[part.name] for part in t.parts) for t in targets},
        shares={
            f"{measure}_{name}": getattr(part, measure)
            for name, part in plain.items()
            for measure in ("accuracy", "exact_match")
        },
        history=_history(runs),
        weights=_weights(runs, source),
        metadata=_metadata(probe, source, runs) | {"prior_weights": weights},
        steps=max(run.steps for run in runs),
        flags=tuple(sorted(set().union(*flags.values()))),
        feature_probe=type(probe).load().feature_probe or probe.family,
        target_flags={name: tuple(sorted(names)) for name, names in flags.items()}
        | {
            t.name: tuple(sorted(set().union(*(flags[part.name] for part in t.parts))))
            for t in targets
        },
        prior_weights=weights,
        control_coefficients={name: mixture.control for name, mixture in mixtures.items()},
    )


def _history(runs: list[ProbeRun]) -> list[dict[str, Any]]:
    """Return the rows of all runs, and `chained` as the sum of its parts' latest losses."""
    rows: list[dict[str, Any]] = [
        {"seed": run.seed, "target": run.name, "step": entry.step, "split": entry.split}
        | {"loss_bits": round(entry.loss_bits, 6)}
        for run in runs
        for entry in run.history
    ]
    parts = [run.heads.name for run in runs if run.heads.name.startswith("chained_")]
    for split in ("train", "val"):
        steps = sorted(
            (row for row in rows if row["target"] in parts and row["split"] == split),
            key=lambda row: row["step"],
        )
        latest: dict[str, float] = {}
        sums: dict[int, float] = {}
        for row in steps:
            latest[row["target"]] = row["loss_bits"]
            if len(latest) == len(parts):
                sums[row["step"]] = round(sum(latest.values()), 6)
        rows += [
            {"seed": runs[0].seed, "target": "chained", "step": step, "split": split}
            | {"loss_bits": loss}
            for step, loss in sums.items()
        ]
    return rows


def _flags(run: ProbeRun, source: ProbeSource, batch: int) -> dict[str, set[str]]:
    """Return the flags of each part of a run; the test split has no say in them."""
    if run.diverged or not run.best_loss <= TOO_MUCH * unfitted_bits(source, "val", run.heads):
        run.flags.add("diverged")
    # A convex fit that ignores z is at its optimum: there is nothing that it could have found.
    changes = None if run.at_optimum else _changes(run, source, min(batch, WATCHED))
    flags = {}
    for part in run.parts:
        flags[part.name] = set(run.flags)
        if changes is not None:
            part_changes = changes[part.first - run.heads.first : part.length - run.heads.first]
            flags[part.name] |= {"collapsed"} if float(part_changes.mean()) < CONSTANT else set()
    return flags


@torch.inference_mode()
def _changes(run: ProbeRun, source: ProbeSource, batch: int) -> Tensor | None:
    """Return by how much each head's probability changes when scenes swap inputs that differ."""
    inputs, _, labels = next(iter(source.split("val", batch)))
    read = [inputs] if isinstance(inputs, Tensor) else [inputs.patches, inputs.cls]
    tensors = [tensor for tensor in read if tensor is not None]
    rolled = [tensor.roll(1, 0) for tensor in tensors]
    if all(map(torch.equal, tensors, rolled)):
        return None
    swapped: ProbeInputs = rolled[0]
    if isinstance(inputs, PatchInputs):
        swapped = PatchInputs(rolled[0], rolled[1] if inputs.cls is not None else None)
    bits, anchors, _ = labels.of_heads(run.heads)
    here, there = (run.family(x, bits, anchors).sigmoid() for x in (inputs, swapped))
    return (here - there).abs().mean(0)


def _weights(runs: list[ProbeRun], source: ProbeSource) -> dict[str, Singles]:
    weights = {
        f"{run.heads.name}.{name}": value.cpu().numpy().copy()
        for run in runs
        for name, value in run.family.state_dict().items()
    }
    for name, scaling in source.standardisers.items():
        weights[f"standardise.{name}.mean"] = scaling.mean
        weights[f"standardise.{name}.scale"] = scaling.scale
    return weights


def _metadata(probe: AnyProbe, source: ProbeSource, runs: list[ProbeRun]) -> dict[str, Any]:
    return {
        "probe": probe.model_dump(mode="json"),
        "sizes": list(source.sizes),
        "n_counts": source.n_counts,
        "dim": source.shape.dim,
        "cls": source.shape.cls,
        "tokens": source.shape.tokens,
        "best_step": {run.heads.name: run.best_step for run in runs},
        "chosen": {run.heads.name: run.options for run in runs},
    }


def _for_seed(result: FitResult, seed: int) -> FitResult:
    """Return the result of a fit that no seed changes, under a seed."""
    history = [row | {"seed": seed} for row in result.history]
    return replace(result, seed=seed, history=history)
