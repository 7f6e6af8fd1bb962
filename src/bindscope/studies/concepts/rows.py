"""Rows of the tables on embeddings: what is measured of one embedding of one dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.statistics.bootstrap import Interval
from bindscope.studies.concepts.alignment import Alignment, align
from bindscope.studies.concepts.counting import SplitBy
from bindscope.studies.concepts.decomposition import Decomposition, decompositions
from bindscope.studies.concepts.editing import Edits, drawn_edits, edited, value_edits
from bindscope.studies.concepts.recognition import (
    Readout,
    Recognition,
    fit_probes,
    recognise,
)
from bindscope.studies.concepts.removal import removals
from bindscope.studies.concepts.scenes import Floats, Scenes, completeness
from bindscope.studies.concepts.set_separation import Accuracy
from bindscope.studies.concepts.splits import Parts, split_scenes
from bindscope.studies.concepts.vectors import (
    Estimator,
    ObjectVectors,
    SingleScenes,
    object_vectors,
    value_vectors,
)

Row = dict[str, Any]
FEWEST_ALIGNED = 5  # vectors: three to fit a map, two to judge it by


def number(value: float) -> float | None:
    """Return a number, None where there is none."""
    return float(value) if isfinite(value) else None


class Embedded:
    """Embeddings of scenes, and how they are read.

    Parameters
    ----------
    z
        (n, d).
    scenes
        Of the same n.
    readout
        Default: linear probes, fitted on a share of the scenes.
    single
        Scenes of one object, where there are any.
    split_by
        How scenes are split; see `parts.split_scenes`.
    device
        Where probes are fitted.
    parts
        The split; default: drawn by `parts.split_scenes`.
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
    ) -> None:
        self.z, self.scenes, self.single, self.split_by = z, scenes, single, split_by
        self.parts, self.device = parts or split_scenes(scenes, split_by), device
        self.readout = readout or fit_probes(z, scenes, self.parts.probed, device=device)
        self.completeness = completeness(scenes)

    def vectors(self, estimator: Estimator) -> ObjectVectors:
        """Return the vectors of objects by an estimator."""
        fit = self.parts.estimated
        return object_vectors(self.z[fit], self.scenes.take(fit), estimator, self.single)

    @property
    def flags(self) -> list[str]:
        """What to know before the numbers are believed, of `tables.EMBEDDING_FLAGS`."""
        counted = self.completeness
        texts = {
            "absent_values": counted.absent_values > 0,
            "fewer_dimensions_than_objects": self.z.shape[1] < len(self.scenes.present),
            "incomplete": not counted.complete,
            "probes_not_converged": not self.readout.converged,
            "unseen_objects": self.readout.unseen > 0,
        }
        return [name for name, holds in texts.items() if holds]

    def about(self, *more: str) -> Row:
        """Return what every row says of the embedding, and its flags."""
        return {
            "split_by": self.split_by, "dim": self.z.shape[1],
            "n_objects": len(self.scenes.present), "n_slots": self.scenes.n_slots,
            "n_missing_scenes": self.completeness.missing,
            "flags": ";".join(sorted([*self.flags, *more])),
        }  # fmt: skip


def _scores(accuracy: Accuracy) -> Row:
    return {
        "stratum": accuracy.stratum, "value": number(accuracy.value),
        "value_low": number(accuracy.low), "value_high": number(accuracy.high),
        "chance": number(accuracy.chance),
        "bag_of_concepts_floor": number(accuracy.bag_of_concepts_floor),
        "bag_of_concepts_guess": number(accuracy.bag_of_concepts_guess),
        "gain": number(accuracy.gain), "gain_low": number(accuracy.gain_low),
        "gain_high": number(accuracy.gain_high), "n_resampled": accuracy.n_resampled,
        "n_scenes": accuracy.n_scenes, "n_skipped": accuracy.n_dropped,
    }  # fmt: skip


def _interval(name: str, estimate: Interval) -> Row:
    ends = (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high))
    return {f"{name}{end}": number(value) for end, value in ends}


def recognition_of(accuracies: Iterable[Recognition]) -> Iterator[Row]:
    """Yield a row per target and stratum."""
    for target, accuracy in accuracies:
        yield {"measure": target, **_scores(accuracy)}


def scalar(measure: str, value: float, counts: tuple[int, int], chance: float | None = None) -> Row:
    """Return a row of a number without strata, floors or interval."""
    return {
        "measure": measure, "stratum": "all", "value": number(value), "chance": chance,
        "n_scenes": counts[0], "n_skipped": counts[1],
    }  # fmt: skip


