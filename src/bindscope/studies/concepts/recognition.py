"""Which values and objects can be read from embeddings: by linear probes, or by queries.

Probes are linear maps, one per concept type and one for objects, fitted by cross-entropy to the
share that each value or object has of a scene's slots (equal ones count once; specification,
section 2.3).  Embeddings are centred by the mean of the training scenes, beside a constant of their
own size; the ridge is a multiple of the mean square of a coordinate after that. So neither the unit
of the embedding nor an offset that all scenes share has an effect.

Queries (section 2.2): the cosine of a scene's embedding with that of each value or object, from
the other modality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.fitting.lbfgs import descend
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import (
    RESAMPLES,
    SCENES_AT_ONCE,
    Accuracy,
    accuracies,
    expected_of_objects,
    expected_of_values,
    set_separation,
    strata_of,
)

TOLERANCE = 1e-6  # nats
ITERATIONS = 1000


@dataclass(frozen=True)
class Softmax:
    """A fitted regression.

    Attributes
    ----------
    weights
        float64 (V, d).
    excess_nats
        About how far the loss is above its minimum.
    converged
        Whether that is below `TOLERANCE`.
    """

    weights: Tensor
    excess_nats: float

    @property
    def converged(self) -> bool:
        """Whether the fit ended at its optimum."""
        return self.excess_nats <= TOLERANCE


class LinearObjective(ABC):
    """A convex loss of logits Z W', as one column of weights (V d, 1).

    Logits are held, so that a trial of a line search takes no product.

    Parameters
    ----------
    z
        float64 (n, d).
    n_rows
        Rows V of W.
    ridge
        Half of it times |W|^2 is added to the loss.
    """

    def __init__(self, z: Tensor, n_rows: int, ridge: float) -> None:
        self.z, self.n_rows = z, n_rows
        self.ridge = torch.full((1, 1), ridge, dtype=z.dtype, device=z.device)
        bound = z.t() @ z / (2 * len(z))
        bound.diagonal().add_(ridge)
        self.factor: Tensor = torch.linalg.cholesky(bound)

    @abstractmethod
    def losses(self, logits: Tensor) -> Tensor:
        """Return the loss of each scene (n,) in nats."""

    @abstractmethod
    def residual(self, logits: Tensor) -> Tensor:
        """Return its derivative by the logits (n, V)."""

    def _matrix(self, w: Tensor) -> Tensor:
        return w.view(self.n_rows, -1)

    def _loss(self, logits: Tensor) -> Tensor:
        return self.losses(logits).mean()[None]

    def _slope(self, logits: Tensor) -> Tensor:
        return (self.residual(logits).t() @ self.z / len(self.z)).reshape(-1, 1)

    def begin(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and slope at some weights; see `bindscope.fitting.lbfgs`."""
        self.logits = self.z @ self._matrix(w).t()
        return self._loss(self.logits), self._slope(self.logits)

    def aim(self, w: Tensor, direction: Tensor) -> None:
        """Prepare a line search."""
        del w  # the logits at w are held
        self.change = self.z @ self._matrix(direction).t()

    def trial(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and directional derivative along it."""
        logits = self.logits + t * self.change
        return self._loss(logits), (self.residual(logits) * self.change).sum(1).mean()[None]

    def arrive(self, t: Tensor) -> Tensor:
        """Return the slope where it ended."""
        self.logits = self.logits + t * self.change
        return self._slope(self.logits)

    def keep(self, index: Tensor) -> None:
        """Nothing to drop."""
        del index  # there is one column, and when it stops all is over

    def precondition(self, g: Tensor) -> Tensor:
        """Solve with the bound of the Hessian."""
        solved: Tensor = torch.cholesky_solve(self._matrix(g).t(), self.factor)
        return solved.t().reshape(-1, 1)


class _SoftmaxObjective(LinearObjective):
    def __init__(self, z: Tensor, targets: Tensor, ridge: float) -> None:
        super().__init__(z, targets.shape[1], ridge)
        self.targets = targets

    def losses(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits, 1) - (self.targets * logits).sum(1)

    def residual(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1) - self.targets


def minimised(objective: LinearObjective) -> Softmax:
    """Minimise a loss from weights of 0 on."""
    n_rows, dim = objective.n_rows, objective.z.shape[1]
    start = objective.z.new_zeros(n_rows * dim, 1)
    descended = descend(objective, start, iterations=ITERATIONS, tolerance=TOLERANCE)
    return Softmax(descended.w.view(n_rows, -1), float(descended.decrement))


def fit_softmax(z: Tensor, targets: Tensor, ridge: float) -> Softmax:
    """Fit a softmax regression.

    Parameters
    ----------
    z
        float64 (n, d).
    targets
        Rows that sum to 1, float64 (n, V).
    ridge
        Positive: without it, separable data have no optimum.
    """
    return minimised(_SoftmaxObjective(z, targets, ridge))


RIDGE = 1e-3
NEGLIGIBLE = 1e-9  # of the mean: what scenes differ in is rounding


@dataclass(frozen=True, eq=False)
class Readout:
    """Linear maps from embeddings to scores of values and of objects.

    Attributes
    ----------
    concepts
        Per concept type, float64 (V, d), of probes (V, d + 1).
    objects
        Of the candidates, float64 (J, d), of probes (J, d + 1).
    candidates
        Which objects these are, int64 (J,).
    converged
        Whether every fit ended at its optimum.
    unseen
        Candidates that no training scene holds.
    centre
        Of probes: what is subtracted from embeddings (d,), and the constant that stands beside
        them. Without one, embeddings are divided by their norm: scores are cosines.
    """

    concepts: tuple[Doubles, ...]
    objects: Doubles
    candidates: Integers
    converged: bool = True
    unseen: int = 0
    centre: tuple[Doubles, float] | None = None

    def concept_hits(self, z: Floats, scenes: Scenes) -> Doubles:
        """Return whether the values of each type are recognised, (n, C)."""
        z = self.scaled(z)
        hits = [
            set_separation(z @ w.T, scenes.contains_value(k)) for k, w in enumerate(self.concepts)
        ]
        return np.stack(hits, axis=1)

    def pooled_concept_hits(self, z: Floats, scenes: Scenes) -> Doubles:
        """Return whether the values of all types are, among the values of all types, (n,)."""
        every = range(len(self.concepts))
        scores = self.scaled(z) @ np.concatenate(self.concepts).T
        return set_separation(
            scores, np.concatenate([scenes.contains_value(k) for k in every], axis=1)
        )

    def object_hits(self, z: Floats, scenes: Scenes) -> Doubles:
        """Return whether the objects are recognised among the candidates, (n,)."""
        present = scenes.contains()[:, self.candidates]
        return set_separation(self.scaled(z) @ self.objects.T, present)

    def scaled(self, z: Floats) -> Doubles:
        """Return what the maps are applied to, of embeddings (n, d)."""
        return unit(z) if self.centre is None else centred(z, *self.centre)


def centred(z: Floats, mean: Doubles, constant: float) -> Doubles:
    """Return rows (n, d) minus a mean, a constant beside them, (n, d + 1)."""
    column = np.full((len(z), 1), constant)
    return np.concatenate([np.asarray(z, np.float64) - mean, column], axis=1)


def unit(z: Floats) -> Doubles:
    """Divide rows (n, d) by their norms; rows of zeros stay."""
    z = np.asarray(z, np.float64)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(norm > 0, norm, 1)


def fit_probes(
    z: Floats,
    scenes: Scenes,
    train: Integers,
    *,
    ridge: float = RIDGE,
    objects: bool = True,
    device: str = "cpu",
) -> Readout:
    """Fit a linear probe per concept type, and one for the objects present in the scenes.

    Parameters
    ----------
    z
        Embeddings (n, d).
    scenes
        Of the same n.
    train
        Scenes to fit on.
    ridge
        As a multiple of the mean square of a coordinate of the centred training embeddings.
    objects
        Whether to fit that of the objects.
    device
        Where they are fitted.

    Raises
    ------
    InputError
        If an embedding is not finite, or all are the same.
    """
    own_z = np.asarray(z[train], np.float64)
    mean = own_z.mean(axis=0)
    spread = float(np.sqrt(np.square(own_z - mean).mean()))
    if not np.isfinite(spread) or spread <= NEGLIGIBLE * float(np.abs(mean).max()):
        raise InputError(
            "embeddings",
            "those of the training scenes hold numbers that are not finite, or are all the same",
            "look at the model that made them; `bindscope verify` checks the files",
        )
    part = torch.from_numpy(centred(own_z, mean, spread)).to(device)
    strength = ridge * spread**2
    train_scenes = scenes.take(train)
    present: list[Flags] = [train_scenes.contains_value(k) for k in range(len(scenes.sizes))]
    if objects:
        present.append(train_scenes.contains()[:, scenes.present])
    fits = [
        fit_softmax(part, _shares(part_present).to(device), strength) for part_present in present
    ]
    weights = [fit.weights.cpu().numpy() for fit in fits]
    d = part.shape[1]
    return Readout(
        concepts=tuple(weights[: len(scenes.sizes)]),
        objects=weights[-1] if objects else np.empty((0, d)),
        candidates=scenes.present if objects else np.empty(0, np.int64),
        converged=all(fit.converged for fit in fits),
        unseen=int((~present[-1].any(axis=0)).sum()) if objects else 0,
        centre=(mean, spread),
    )


def _shares(present: Flags) -> torch.Tensor:
    numbers = present.astype(np.float64)
    return torch.from_numpy(numbers / numbers.sum(axis=1, keepdims=True))


def queries(concepts: Sequence[Floats], objects: Floats, candidates: Integers) -> Readout:
    """Read by cosine with embeddings of values and objects, of the other modality.

    Parameters
    ----------
    concepts
        Embeddings of the values of each type, (V, d).
    objects
        Of the candidates, (J, d).
    candidates
        Which objects these are, (J,).
    """
    return Readout(tuple(unit(q) for q in concepts), unit(objects), candidates)


class Recognition(NamedTuple):
    """How well values or objects are recognized in one stratum.

    `target` is `concept` (mean over types), `concept_pooled` (all types among one another) or
    `object`.
    """

    target: str
    accuracy: Accuracy


def recognise(
    readout: Readout, z: Floats, scenes: Scenes, *, resamples: int = RESAMPLES
) -> list[Recognition]:
    """Score embeddings (n, d) of scenes by frozen maps: targets by strata.

    Embeddings with NaN (what could not be reconstructed) are dropped, and counted.
    """
    return scored(readout, hits_of(readout, z, scenes), scenes, resamples=resamples)


def hits_of(readout: Readout, z: Floats, scenes: Scenes) -> dict[str, Doubles]:
    """Return the hits of scenes (n,) by target, NaN where an embedding is; a block at a time."""
    parts = []
    for start in range(0, max(len(scenes), 1), SCENES_AT_ONCE):
        batch = scenes.take(slice(start, start + SCENES_AT_ONCE))
        here = z[start : start + SCENES_AT_ONCE]
        known = np.asarray(np.isfinite(here).all(axis=1))
        here = np.where(known[:, None], here, 0)
        hits = {
            "concept": readout.concept_hits(here, batch).mean(axis=1),
            "concept_pooled": readout.pooled_concept_hits(here, batch),
        }
        if len(readout.candidates):
            hits["object"] = readout.object_hits(here, batch)
        parts.append({target: np.where(known, each, np.nan) for target, each in hits.items()})
    return {target: np.concatenate([part[target] for part in parts]) for target in parts[0]}


def scored(
    readout: Readout, hits: Mapping[str, Doubles], scenes: Scenes, *, resamples: int = RESAMPLES
) -> list[Recognition]:
    """Return recognition by targets and strata, of what `hits_of` returned of scenes."""
    expected = {
        "concept": expected_of_values(scenes, "mean"),
        "concept_pooled": expected_of_values(scenes, "pooled"),
    }
    if "object" in hits:
        expected["object"] = expected_of_objects(scenes, readout.candidates)
    measured = accuracies(hits, expected, scenes.slots, strata_of(scenes), resamples=resamples)
    return [Recognition(target, accuracy) for target, accuracy in measured]
