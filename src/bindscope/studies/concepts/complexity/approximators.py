"""Every approximator by name, and how what it foretells is scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import nn

from bindscope.studies.concepts.complexity.coordinates import Starts, fit_coordinates
from bindscope.studies.concepts.complexity.descended import Descending, fit_descended
from bindscope.studies.concepts.complexity.fitted import Fitted
from bindscope.studies.concepts.complexity.models import Perceptron, Structured
from bindscope.studies.concepts.complexity.splits import ObjectSplit
from bindscope.studies.concepts.decomposition import r_squared
from bindscope.studies.concepts.least_squares import one_hot_fit, one_hot_sum, value_columns
from bindscope.studies.concepts.recognition import Readout, Recognition, recognise
from bindscope.studies.concepts.scenes import Floats, Scenes

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
    approximator: Approximator, z: Floats, scenes: Scenes, splits: Sequence[ObjectSplit]
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
    """
    kind, dim = approximator.kind, z.shape[1]
    if kind == "mlp" or approximator.rank:

        def build(copies: int, generator: torch.Generator) -> nn.Module:
            shape = (scenes.sizes, scenes.n_slots, dim, copies)
            if kind == "mlp":
                return Perceptron(*shape, approximator.widths, generator)
            return Structured(*shape, approximator.terms, approximator.rank, generator)

        return fit_descended(z, scenes, splits, build, approximator.descending, splits[0].seed)
    return _together([_fit_one(approximator, z, scenes, split) for split in splits])


def _fit_one(approximator: Approximator, z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    if approximator.kind in ("forest", "booster"):
        from bindscope.studies.concepts.complexity.trees import fit_trees  # imports scikit-learn

        return fit_trees(
            "forest" if approximator.kind == "forest" else "booster",
            z,
            scenes,
            split,
            components=approximator.components,
            rounds=approximator.rounds,
            seed=split.seed,
        )
    if approximator.kind == "additive":
        return _additive(z, scenes, split)
    return fit_coordinates(z, scenes, split, approximator.terms, approximator.starts, split.seed)


def _additive(z: Floats, scenes: Scenes, split: ObjectSplit) -> Fitted:
    own = np.asarray(z[split.train], np.float64)
    mean, columns = own.mean(axis=0), value_columns(scenes)
    n_columns = scenes.n_slots * sum(scenes.sizes)
    table = one_hot_fit(columns[split.train], n_columns, own - mean)
    predicted = mean + one_hot_sum(table, columns)
    loss = 1 - r_squared(own, predicted[split.train])
    found = {"final": predicted[None].astype(np.float32)}
    return Fitted(found, np.array([[loss]]), table.size, [True])


def _together(fits: Sequence[Fitted]) -> Fitted:
    names = [name for name in fits[0].predicted if all(name in fit.predicted for fit in fits)]
    return Fitted(
        {name: np.concatenate([fit.predicted[name] for fit in fits]) for name in names},
        np.concatenate([fit.losses for fit in fits], axis=1),
        fits[0].parameters,
        [ended for fit in fits for ended in fit.ended],
    )


@dataclass(frozen=True)
class Approximation:
    """How well an approximator of one split foretells the scenes of a subset.

    Attributes
    ----------
    approximator, selection, subset
        Names; see `Approximator.name`, `fitted.SELECTIONS`, `ObjectSplit.subsets`.
    coverage, seed
        Of the split.
    r2, r2_global
        Against the mean of the subset, and that of all scenes.
    n_scenes, n_train
        Scenes of the subset, and those that trained.
    parameters, ended
        Of the fit.
    absent_values
        Values that no training object has.
    probed
        What frozen probes, which know all objects, recognise in what is foretold.
    """

    approximator: str
    selection: str
    subset: str
    coverage: float
    seed: int
    r2: float
    r2_global: float
    n_scenes: int
    n_train: int
    parameters: int
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
    resamples: int = 0,
) -> list[Approximation]:
    """Fit an approximator to splits of one coverage and score it on subsets that hold a scene.

    Intervals are over seeds (`bindscope.statistics.means`), so that there is no bootstrap by
    default.
    """
    fitted = approximate(approximator, z, scenes, splits)
    mean = np.asarray(z, np.float64).mean(axis=0)
    rows = []
    for i, split in enumerate(splits):
        for selection, predicted in fitted.predicted.items():
            for subset in subsets:
                index = split.subsets[subset]
                if not len(index):
                    continue
                own = predicted[i, index]
                probed = recognise(readout, own, scenes.take(index), resamples=resamples)
                rows.append(
                    Approximation(
                        approximator.name,
                        selection,
                        subset,
                        split.coverage,
                        split.seed,
                        r_squared(z[index], own),
                        r_squared(z[index], own, mean),
                        len(index),
                        len(split.train),
                        fitted.parameters,
                        fitted.ended[i],
                        split.absent_values,
                        tuple(probed),
                    )
                )
    return rows