def recognition_rows(embedded: Embedded, queries: Mapping[str, Readout]) -> Iterator[Row]:
    """Yield what probes and queries recognise in scenes whose objects probes were not fitted on."""
    read = embedded.parts.read
    scored = embedded.scenes.take(read)
    for name, readout in {"probes": embedded.readout, **queries}.items():
        for row in recognition_of(recognise(readout, embedded.z[read], scored)):
            yield {"variant": name, "level": 0, **row}


def decomposition_rows(embedded: Embedded, estimators: Sequence[Estimator]) -> Iterator[Row]:
    """Yield how far scenes are sums of vectors that were estimated from others."""
    how = embedded.readout, estimators, embedded.parts, embedded.single
    for result in decompositions(embedded.z, embedded.scenes, *how):
        for row in _decomposed(result, len(embedded.scenes)):
            yield {"variant": result.estimator, "level": result.level, **row}


def removal_rows(embedded: Embedded) -> Iterator[Row]:
    """Yield what is recognised after a part was subtracted."""
    parts = embedded.parts
    # What is fitted to the probes' scenes leaves nothing there that a linear probe could learn.
    fit = parts.probed if embedded.split_by == "objects" else parts.estimated
    parted = parts.probed, parts.scored
    for rest in removals(embedded.z, embedded.scenes, *parted, fit=fit, device=embedded.device):
        flags = {} if rest.converged else {"flags": embedded.about("refit_not_converged")["flags"]}
        explained = scalar("explained", rest.explained, (len(parts.scored), 0))
        for row in (explained, *recognition_of(rest.probed)):
            yield {"variant": rest.removed, "level": 0, **row, **flags}


def alignment_rows(embedded: Embedded, other_modality: Floats) -> Iterator[Row]:
    """Yield how vectors of half of the objects, or values, lie on those of the other modality."""
    scenes = embedded.scenes
    both = [object_vectors(z, scenes, "avg").without_slots for z in (embedded.z, other_modality)]
    of_objects = [table[scenes.present] for table in both]
    of_values = [
        np.concatenate([table[0] for table in value_vectors(z, scenes, by_slot=False)])
        for z in (embedded.z, other_modality)
    ]
    for level, (first, second) in ((1, of_objects), (2, of_values)):
        order = rng(0, 13, level).permutation(len(first))
        if len(order) < FEWEST_ALIGNED:
            continue
        fitted, held_out = np.split(order, [(len(order) + 1) // 2])
        for result in align(first, second, np.sort(fitted), np.sort(held_out)):
            for row in _alignment(result):
                yield {"variant": result.map, "level": level, **row}


def _alignment(aligned: Alignment) -> Iterator[Row]:
    counts = (aligned.n_held_out, aligned.n_skipped)
    yield {
        **scalar("cosine", aligned.cosine.value, counts), **_interval("value", aligned.cosine),
        **(_interval("gain", aligned.gain) if aligned.gain else {}),
        "n_resampled": aligned.n_held_out,
    }  # fmt: skip
    yield scalar("retrieval_held_out", aligned.retrieval, counts, aligned.chance)
    yield scalar("retrieval_of_all", aligned.retrieval_all, counts, aligned.chance_all)


def _decomposed(decomposition: Decomposition, n_bank: int) -> Iterator[Row]:
    counts = (decomposition.n_scenes, decomposition.n_skipped)
    yield scalar("r2", decomposition.r2, counts)
    if decomposition.level == 2:
        yield scalar("r2_objects", decomposition.r2_objects, counts)
    yield scalar("retrieval_strict", decomposition.retrieval_strict, counts, 1 / n_bank)
    yield scalar("retrieval_unordered", decomposition.retrieval_unordered, counts)
    yield from recognition_of(decomposition.probed)


def editing_rows(
    embedded: Embedded, estimators: Sequence[Estimator], strengths: Sequence[float]
) -> Iterator[Row]:
    """Yield what comes of edits, one per slot and scene, that change one value."""
    z, scenes, parts = embedded.z, embedded.scenes, embedded.parts
    every: list[Edits] = [value_edits(scenes, k) for k in range(len(scenes.sizes))]
    by_type = [drawn_edits(edits.take(np.isin(edits.base, parts.scored))) for edits in every]
    estimated = parts.estimated if embedded.split_by == "objects" else None
    for estimator in estimators:
        vectors = embedded.vectors(estimator)
        for k, edits in enumerate(by_type):
            if not len(edits.base):
                continue
            for result in edited(
                z, scenes, vectors, embedded.readout, edits, tuple(strengths), estimated=estimated
            ):
                yield {
                    "variant": estimator, "concept_type": k, "strength": result.strength,
                    "measure": result.measure, **_scores(result.accuracy),
                    "n_skipped": None, "without_vector": result.without_vector,
                    "without_scene": result.without_scene, "without_value": result.without_value,
                }  # fmt: skip
