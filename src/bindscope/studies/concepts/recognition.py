"""Which values and objects are recognized in embeddings: by linear probes, or by queries.

Probes are linear maps, one per concept type and one for objects, fitted by cross-entropy to the
share that each value or object has of a scene's slots (equal ones count once). Embeddings are
centered by the mean of the training scenes, beside a constant of their size; the ridge is a
multiple of the mean square of a coordinate after that. So neither the unit of the embedding nor an
offset that all scenes share has an effect.

Queries score by the cosine of a scene's embedding with that of each value or object, from the
other modality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bindscope.core.errors import InputError
from bindscope.fitting.lbfgs import descend
from bindscope.studies.concepts.rows import Row
from bindscope.studies.concepts.scenes import Doubles, Flags, Floats, Integers, Scenes
from bindscope.studies.concepts.set_separation import (
    SCENES_AT_ONCE,
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
    """A fitted regression."""

    weights: Tensor  # float64 (V, d)
    excess_nats: float  # about how far the loss is above its minimum

    @property
    def converged(self) -> bool:
        """Whether the fit ended at its optimum."""
        return self.excess_nats <= TOLERANCE


class LinearObjective(ABC):
    """A convex loss of logits Z W', Z float64 (n, d), as one column of weights (V d, 1).

    Half of the ridge times |W|^2 is added. Logits are held, so that a trial of a line search takes
    no product. Methods: `bindscope.fitting.lbfgs.Objective`.
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
        """Return loss and slope at some weights."""
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


def minimize(objective: LinearObjective) -> Softmax:
    """Minimise a loss from weights of 0 on."""
    n_rows, dim = objective.n_rows, objective.z.shape[1]
    start = objective.z.new_zeros(n_rows * dim, 1)
    descended = descend(objective, start, iterations=ITERATIONS, tolerance=TOLERANCE)
    return Softmax(descended.w.view(n_rows, -1), float(descended.decrement))


def fit_softmax(z: Tensor, targets: Tensor, ridge: float) -> Softmax:
    """Fit a softmax regression of rows that sum to 1, (n, V), on float64 (n, d).

    The ridge is positive: without it, separable data have no optimum.
    """
    return minimize(_SoftmaxObjective(z, targets, ridge))


RIDGE = 1e-3  # as a multiple of the mean square of a coordinate
NEGLIGIBLE = 1e-9  # of the mean: what scenes differ in is rounding


@dataclass(frozen=True, eq=False)
class Readout:
    """Linear maps from embeddings to scores of values and of objects.

    Those of probes have a further column, of the constant beside centered embeddings.
    """

    concepts: tuple[Doubles, ...]  # per concept type, (V, d)
    objects: Doubles  # of the candidates, (J, d)
    candidates: Integers  # which objects these are, (J,)
    converged: bool = True  # whether every fit ended at its optimum
    unseen: int = 0  # candidates that no training scene holds
    # Of probes: what is subtracted from embeddings (d,), and the constant. Without it, embeddings
    # are divided by their norm: scores are cosines.
    center: tuple[Doubles, float] | None = None

    def concept_hits(self, z: Floats, scenes: Scenes) -> Doubles:
        """Return whether the values of each type are recognized, (n, C)."""
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
        """Return whether the objects are recognized among the candidates, (n,)."""
        present = scenes.contains()[:, self.candidates]
        return set_separation(self.scaled(z) @ self.objects.T, present)

    def scaled(self, z: Floats) -> Doubles:
        """Return what the maps are applied to, of embeddings (n, d)."""
        return unit(z) if self.center is None else centered(z, *self.center)


def centered(z: Floats, mean: Doubles, constant: float) -> Doubles:
    """Return rows (n, d) minus a mean, a constant beside them, (n, d + 1)."""
    column = np.full((len(z), 1), constant)
    return np.concatenate([np.asarray(z, np.float64) - mean, column], axis=1)


def unit(z: Floats) -> Doubles:
    """Divide rows (n, d) by their norms; rows of zeros stay."""
    z = np.asarray(z, np.float64)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(norm > 0, norm, 1)


def fit_probes(z: Floats, scenes: Scenes, train: Integers, *, device: str = "cpu") -> Readout:
    """Fit a linear probe per concept type, and one for the objects present in the scenes.

    Embeddings (n, d) of n scenes, of which `train` are fitted. Raises `InputError` if one is not
    finite, or all are the same.
    """
    fitted = np.asarray(z[train], np.float64)
    mean = fitted.mean(axis=0)
    spread = float(np.sqrt(np.square(fitted - mean).mean()))
    if not np.isfinite(spread) or spread <= NEGLIGIBLE * float(np.abs(mean).max()):
        raise InputError(
            "embeddings",
            "those of the training scenes hold numbers that are not finite, or are all the same",
            "look at the model that made them; `bindscope verify` checks the files",
        )
    part = torch.from_numpy(centered(fitted, mean, spread)).to(device)
    strength = RIDGE * spread**2
    train_scenes = scenes.take(train)
    present: list[Flags] = [train_scenes.contains_value(k) for k in range(len(scenes.sizes))]
    present.append(train_scenes.contains()[:, scenes.present])
    fits = [
        fit_softmax(part, _shares(part_present).to(device), strength) for part_present in present
    ]
    weights = [fit.weights.cpu().numpy() for fit in fits]
    return Readout(
        concepts=tuple(weights[: len(scenes.sizes)]),
        objects=weights[-1],
        candidates=scenes.present,
        converged=all(fit.converged for fit in fits),
        unseen=int((~present[-1].any(axis=0)).sum()),
        center=(mean, spread),
    )


def _shares(present: Flags) -> torch.Tensor:
    numbers = present.astype(np.float64)
    return torch.from_numpy(numbers / numbers.sum(axis=1, keepdims=True))


def queries(concepts: Sequence[Floats], objects: Floats, candidates: Integers) -> Readout:
    """Score by cosine with embeddings of the values of each type (V, d) and of objects (J, d).

    `candidates` are the objects that these are of, (J,).
    """
    return Readout(tuple(unit(q) for q in concepts), unit(objects), candidates)


def recognize(readout: Readout, z: Floats, scenes: Scenes) -> list[Row]:
    """Score embeddings (n, d) of scenes by frozen maps: a row per target and stratum.

    Targets are `concept` (mean over types), `concept_pooled` (all types among one another) and
    `object`. Embeddings with NaN (what could not be reconstructed) are skipped, and counted.
    """
    return scored(readout, hits_of(readout, z, scenes), scenes)


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
            "object": readout.object_hits(here, batch),
        }
        parts.append({target: np.where(known, each, np.nan) for target, each in hits.items()})
    return {target: np.concatenate([part[target] for part in parts]) for target in parts[0]}


def scored(readout: Readout, hits: Mapping[str, Doubles], scenes: Scenes) -> list[Row]:
    """Return rows of what `hits_of` returned of scenes."""
    expected = {
        "concept": expected_of_values(scenes, "mean"),
        "concept_pooled": expected_of_values(scenes, "pooled"),
        "object": expected_of_objects(scenes, readout.candidates),
    }
    measured = accuracies(hits, expected, scenes.slots, strata_of(scenes))
    return [{"measure": target, **row} for target, row in measured]
