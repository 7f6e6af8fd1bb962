"""Every approximator by name, and how what it predicts is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from bindscope.studies.concepts.complexity.coordinates import Starts, fit_coordinates
from bindscope.studies.concepts.complexity.descended import (
    Descending,
    fit_descended,
    learners_at_once,
)
from bindscope.studies.concepts.complexity.fitted import Fitted
from bindscope.studies.concepts.complexity.models import Perceptron, Structured
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.least_squares import one_hot_fit, one_hot_sum, value_columns
from bindscope.studies.concepts.recognition import Readout, Recognition, hits_of, scored
from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.set_separation import RESAMPLES

Kind = Literal["additive", "per_object", "global", "mlp", "forest", "booster"]


@dataclass(frozen=True)
class Approximator:
    """A family of maps from the values of a scene to its embedding.

    Attributes
    ----------
    kind
        `additive`: a vector per value and slot. `per_object`, `global`: products of such vectors
        within each object, or of all, in addition. `mlp`. `forest`, `booster`: trees.
    widths
        Of the hidden layers of `mlp`.
    rank
        Dimensions of products before a linear map; 0: no map, and products in the embedding's own
        dimensions.
    descending
        Of `mlp` and of products with a map.
    starts
        Of products without one.
    components, rounds
        Of trees.
    """

    kind: Kind
    widths: tuple[int, ...] = (256,)
    rank: int = 0
    descending: Descending = field(default_factory=Descending)
    starts: Starts = field(default_factory=Starts)
    components: int = 64
    rounds: int = 300

    @property
    def name(self) -> str:
        """The kind, with what tells members of its family apart."""
        if self.kind == "mlp":
            return "mlp " + "-".join(map(str, self.widths))
        return f"{self.kind}, rank {self.rank}" if self.rank else self.kind

    @property
    def terms(self) -> tuple[str, ...]:
        """What a structured approximator adds up."""
        return ("additive",) if self.kind == "additive" else ("additive", self.kind)


def approximate(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    splits: Sequence[ObjectSplit],
    device: str = "cpu",
) -> Fitted:
    """Fit an approximator to each of several splits of one coverage; copies are in their order.

    Parameters
    ----------
    approximator
        Which.
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    splits
        Their seeds are those of the fits as well; learners that descend together take the first.
    device
        Where perceptrons and products are fitted.
    """
    return _together([fit for _, fit in _by_parts(approximator, z, scenes, splits, device)])


def _by_parts(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    splits: Sequence[ObjectSplit],
    device: str,
) -> Iterator[tuple[Sequence[ObjectSplit], Fitted]]:
    """Yield the fits of some splits at a time, no more than fit in memory together."""
    kind, dim = approximator.kind, z.shape[1]
    if kind == "mlp" or approximator.rank:

        def build(copies: int, generator: torch.Generator) -> nn.Module:
            shape = (scenes.sizes, scenes.n_slots, dim, copies)
            if kind == "mlp":
                return Perceptron(*shape, approximator.widths, generator)
            return Structured(*shape, approximator.terms, approximator.rank, generator)

        width = sum(approximator.widths) if kind == "mlp" else 2 * approximator.rank
        size = learners_at_once(build, z.shape, max(len(s.train) for s in splits), width)
        for start in range(0, len(splits), size):
            some = splits[start : start + size]
            descending, seed = approximator.descending, some[0].seed
            yield some, fit_descended(z, scenes, some, build, descending, seed, device)
        return
    for split in splits:
        yield [split], _fit_one(approximator, z, scenes, split, device)


def _fit_one(
    approximator: Approximator, z: Floats, scenes: Scenes, split: ObjectSplit, device: str
) -> Fitted:
    if approximator.kind in ("forest", "booster"):
        from bindscope.studies.concepts.complexity.trees import fit_trees  # imports scikit-learn

        kind: Literal["forest", "booster"] = (
            "forest" if approximator.kind == "forest" else "booster"
        )
        return fit_trees(kind, z, scenes, split, approximator.components, approximator.rounds)
    if approximator.kind == "additive":
        return _additive(z, scenes, split)
    return fit_coordinates(
        z, scenes, split, approximator.terms, approximator.starts, split.seed, device
    )


def _additive(z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    own = np.asarray(z[split.train], np.float64)
    mean, columns = own.mean(axis=0), value_columns(scenes)
    n_columns = scenes.n_slots * sum(scenes.sizes)
    table = one_hot_fit(columns[split.train], n_columns, own - mean)
    predicted = mean + one_hot_sum(table, columns)
    loss = 1 - r_squared(own, predicted[split.train])
    return Fitted(
        predicted[None].astype(np.float32), "final", np.array([[loss]]), table.size, [True]
    )


def _together(fits: Sequence[Fitted]) -> Fitted:
    return Fitted(
        np.concatenate([fit.predicted for fit in fits]),
        fits[0].selected,
        np.concatenate([fit.losses for fit in fits], axis=1),
        fits[0].parameters,
        [ended for fit in fits for ended in fit.ended],
    )


@dataclass(frozen=True)
class Approximation:
    """How well an approximator predicts the scenes of a subset, over splits of one coverage.

    Attributes
    ----------
    approximator, selection, subset
        Names; see `Approximator.name`, `Fitted.selected`, `ObjectSplit.subsets`.
    coverage, n_splits
        Of the splits.
    n_fitted_objects
        Objects that it was fitted on, without those that validate.
    r2, r2_global
        Against the mean of the subset, and that of all scenes; means over splits.
    n_scenes, n_train
        Scenes of the subset in all splits, and the fewest that trained.
    parameters, ended
        Of the fit; whether all came to their end.
    absent_values
        Values that no training object has, the most of all splits.
    probed
        What frozen probes, which know all objects, recognise in what is predicted: scenes of all
        splits together, with an interval over objects.
    """

    approximator: str
    selection: str
    subset: str
    coverage: float
    n_splits: int
    n_fitted_objects: int
    r2: float
    r2_global: float
    n_scenes: int
    n_train: int
    parameters: int | None
    ended: bool
    absent_values: int
    probed: tuple[Recognition, ...]


def approximations(
    approximator: Approximator,
    z: Floats,
    scenes: Scenes,
    readout: Readout,
    splits: Sequence[ObjectSplit],
    subsets: Sequence[str] = ("train", "mixed", "test"),
    *,
    resamples: int = RESAMPLES,
    device: str = "cpu",
) -> list[Approximation]:
    """Fit an approximator to splits of one coverage and score it on subsets that hold a scene.

    Intervals resample objects. Further splits of the same objects make a mean more exact, and are
    no further objects. Of what was predicted, only hits outlive the fits of a part of the splits.
    """
    mean = np.asarray(z, np.float64).mean(axis=0)
    scores: dict[str, list[_Score]] = {subset: [] for subset in subsets}
    ended, last = True, None
    for some, fitted in _by_parts(approximator, z, scenes, splits, device):
        ended, last = ended and all(fitted.ended), fitted
        for split, predicted in zip(some, fitted.predicted, strict=True):
            for subset in subsets:
                if len(index := split.subsets[subset]):
                    own, asked = predicted[index], scenes.take(index)
                    r2 = r_squared(z[index], own), r_squared(z[index], own, mean)
                    scores[subset].append(_Score(asked, *r2, hits_of(readout, own, asked)))
    assert last is not None
    rows = []
    for subset, found in scores.items():
        if not found:
            continue
        asked = Scenes(np.concatenate([one.asked.slots for one in found]), scenes.sizes)
        hits = {name: np.concatenate([one.hits[name] for one in found]) for name in found[0].hits}
        rows.append(
            Approximation(
                approximator.name,
                last.selected,
                subset,
                splits[0].coverage,
                len(splits),
                len(splits[0].fitted_objects),
                float(np.mean([one.r2 for one in found])),
                float(np.mean([one.r2_global for one in found])),
                len(asked),
                min(len(split.train) for split in splits),
                last.parameters,
                ended,
                max(split.absent_values for split in splits),
                tuple(scored(readout, hits, asked, resamples=resamples)),
            )
        )
    return rows


class _Score(NamedTuple):
    """How one split's predictions of a subset score."""

    asked: Scenes
    r2: float
    r2_global: float
    hits: dict[str, Doubles]
