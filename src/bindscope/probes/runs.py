"""The heads of one seed being fitted, their labels, and its losses on a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.config.probes import AnyProbe
from bindscope.probes.base import LN2, Heads, all_targets
from bindscope.probes.batches import Source, rng
from bindscope.probes.data import ProbeData
from bindscope.probes.module import Family, Inputs, InputShape
from bindscope.registries import FAMILIES, resolve

MOVED = 0.005  # a longer fit must not move the validation loss by more than this share of H(O)
TOO_MUCH = 1.25  # a loss above this many times that before the fit: diverged
EVERYTHING = slice(None)
Labelled: TypeAlias = tuple[Tensor, Tensor | None, Tensor]
RESTART = 0.8  # share of a fit after which movement counts as that of a longer fit


def bits_lost(logits: Tensor, bits: Tensor) -> Tensor:
    """Return the binary cross-entropy of every head in bits, from logits in nats."""
    return softplus((1 - 2 * bits) * logits) / LN2


def backward(family: Family, inputs: Inputs, labels: Labelled, share: float = 1.0) -> Tensor:
    """Add the gradients of `share` of the loss in bits per scene; return the loss.

    The gradient of the cross-entropy is written out, sigmoid(margin) per bit: what autograd would
    compute by twice as many passes over the logits.
    """
    bits, anchors, truth = labels
    logits = family(inputs, bits, anchors)
    with torch.no_grad():
        sign = 1 - 2 * truth
        margins = sign * logits
        scale = share / (len(truth) * LN2)
        logits.backward(margins.sigmoid().mul_(sign).mul_(scale))  # type: ignore[no-untyped-call]
        return softplus(margins).sum() / (len(truth) * LN2)


class Labels:
    """Bits and anchors of all targets and splits, on the device."""

    def __init__(self, data: ProbeData, device: torch.device) -> None:
        self.bits: dict[tuple[str, str], Tensor] = {}
        self.anchors: dict[tuple[str, str], Tensor] = {}
        for name, split in data.splits.items():
            for target in all_targets(data.sizes):
                bits = target.bits(split.objects, split.features)
                self.bits[name, target.name] = torch.from_numpy(bits).to(device)
                anchors = target.anchors(split.anchors)
                if anchors is not None:
                    self.anchors[name, target.name] = torch.from_numpy(anchors).to(device)

    def of(self, split: str, heads: Heads, scenes: Tensor | slice = EVERYTHING) -> Labelled:
        """Return the bits that go in, the anchors or None, and the bits to predict.

        Floats (B, length), (B, heads) and (B, heads).
        """
        key = (split, "chained" if heads.name.startswith("chained") else heads.name)
        bits = self.bits[key][scenes, : heads.length].float()
        anchors = None
        if heads.anchored:
            anchors = self.anchors[key][scenes, heads.first : heads.length]
        return bits, anchors, bits[:, heads.first :]

    def prior_bits(self, split: str) -> float:
        """Return the cross-entropy of the exact prior over O in bits per scene, about H(O)."""
        key = (split, "object_anchored")
        return float(bits_lost(self.anchors[key], self.bits[key].float()).sum(1).double().mean())


@dataclass
class Run:
    """The heads of one target, or part of it, of one seed, being fitted.

    Attributes
    ----------
    best, best_loss, best_step
        Weights of the smallest validation loss so far, that loss in bits, and its step.
    evaluations
        (step, validation loss) in order.
    steps
        Optimiser steps taken.
    """

    seed: int
    heads: Heads
    family: Family
    best: dict[str, Tensor] = field(default_factory=dict)
    best_loss: float = float("inf")
    best_step: int = 0
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    flags: set[str] = field(default_factory=set)
    options: dict[str, Any] = field(default_factory=dict)

    def record(self, step: int, split: str, loss: float) -> None:
        """Add a row to the history, unless the loss is not finite (it is a flag then)."""
        if not np.isfinite(loss):
            self.flags.add("diverged")
            return
        self.history.append(
            {"seed": self.seed, "target": self.heads.name, "step": step, "split": split}
            | {"loss_bits": round(loss, 6)}
        )

    def validated(self, step: int, loss: float) -> None:
        """Take note of a validation loss; keep the weights if it is the best."""
        self.record(step, "val", loss)
        self.evaluations.append((step, loss))
        if loss < self.best_loss:
            self.best_loss, self.best_step = loss, step
            self.best = {k: v.detach().clone() for k, v in self.family.state_dict().items()}

    def moved_since(self, step: int) -> float:
        """Return by how many bits the best validation loss fell after a step."""
        before = min((loss for at, loss in self.evaluations if at <= step), default=np.inf)
        after = min((loss for at, loss in self.evaluations if at > step), default=np.inf)
        return float(max(before - after, 0.0)) if np.isfinite(before - after) else 0.0

    def risen(self) -> bool:
        """Return whether the last train loss is far above the loss before the fit."""
        train = [row["loss_bits"] for row in self.history if row["split"] == "train"]
        return bool(train) and train[-1] > TOO_MUCH * self.evaluations[0][1]

    def restore(self) -> None:
        """Load the best weights."""
        self.family.load_state_dict(self.best)


def build(
    probe: AnyProbe, heads: Heads, shape: InputShape, seed: int = 0, device: str = "cpu"
) -> Family:
    """Return a probe with its initial weights, which depend on the seed and the heads alone."""
    key = rng(seed, 0, *heads.name.encode()).integers(2**63)
    generator = torch.Generator().manual_seed(int(key))
    family: type[Family] = resolve(FAMILIES[probe.family])
    if heads.kind == "feature" and family.feature_family:
        family = family.feature_family
    return family(probe, heads, shape, generator).to(device)


@torch.inference_mode()
def predict(
    runs: Sequence[Run], source: Source, labels: Labels, split: str, batch: int
) -> list[Tensor]:
    """Return each run's logits over a split, (N, heads) on the device, in one pass."""
    parts: list[list[Tensor]] = [[] for _ in runs]
    for inputs, scenes in source.split(split, batch):
        for run, part in zip(runs, parts, strict=True):
            part.append(run.family(inputs, *labels.of(split, run.heads, scenes)[:2]))
    return [torch.cat(part) for part in parts]


@torch.inference_mode()
def validate(runs: Sequence[Run], source: Source, labels: Labels, batch: int) -> list[float]:
    """Return each run's validation loss in bits per scene."""
    losses = []
    for run, logits in zip(runs, predict(runs, source, labels, "val", batch), strict=True):
        truth = labels.of("val", run.heads)[2]
        losses.append(float(bits_lost(logits, truth).sum(1).double().mean()))
    return losses
