"""Which values and objects are recognized in embeddings: by linear probes, or by queries.

Probes are linear maps, one per feature group and one for objects, fitted by cross-entropy to the
share that each value or object has of a scene's slots (equal ones count once). Embeddings are
centered by the mean of the training scenes, beside a constant of their size; the ridge is a
multiple of the mean square of a coordinate after that. So neither the unit of the embedding nor an
offset that all scenes share has an effect.

Queries score by the cosine of a scene's embedding with that of each value or object, from the
other modality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bindscope.core.array_types import Bools, Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.fitting.lbfgs import Problem, descend
from bindscope.studies.concepts.counting import (
    PROBE_STEPS,
    ROWS_AT_ONCE,
    SCORES_AT_ONCE,
    Protocol,
    SplitBy,
)
from bindscope.studies.concepts.protocols import fit_paper_probes, split_by_protocol
from bindscope.studies.concepts.scenes import Parts, Scenes, completeness
from bindscope.studies.concepts.set_separation import (
    RESAMPLES,
    Expected,
    accuracies,
    expected_of_objects,
    expected_of_values,
    set_separation,
    strata_of,
)
from bindscope.studies.concepts.vectors import SingleScenes
from bindscope.tables.rows import Row

TOLERANCE = 1e-6  # nats
ITERATIONS = 1000


class _Softmax(Problem):
    """Cross-entropy of float64 (n, d) to targets (n, V) by weights (V d, 1): one column."""

    def __init__(self, z: Tensor, targets: Tensor, ridge: float) -> None:
        self.z, self.targets = z, targets
        self.penalty = torch.ones((1, 1), dtype=z.dtype, device=z.device)
        bound = z.t() @ z / (2 * len(z))  # of the Hessian
        bound.diagonal().add_(ridge)
        self.factor: Tensor = torch.linalg.cholesky(bound)

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.z @ w.view(self.targets.shape[1], -1).t()
        slope = (torch.softmax(logits, 1) - self.targets).t() @ self.z / len(self.z)
        return cross_entropy(logits, self.targets)[None], slope.reshape(-1, 1)

    def precondition(self, gradient: Tensor, ridge: float) -> Tensor:
        del ridge  # the factor has it
        matrix = gradient.view(self.targets.shape[1], -1)
        return torch.cholesky_solve(matrix.t(), self.factor).t().reshape(-1, 1)


def fit_softmax(z: Tensor, targets: Tensor, ridge: float) -> tuple[Doubles, bool]:
    """Fit a softmax regression of rows that sum to 1, (n, V), on float64 (n, d).

    Returns weights (V, d), and whether the fit ended at its optimum. The ridge is positive:
    without it, separable data have no optimum.
    """
    start = z.new_zeros(targets.shape[1] * z.shape[1], 1)
    problem = _Softmax(z, targets, ridge)
    solution = descend(problem, start, ridge, iterations=ITERATIONS, tolerance=TOLERANCE)
    weights = solution.w.view(targets.shape[1], -1).cpu().numpy()
    return weights, float(solution.decrement) <= TOLERANCE


RIDGE = 1e-3  # as a multiple of the mean square of a coordinate
NEGLIGIBLE = 1e-9  # of the mean: what scenes differ in is rounding


@dataclass(frozen=True, eq=False)
class Readout:
    """Linear maps from embeddings to scores of values and of objects.

    Those of probes have a further column, of the constant beside centered embeddings.
    """

    concepts: tuple[Doubles, ...]  # per feature group, (V, d)
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

    def object_hits(self, z: Floats, scenes: Scenes) -> Doubles:
        """Return whether the objects are recognized among the candidates, (n,)."""
        present = scenes.contains()[:, self.candidates]
        return set_separation(self.scaled(z) @ self.objects.T, present)

    def scaled(self, z: Floats) -> Doubles:
        """Return what the maps are applied to, of embeddings (n, d)."""
        return unit(z) if self.center is None else centered(z, *self.center)


class RecognitionTarget(NamedTuple):
    """A `measure` of the tables, and its `meaning` there; all else follows from this.

    `hits` says of embeddings (n, d) of scenes how far each is recognized, (n,), `expected` what
    rivals without an embedding get right of the same scenes.
    """

    meaning: str
    hits: Callable[[Readout, Floats, Scenes], Doubles]
    expected: Callable[[Readout, Scenes], Expected]


TARGETS: Final = {
    "concept": RecognitionTarget(
        "values, a mean over feature groups; of edits those of all groups at once",
        lambda readout, z, scenes: readout.concept_hits(z, scenes).mean(axis=1),
        lambda readout, scenes: expected_of_values(scenes, "mean"),
    ),
    "object": RecognitionTarget(
        "both objects of a pair are recognized",
        lambda readout, z, scenes: readout.object_hits(z, scenes),
        lambda readout, scenes: expected_of_objects(scenes, readout.candidates),
    ),
}


def centered(z: Floats, mean: Doubles, constant: float) -> Doubles:
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
    device: str = "cpu",
    paper_steps: int | None = None,
) -> Readout:
    """Fit a linear probe per feature group, and one for the objects present in the scenes.

    Embeddings (n, d) of n scenes, of which `train` are fitted. Raises `InputError` if one is not
    finite, or all are the same. With `paper_steps`, so many are taken as in the released code.
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
    train_scenes = scenes.take(train)
    present: list[Bools] = [train_scenes.contains_value(k) for k in range(len(scenes.sizes))]
    present.append(train_scenes.contains()[:, scenes.present])
    targets = [_shares(part_present) for part_present in present]
    converged, center = True, (mean, spread)
    if paper_steps:
        center = (np.zeros_like(mean), 0.0)  # neither an offset nor a constant
        raw = fit_paper_probes(fitted, targets, paper_steps, device)
        weights = tuple(np.pad(w, ((0, 0), (0, 1))) for w in raw)
    else:
        part = torch.from_numpy(centered(fitted, mean, spread)).to(device)
        fits = [fit_softmax(part, rows.to(device), RIDGE * spread**2) for rows in targets]
        weights, converged = tuple(w for w, _ in fits), all(ended for _, ended in fits)
    return Readout(
        concepts=weights[:-1],
        objects=weights[-1],
        candidates=scenes.present,
        converged=converged,
        unseen=int((~present[-1].any(axis=0)).sum()),
        center=center,
    )


