"""Targets of a fit, and its results; no torch here.

A *target* is one probe of a fit: a sequence of bits, one head per bit, teacher-forced, so that
head k sees the representation and the bits before k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bindscope.core.array_types import Singles

TargetName = Literal["object", "feature", "object_anchored", "chained"]
TARGETS: tuple[TargetName, ...] = ("object", "feature", "object_anchored", "chained")
# What a probe's `targets` names.
GROUPS: dict[str, tuple[TargetName, ...]] = {
    "plain": ("object", "feature"),
    "anchored": ("object_anchored",),
    "chained": ("chained",),
}
PRIOR = "prior"
LN2 = float(np.log(2.0))

if TYPE_CHECKING:
    from bindscope.studies.binding_information.config import AnyProbe


@dataclass(frozen=True)
class Heads:
    """Successive heads of a target that are fitted together: they share no weight with others.

    `name` is the target's, of the parts of `chained` `chained_feature`, `chained_counts` and
    `chained_object`. They are [first, first + count) of the target; head k of these sees the bits
    before first + k. `codes` name the labels that the target's bits are, up to these heads,
    `priors` the anchors that logits start from, the exact prior of these bits (none: from 0).
    """

    name: str
    kind: Literal["object", "feature", "count"]
    first: int
    count: int
    sizes: tuple[int, ...]
    codes: tuple[str, ...]
    priors: tuple[str, ...] = ()

    @property
    def anchored(self) -> bool:
        """Whether the logits start from the exact prior."""
        return bool(self.priors)

    @property
    def reads(self) -> tuple[int, int, str]:
        """What is the same of all heads that read the same bits."""
        # Before the first head of a later part of the chain stand those of others.
        return self.first, self.length, self.name if self.first else self.kind

    @property
    def length(self) -> int:
        """Number of bits up to the last head: the width of the teacher-forced input."""
        return self.first + self.count


@dataclass(frozen=True)
class Target:
    """One probe of a fit: which bits it predicts, and whether it starts from the exact prior.

    `object` and `feature` are the paper's probes (arXiv 2606.03976) over O and F; `object_anchored`
    and `chained` add a learned term, zero at the start, to the exact prior log-odds. `chained`
    predicts F, then the T counts of the values given F, then O given both; with `n_counts` 0, where
    counts follow from F or have no anchors, it is F, and O given F. K is the product of `sizes`, n
    their sum.
    """

    name: TargetName
    sizes: tuple[int, ...]
    n_counts: int = 0

    @property
    def parts(self) -> tuple[Heads, ...]:
        """The ranges of heads that are fitted, stopped and selected on their own."""
        n, k = sum(self.sizes), prod(self.sizes)
        if self.name == "feature":
            return (Heads("feature", "feature", 0, n, self.sizes, ("features",)),)
        if self.name != "chained":
            priors = ("object",) if self.name == "object_anchored" else ()
            return (Heads(self.name, "object", 0, k, self.sizes, ("objects",), priors),)
        chain: list[tuple[Literal["object", "feature", "count"], str, int, str, str]] = [
            ("feature", "chained_feature", n, "features", "feature"),
            ("object", "chained_object", k, "objects", "object_given_feature"),
        ]
        if self.n_counts:
            chain[1:] = [
                ("count", "chained_counts", self.n_counts, "counts", "counts_given_feature"),
                ("object", "chained_object", k, "objects", "object_given_counts"),
            ]
        parts: list[Heads] = []
        codes: tuple[str, ...] = ()
        first = 0
        for kind, name, count, code, prior in chain:
            codes = (*codes, code)
            parts.append(Heads(name, kind, first, count, self.sizes, codes, (prior,)))
            first += count
        return tuple(parts)

    def heads(self, jointly: bool) -> tuple[Heads, ...]:
        """Return what is fitted at a time: the parts, or all heads of the target as one."""
        parts = self.parts
        if len(parts) == 1 or not jointly:
            return parts
        priors = tuple(name for part in parts for name in part.priors)
        last = parts[-1]
        return (Heads(self.name, last.kind, 0, last.length, self.sizes, last.codes, priors),)


def chosen_targets(
    probe: AnyProbe, sizes: tuple[int, ...], n_counts: int = 0
) -> tuple[Target, ...]:
    """Return the targets that a probe asks for."""
    names = [name for group in probe.targets for name in GROUPS[group]]
    return tuple(Target(name, tuple(sizes), n_counts) for name in TARGETS if name in names)


def all_parts(sizes: tuple[int, ...]) -> tuple[Heads, ...]:
    """Return what a fit without count bits fits: the parts of the four targets."""
    return tuple(part for name in TARGETS for part in Target(name, sizes).parts)


@dataclass(frozen=True)
class FitResult:
    """One seed of one fit.

    Attributes
    ----------
    losses
        Part of a target -> test loss of every scene in BITS, summed over heads, float64 (N_test,).
        The parts of `chained` are `chained_feature`, `chained_counts` (where there are count bits)
        and `chained_object`; targets that were not fitted are absent. Those of parts with anchors
        are losses of the mixture with the exact prior (`statistics.prior_mixtures`).
    head_losses
        Target -> test loss of every head in BITS, averaged over scenes, float64 (heads,). The first
        n heads of `chained` are feature heads, the last K object heads.
    anchor_losses, anchor_head_losses
        The same of the anchors alone, where probes start from them: what the exact prior pays.
    val_loss_bits
        Target, and parts of `chained` -> validation loss in bits per scene, of the same weights;
        of parts with anchors without what a scene gains by its part in the choice of a ridge.
    prior_weights, control_coefficients
        Part with anchors -> weight of the exact prior in the mixture, and coefficient of the
        prior's loss as a control variate (`statistics.control_variates`), both from validation.
    shares
        `accuracy_<target>` and `exact_match_<target>` of the targets `object` and `feature`: test
        accuracy per bit, and share of scenes whose bits are all right; at threshold 0 of the
        teacher-forced logits of the plain probes. NaN where not fitted.
    history
        Rows {seed, target, step, split, loss_bits}, split `train` or `val`; `chained` is the sum of
        its parts, which have rows too. Steps of successive ridges of `linear` follow each other.
    weights, metadata
        Flat name -> array, float32, and JSON that says how to rebuild the probe from them.
    steps
        Optimiser steps of the longest of the four fits.
    flags, target_flags
        Target, and parts of `chained` -> flags out of `diverged`, `collapsed`, `not_converged` and
        `prior` (the mixture is the exact prior alone), and their sorted union.
    feature_probe
        The family that fitted the feature heads.
    """

    seed: int
    losses: dict[str, npt.NDArray[np.float64]]
    head_losses: dict[str, npt.NDArray[np.float64]]
    val_loss_bits: dict[str, float]
    shares: dict[str, float]
    history: list[dict[str, Any]]
    weights: dict[str, Singles]
    metadata: dict[str, Any]
    steps: int
    flags: tuple[str, ...]
    feature_probe: str
    target_flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    anchor_losses: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    anchor_head_losses: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    prior_weights: dict[str, float] = field(default_factory=dict)
    control_coefficients: dict[str, float] = field(default_factory=dict)
