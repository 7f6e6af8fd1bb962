"""What a fit is asked for and what it returns; no torch here.

A *target* is one probe of a fit: a sequence of bits, one head per bit, teacher-forced, so that
head k sees the representation and the bits before k (spec 1, section 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

TargetName = Literal["object", "feature", "object_anchored", "chained"]
TARGETS: tuple[TargetName, ...] = ("object", "feature", "object_anchored", "chained")
# What a probe's `targets` names.
GROUPS: dict[str, tuple[TargetName, ...]] = {
    "plain": ("object", "feature"),
    "anchored": ("object_anchored",),
    "chained": ("chained",),
}
FLAGS = ("diverged", "collapsed", "not_converged")
# Which codes a target's bits are, and which anchors its logits start from, in the order of heads.
CODES: dict[str, tuple[str, ...]] = {
    "object": ("objects",),
    "feature": ("features",),
    "object_anchored": ("objects",),
    "chained": ("features", "objects"),
}
PRIORS: dict[str, tuple[str, ...]] = {
    "object_anchored": ("object",),
    "chained": ("feature", "object_given_feature"),
}
LN2 = float(np.log(2.0))

if TYPE_CHECKING:
    from bindscope.studies.binding_information.config import AnyProbe

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Heads:
    """Successive heads of a target that are fitted together: they share no weight with others.

    Attributes
    ----------
    name
        The target's name; for the two parts of `chained`, `chained_feature`, `chained_object`.
    kind
        Whether the heads predict feature bits or object bits.
    first, count
        Heads [first, first + count) of the target; head k of these sees the bits before
        first + k.
    sizes
        Sizes of the feature groups.
    anchored
        Whether the logits start from the exact prior.
    """

    name: str
    kind: Literal["object", "feature"]
    first: int
    count: int
    sizes: tuple[int, ...]
    anchored: bool

    @property
    def length(self) -> int:
        """Number of bits up to the last head: the width of the teacher-forced input."""
        return self.first + self.count

    @property
    def target(self) -> str:
        """Name of the target that the heads belong to."""
        return "chained" if self.name.startswith("chained") else self.name


@dataclass(frozen=True)
class Target:
    """One probe of a fit: which bits it predicts, and whether it starts from the exact prior.

    Parameters
    ----------
    name
        `object` and `feature` are the paper's probes (arXiv 2606.03976) over O and F;
        `object_anchored` and `chained` (heads f_1..f_n, o_1..o_K) add a learned term, zero at the
        start, to the exact prior log-odds (spec 1, section 6b).
    sizes
        Sizes of the feature groups; K is their product, n their sum.
    """

    name: TargetName
    sizes: tuple[int, ...]

    @property
    def anchored(self) -> bool:
        """Whether the logits start from the exact prior."""
        return self.name in ("object_anchored", "chained")

    @property
    def n_feature_heads(self) -> int:
        """Number of feature heads; they come first."""
        return sum(self.sizes) if self.name in ("feature", "chained") else 0

    @property
    def n_object_heads(self) -> int:
        """Number of object heads."""
        return 0 if self.name == "feature" else prod(self.sizes)

    @property
    def n_heads(self) -> int:
        """Number of heads, which is the number of bits."""
        return self.n_feature_heads + self.n_object_heads

    @property
    def parts(self) -> tuple[Heads, ...]:
        """The ranges of heads that are fitted, stopped and selected on their own."""
        n, k = self.n_feature_heads, self.n_object_heads
        both = "chained" if n and k else ""
        parts = []
        if n:
            name = f"{both}_feature" if both else self.name
            parts.append(Heads(name, "feature", 0, n, self.sizes, self.anchored))
        if k:
            name = f"{both}_object" if both else self.name
            parts.append(Heads(name, "object", n, k, self.sizes, self.anchored))
        return tuple(parts)

    def bits(self, objects: npt.NDArray[Any], features: npt.NDArray[Any]) -> Bits:
        """Return the bits to predict, uint8 (N, heads), from codes (N, K) and (N, n)."""
        codes = {"objects": objects, "features": features}
        return np.concatenate([np.asarray(codes[c], np.uint8) for c in CODES[self.name]], axis=1)

    def anchors(self, anchors: Mapping[str, npt.NDArray[Any]]) -> Floats | None:
        """Return the prior log-odds of the heads in nats, float32 (N, heads), or None."""
        if self.name not in PRIORS:
            return None
        parts = [np.asarray(anchors[part], np.float32) for part in PRIORS[self.name]]
        return np.concatenate(parts, axis=1)


def all_targets(sizes: tuple[int, ...]) -> tuple[Target, ...]:
    """Return the four targets of a fit over feature groups of these sizes."""
    return tuple(Target(name, tuple(sizes)) for name in TARGETS)


def chosen_targets(probe: AnyProbe, sizes: tuple[int, ...]) -> tuple[Target, ...]:
    """Return the targets that a probe asks for."""
    asked = [name for group in probe.targets for name in GROUPS[group]]
    return tuple(target for target in all_targets(sizes) if target.name in asked)


def all_parts(sizes: tuple[int, ...]) -> tuple[Heads, ...]:
    """Return what a fit fits: the parts of the four targets."""
    return tuple(part for target in all_targets(sizes) for part in target.parts)


@dataclass(frozen=True)
class FitResult:
    """One seed of one fit.

    Attributes
    ----------
    seed
        The seed.
    losses
        Part of a target -> test loss of every scene in BITS, summed over heads, float64 (N_test,).
        Averaged over scenes: the cross-entropy in bits per scene. The parts of `chained` are
        `chained_feature` and `chained_object`. Losses of every scene *and* head are not kept: they
        would be the one thing of a fit that is large in both.
    head_losses
        Target -> test loss of every head in BITS, averaged over scenes, float64 (heads,). The first
        n heads of `chained` are feature heads.
    val_loss_bits
        Target, and parts of `chained` -> validation loss in bits per scene, of the same weights.
    accuracy_object, exact_match_object, accuracy_feature
        Test accuracy per bit of O, share of scenes whose K bits are all right, and accuracy per
        bit of F; at threshold 0 of the teacher-forced logits of the plain probes.
    history
        Rows {seed, target, step, split, loss_bits}, split `train` or `val`. `chained` is the sum
        of `chained_feature` and `chained_object`, which have rows too. For `linear` the steps of
        successive ridge strengths follow each other.
    weights
        Flat name -> array, float32; `metadata` says how to rebuild the probe from them.
    metadata
        JSON: family, options, targets, shapes.
    steps
        Optimiser steps of the longest of the four fits.
    flags
        The sorted union of `target_flags`.
    target_flags
        Target -> flags out of `diverged`, `collapsed`, `not_converged`.
    feature_probe
        The family that fitted the feature heads.
    """

    seed: int
    losses: dict[str, npt.NDArray[np.float64]]
    head_losses: dict[str, npt.NDArray[np.float64]]
    val_loss_bits: dict[str, float]
    accuracy_object: float
    exact_match_object: float
    accuracy_feature: float
    history: list[dict[str, Any]]
    weights: dict[str, Floats]
    metadata: dict[str, Any]
    steps: int
    flags: tuple[str, ...]
    feature_probe: str
    target_flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