def _shares(present: Bools) -> torch.Tensor:
    numbers = present.astype(np.float64)
    return torch.from_numpy(numbers / numbers.sum(axis=1, keepdims=True))


def queries(concepts: Sequence[Floats], objects: Floats, candidates: Integers) -> Readout:
    """Score by cosine with embeddings of the values of each type (V, d) and of objects (J, d).

    `candidates` are the objects that these are of, (J,).
    """
    return Readout(tuple(unit(q) for q in concepts), unit(objects), candidates)


def recognize(readout: Readout, z: Floats, scenes: Scenes, resamples: int = RESAMPLES) -> list[Row]:
    """Score embeddings (n, d) of scenes by frozen maps: a row per target and stratum.

    Targets are `concept` (mean over feature groups) and `object`. Embeddings with NaN (what could
    not be reconstructed) are skipped, and counted.
    """
    return scored(readout, hits_of(readout, z, scenes), scenes, resamples)


def hits_of(readout: Readout, z: Floats, scenes: Scenes) -> dict[str, Doubles]:
    """Return the hits of scenes (n,) by target, NaN where an embedding is; a block at a time."""
    block, parts = min(ROWS_AT_ONCE, max(1, SCORES_AT_ONCE // scenes.n_objects)), []
    for start in range(0, max(len(scenes), 1), block):
        batch = scenes.take(slice(start, start + block))
        here = z[start : start + block]
        known = np.asarray(np.isfinite(here).all(axis=1))
        here = np.where(known[:, None], here, 0)
        hits = {name: target.hits(readout, here, batch) for name, target in TARGETS.items()}
        parts.append({target: np.where(known, each, np.nan) for target, each in hits.items()})
    return {target: np.concatenate([part[target] for part in parts]) for target in parts[0]}


def scored(
    readout: Readout, hits: Mapping[str, Doubles], scenes: Scenes, resamples: int = RESAMPLES
) -> list[Row]:
    """Return rows of what `hits_of` returned of scenes."""
    expected = {name: target.expected(readout, scenes) for name, target in TARGETS.items()}
    strata = strata_of(scenes)
    measured = accuracies(hits, expected, scenes.slots, strata, resamples=resamples)
    return [{"measure": target, **row} for target, row in measured]


class Embedded:
    """Embeddings (n, d) of n scenes, with their split and the maps that decode them.

    `readout` defaults to linear probes, fitted on a share of the scenes; `parts` to
    `protocols.split_by_protocol`. `single` are scenes of one object, where there are any.
    `protocol` is how probes, removals and approximators are fitted, `probe_steps` of `paper`.
    """

    def __init__(
        self,
        z: Floats,
        scenes: Scenes,
        readout: Readout | None = None,
        single: SingleScenes | None = None,
        split_by: SplitBy = "objects",
        device: str = "cpu",
        parts: Parts | None = None,
        protocol: Protocol = "converged",
        probe_steps: int = PROBE_STEPS,
    ) -> None:
        self.z, self.scenes, self.single, self.split_by = z, scenes, single, split_by
        self.parts, self.device = parts or split_by_protocol(scenes, split_by, protocol), device
        self.protocol, self.probe_steps = protocol, probe_steps
        self.readout = readout or self.fit_probes(z)
        self.completeness = completeness(scenes)

    def fit_probes(self, z: Floats) -> Readout:
        """Fit probes of embeddings (n, d) of the same scenes, on the same ones of them."""
        probed, device = self.parts.probed, self.device
        steps = self.probe_steps if self.protocol == "paper" else None
        return fit_probes(z, self.scenes, probed, device=device, paper_steps=steps)

    @property
    def flags(self) -> list[str]:
        """What to know before the numbers are believed, of `tables.FLAGS`."""
        lacking = self.completeness
        texts = {
            "absent_values": lacking.absent_values > 0,
            "fewer_dimensions_than_objects": self.z.shape[1] < len(self.scenes.present),
            "incomplete": not lacking.complete,
            "probes_not_converged": not self.readout.converged,
            "unseen_objects": self.readout.unseen > 0,
        }
        return [name for name, holds in texts.items() if holds]

    def about(self, *more: str) -> Row:
        """Return the columns that all rows of the embedding share, with `more` flags."""
        return {
            "split_by": self.split_by,
            "protocol": self.protocol,
            "dim": self.z.shape[1],
            "n_objects": len(self.scenes.present),
            "n_slots": self.scenes.n_slots,
            "n_missing_scenes": self.completeness.missing,
            "flags": ";".join(sorted([*self.flags, *more])),
        }


def recognition_rows(embedded: Embedded, queries: Mapping[str, Readout]) -> Iterator[Row]:
    """Yield what probes and queries recognize in scenes whose objects probes were not fitted on."""
    read = embedded.parts.read
    scored = embedded.scenes.take(read)
    for name, readout in {"probes": embedded.readout, **queries}.items():
        for row in recognize(readout, embedded.z[read], scored):
            yield {"variant": name, "level": 0, **row}
