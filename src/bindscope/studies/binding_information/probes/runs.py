"""The heads of one seed being fitted, and their losses on a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bindscope.fitting.descent import Run
from bindscope.statistics.prior_mixtures import mixture_gains
from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import LN2, Heads, Target
from bindscope.studies.binding_information.probes.batches import Labelled, ProbeSource
from bindscope.studies.binding_information.probes.module import (
    Family,
    InputShape,
    ProbeInputs,
    build,
)

MOVED = 0.005  # a longer fit must not move the validation loss by more than this share of H(O)
TOO_MUCH = 1.25  # a loss above this many times that before the fit: diverged


def bits_lost(logits: Tensor, bits: Tensor) -> Tensor:
    """Return the binary cross-entropy of every head in bits, from logits in nats."""
    return softplus((1 - 2 * bits) * logits) / LN2


def backward(family: Family, inputs: ProbeInputs, labels: Labelled, share: float = 1.0) -> Tensor:
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


@dataclass(kw_only=True)
class ProbeRun(Run):
    """The heads of one target, or part of it, of one seed, being fitted.

    Results are of `parts` of the target that the heads are; `options` is what validation chose
    beside weights. `optimism` is, by part, by how many bits more each validation scene gains over
    the prior than it would if it had no part in that choice, float64 (N,).
    """

    seed: int
    heads: Heads
    parts: tuple[Heads, ...]
    flags: set[str] = field(default_factory=set)
    options: dict[str, Any] = field(default_factory=dict)
    optimism: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """The module."""
        assert isinstance(self.module, Family)
        return self.module

    @property
    def at_optimum(self) -> bool:
        """Whether it is a linear probe that was fitted as a convex problem."""
        return self.family.linear is None and "l2" in self.options

    def has_risen(self) -> bool:
        """Return whether the last train loss is far above the loss before the fit."""
        train = [entry.loss_bits for entry in self.history if entry.split == "train"]
        return bool(train) and train[-1] > TOO_MUCH * self.evaluations[0][1]


def start(
    probe: AnyProbe,
    heads: Heads,
    shape: InputShape,
    seed: int = 0,
    device: str = "cpu",
    parts: tuple[Heads, ...] = (),
) -> ProbeRun:
    """Return a run that begins at initial weights (see `build`)."""
    family = build(probe, heads, shape, seed, device)
    return ProbeRun(heads.name, family, seed=seed, heads=heads, parts=parts or (heads,))


def unfitted_bits(source: ProbeSource, split: str, heads: Heads) -> float:
    """Return the loss of a probe before its fit: that of the anchors, or a bit per head."""
    if not heads.anchored:
        return heads.count
    total = 0.0
    for labels in source.labels(split):
        _, anchors, truth = labels.of_heads(heads)
        assert anchors is not None
        total += float(_sum(bits_lost(anchors, truth)))
    return total / source.scenes[split]


def prior_bits(source: ProbeSource, split: str) -> float:
    """Return the cross-entropy of the exact prior over O in bits per scene, about H(O)."""
    [heads] = Target("object_anchored", source.sizes).parts
    return unfitted_bits(source, split, heads)


@torch.inference_mode()
def validate(runs: Sequence[ProbeRun], source: ProbeSource, batch: int) -> list[float]:
    """Return each run's validation loss in bits per scene, in one pass; nothing is kept of it."""
    totals: list[Tensor | float] = [0.0] * len(runs)
    n = 0
    for inputs, _, labels in source.split("val", batch):
        n += len(labels)
        for i, run in enumerate(runs):
            bits, anchors, truth = labels.of_heads(run.heads)
            totals[i] = totals[i] + _sum(bits_lost(run.family(inputs, bits, anchors), truth))
        del inputs  # the next batch takes the place of its tokens
    return [float(total) / n for total in totals]


@dataclass
class PartEvaluation:
    """Losses of one run on a split in bits, gathered batch by batch.

    Of scenes, summed over heads, float64 (N,); of heads, averaged over scenes, float64 (heads,);
    both of the anchors alone too, where there are such. With a `prior_weight` losses are those of
    the mixture of whole codes with the prior that the anchors are; it predicts bit after bit too.
    Shares are of bits that are right at threshold 0, and of scenes all of whose bits are.
    """

    scenes: npt.NDArray[np.float64]
    heads: npt.NDArray[np.float64]
    anchors: npt.NDArray[np.float64]
    anchor_heads: npt.NDArray[np.float64]
    prior_weight: float | None = None
    accuracy: float = 0.0
    exact_match: float = 0.0

    def add(self, scenes: slice, logits: Tensor, anchors: Tensor | None, truth: Tensor) -> None:
        """Take in a batch; shares and losses of heads are sums until the last one."""
        losses = bits_lost(logits, truth).cpu().numpy().astype(np.float64)
        right = (logits > 0) == (truth > 0.5)
        if anchors is not None:
            priors = bits_lost(anchors, truth).double().cpu().numpy()
            self.anchors[scenes] = priors.sum(1)
            self.anchor_heads += priors.sum(0)
            if self.prior_weight is not None:
                losses = _mixed(losses, priors, self.prior_weight)
        self.scenes[scenes] = losses.sum(1)
        self.heads = np.concatenate([self.heads[None], losses]).sum(0)  # row after row
        self.accuracy += int(right.sum())
        self.exact_match += int(right.all(1).sum())


def _mixed(
    losses: npt.NDArray[np.float64], priors: npt.NDArray[np.float64], weight: float
) -> npt.NDArray[np.float64]:
    """Return the losses (B, heads) of the mixture, bits, from those of a probe and of the prior.

    A probability that is not a number counts as 0.
    """
    losses = np.where(np.isnan(losses), np.inf, losses)
    gains = mixture_gains((priors - losses).cumsum(1), weight)
    mixed = priors - np.diff(gains, axis=1, prepend=0.0)
    return np.maximum(mixed, 0.0)  # rounding of bits that are certain


@torch.inference_mode()
def evaluate(
    runs: Sequence[ProbeRun],
    source: ProbeSource,
    split: str,
    batch: int,
    prior_weights: Mapping[str, float] | None = None,
) -> dict[str, PartEvaluation]:
    """Return losses on a split by the name of the part, in one pass.

    Those of parts with a prior's weight are the mixture's.
    """
    n, position = source.scenes[split], 0
    losses = {
        part.name: PartEvaluation(
            np.empty(n),
            np.zeros(part.count),
            np.empty(n * part.anchored),
            np.zeros(part.count * part.anchored),
            (prior_weights or {}).get(part.name),
        )
        for run in runs
        for part in run.parts
    }
    for inputs, _, labels in source.split(split, batch):
        scenes = slice(position, position + len(labels))
        for run in runs:
            bits, anchors, truth = labels.of_heads(run.heads)
            logits = run.family(inputs, bits, anchors)
            for part in run.parts:
                columns = slice(part.first - run.heads.first, part.length - run.heads.first)
                prior = None if anchors is None else anchors[:, columns]
                losses[part.name].add(scenes, logits[:, columns], prior, truth[:, columns])
        del inputs
        position += len(labels)
    for here in losses.values():
        here.accuracy /= n * len(here.heads)
        here.exact_match /= n
        here.heads /= n
        here.anchor_heads /= n
    return losses


def _sum(losses: Tensor) -> Tensor:
    """Return the sum over scenes, in double precision, of losses (B, heads)."""
    return losses.sum(1).double().sum()
