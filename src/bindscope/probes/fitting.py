"""Fit a probe to data: all four targets and all seeds of a block in one job.

The fit of a seed does not depend on the other seeds of its block: initial weights and orders come
from generators keyed by the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from bindscope.config.probes import PATCH_FAMILIES, AnyProbe
from bindscope.errors import ConfigError
from bindscope.probes.base import Bits, FitResult, Floats, all_targets
from bindscope.probes.batches import Source, make_source
from bindscope.probes.data import ProbeData
from bindscope.probes.module import Inputs, Tokens
from bindscope.probes.protocols import converged_plan, fit_stochastic, paper_plan
from bindscope.probes.runs import Labels, Run, bits_lost, build, predict
from bindscope.registries import FAMILIES, resolve

TOO_MUCH = 1.25
CONSTANT = 1e-3
WATCHED = 512


def fit(probe: AnyProbe, data: ProbeData, seeds: Sequence[int]) -> list[FitResult]:
    """Fit the four targets of a probe for every seed.

    Parameters
    ----------
    probe
        Family, capacity and protocol.
    data
        Representation, codes and anchors of the three splits.
    seeds
        Seeds of the block.

    Returns
    -------
    list[FitResult]
        One per seed. A fit that diverges is a result with a flag.
    """
    _check(probe, data)
    device = torch.device(probe.device)
    source, labels = make_source(probe, data), Labels(data, device)
    targets = all_targets(data.sizes)

    def start(seed: int) -> list[Run]:
        return [Run(seed, t, build(probe, t, source.shape, seed, probe.device)) for t in targets]

    paper = probe.protocol == "paper"
    convex = None if paper else resolve(FAMILIES[probe.family]).convex
    if convex:
        runs = start(seeds[0])
        convex(runs, source, labels, probe)
        only = _result(probe, data, source, labels, runs)
        return [_for_seed(only, seed) for seed in seeds]
    plan = paper_plan(data.train.n_scenes) if paper else converged_plan(probe)
    block = [start(seed) for seed in seeds]
    for runs in [list(chain(*block))] if source.shared_order else block:
        fit_stochastic(runs, source, labels, plan)
    return [_result(probe, data, source, labels, runs) for runs in block]


def _check(probe: AnyProbe, data: ProbeData) -> None:
    if (probe.family in PATCH_FAMILIES) != data.patches:
        raise ConfigError(
            f"probes.{probe.name}",
            f"family {probe.family} reads {'vectors' if data.patches else 'patch tokens'}, which "
            "the data are not",
            f"use tokens: [{'cls' if data.patches else 'patches'}] with it",
        )
    if probe.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"probes.{probe.name}.device", "there is no CUDA device", "set device: cpu"
        )


def _result(
    probe: AnyProbe, data: ProbeData, source: Source, labels: Labels, runs: list[Run]
) -> FitResult:
    losses: dict[str, Floats] = {}
    right: dict[str, Bits] = {}
    predicted = predict(runs, source, labels, "test", probe.batch_size)
    for run, logits in zip(runs, predicted, strict=True):
        bits, _ = labels.of("test", run.target, slice(None))
        name = run.target.name
        losses[name] = bits_lost(logits, bits).cpu().numpy()
        right[name] = ((logits > 0) == (bits > 0.5)).cpu().numpy()
        _flag(run, losses[name], source, labels, probe.batch_size)
    weights = _weights(runs, source)
    return FitResult(
        seed=runs[0].seed,
        losses=losses,
        val_loss_bits={run.target.name: run.best_loss for run in runs},
        accuracy_object=float(right["object"].mean()),
        exact_match_object=float(right["object"].all(1).mean()),
        accuracy_feature=float(right["feature"].mean()),
        history=[row for run in runs for row in run.history],
        weights=weights,
        metadata=_metadata(probe, data, source, runs),
        steps=max(run.steps for run in runs),
        flags=tuple(sorted(set().union(*(run.flags for run in runs)))),
        feature_probe=runs[0].family.feature_probe or probe.family,
        target_flags={run.target.name: tuple(sorted(run.flags)) for run in runs},
    )


def _flag(run: Run, losses: Floats, source: Source, labels: Labels, batch: int) -> None:
    """Add `diverged` and `collapsed` where they apply."""
    if not losses.sum(1).mean() <= TOO_MUCH * _trivial_bits(run, labels):
        run.flags.add("diverged")
    if _ignores_inputs(run, source, labels, min(batch, WATCHED)):
        run.flags.add("collapsed")


def _trivial_bits(run: Run, labels: Labels) -> float:
    """Return the test loss of what needs no fit: the anchors, or each bit's rate in train."""
    bits, anchors = labels.of("test", run.target, slice(None))
    if anchors is None:
        rates = labels.of("train", run.target, slice(None))[0].mean(0).clamp(1e-4, 1 - 1e-4)
        anchors = torch.logit(rates).expand_as(bits)
    return float(bits_lost(anchors, bits).sum(1).double().mean())


@torch.inference_mode()
def _ignores_inputs(run: Run, source: Source, labels: Labels, batch: int) -> bool:
    """Return whether predictions stay the same when scenes swap their representations."""
    inputs, scenes = next(iter(source.split("test", batch)))
    if isinstance(inputs, Tensor):
        other: Inputs = inputs.roll(1, 0)
    else:
        cls = None if inputs.cls is None else inputs.cls.roll(1, 0)
        other = Tokens(inputs.patches.roll(1, 0), cls)
    given = labels.of("test", run.target, scenes)
    here, there = (run.family(x, *given).sigmoid() for x in (inputs, other))
    return bool((here - there).abs().mean() < CONSTANT)


def _weights(runs: list[Run], source: Source) -> dict[str, Floats]:
    weights = {
        f"{run.target.name}.{name}": value.cpu().numpy().copy()
        for run in runs
        for name, value in run.family.state_dict().items()
    }
    for name, scaling in source.standardisers.items():
        weights[f"standardise.{name}.mean"] = scaling.mean
        weights[f"standardise.{name}.scale"] = scaling.scale
    return weights


def _metadata(probe: AnyProbe, data: ProbeData, source: Source, runs: list[Run]) -> dict[str, Any]:
    return {
        "probe": probe.model_dump(mode="json"),
        "sizes": list(data.sizes),
        "dim": source.shape.dim,
        "cls": source.shape.cls,
        "best_step": {run.target.name: run.best_step for run in runs},
        "options": {run.target.name: run.options for run in runs},
    }


def _for_seed(result: FitResult, seed: int) -> FitResult:
    """Return the result of a fit that no seed changes, under a seed."""
    history = [row | {"seed": seed} for row in result.history]
    return replace(result, seed=seed, history=history)
