"""Rows of the tables on embeddings: what is measured of one embedding of one dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from bindscope.fitting.generators import rng
from bindscope.studies.concepts.alignment import Alignment, align
from bindscope.studies.concepts.decomposition import Decomposition, decompositions
from bindscope.studies.concepts.editing import Edits, edited, value_edits
from bindscope.studies.concepts.recognition import (
    Readout,
    Recognition,
    fit_probes,
    recognise,
    split_scenes,
)
from bindscope.studies.concepts.removal import removals
from bindscope.studies.concepts.scenes import Floats, Scenes, completeness
from bindscope.studies.concepts.set_separation import Accuracy
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
    """

    def __init__(
        self,
        z: Floats,
        scenes: Scenes,
        readout: Readout | None = None,
        single: SingleScenes | None = None,
    ) -> None:
        self.z, self.scenes, self.single = z, scenes, single
        self.train, self.test = split_scenes(len(scenes))
        self.readout = readout or fit_probes(z, scenes, self.train)
        self.completeness = completeness(scenes)

    def vectors(self, estimator: Estimator) -> ObjectVectors:
        """Return the vectors of objects by an estimator."""
        return object_vectors(self.z, self.scenes, estimator, self.single)

    @property
    def flags(self) -> list[str]:
        """What is to be known before the numbers are believed, of `marks.EMBEDDING_FLAGS`."""
        found = self.completeness
        said = {
            "absent_values": found.absent_values > 0,
            "fewer_dimensions_than_objects": self.z.shape[1] < len(self.scenes.present),
            "incomplete": not found.complete,
            "probes_not_converged": not self.readout.converged,
            "unseen_objects": self.readout.unseen > 0,
        }
        return [name for name, holds in said.items() if holds]

    def about(self, *more: str) -> Row:
        """Return what every row says of the embedding, and its flags."""
        return {
            "dim": self.z.shape[1], "n_objects": len(self.scenes.present),
            "n_slots": self.scenes.n_slots, "n_missing_scenes": self.completeness.missing,
            "flags": ";".join(sorted([*self.flags, *more])),
        }  # fmt: skip


def _scores(accuracy: Accuracy) -> Row:
    return {
        "stratum": accuracy.stratum, "value": number(accuracy.value),
        "value_low": number(accuracy.low), "value_high": number(accuracy.high),
        "chance": number(accuracy.chance),
        "bag_of_concepts_floor": number(accuracy.bag_of_concepts_floor),
        "bag_of_concepts_guess": number(accuracy.bag_of_concepts_guess),
        "n_scenes": accuracy.n_scenes, "n_skipped": accuracy.n_dropped,
    }  # fmt: skip


def recognised(found: Sequence[Recognition]) -> Iterator[Row]:
    """Yield a row per target and stratum."""
    for one in found:
        yield {"measure": one.target, **_scores(one.accuracy)}


def scalar(measure: str, value: float, counts: tuple[int, int], chance: float | None = None) -> Row:
    """Return a row of a number without strata, floors or interval."""
    return {
        "measure": measure, "stratum": "all", "value": number(value), "chance": chance,
        "n_scenes": counts[0], "n_skipped": counts[1],
    }  # fmt: skip


def geometry_rows(
    embedded: Embedded,
    estimators: Sequence[Estimator],
    queries: Mapping[str, Readout] | None = None,
    other: Floats | None = None,
) -> Iterator[Row]:
    """Yield rows of `concept_geometry`: recognition, decomposition, removal and alignment.

    Parameters
    ----------
    embedded
        The embedding, with its probes.
    estimators
        Of the vectors that decompositions add up.
    queries
        `captions` or `images` as queries: of the other modality, where there are any.
    other
        The same scenes in the other modality, (n, d'), where there are any.
    """
    z, scenes, test = embedded.z, embedded.scenes, embedded.test
    asked, about = scenes.take(test), embedded.about()
    for name, readout in {"probes": embedded.readout, **(queries or {})}.items():
        for row in recognised(recognise(readout, z[test], asked)):
            yield {"analysis_kind": "recognition", "variant": name, "level": 0, **row, **about}
    for found in decompositions(
        z, scenes, embedded.readout, tuple(estimators), single=embedded.single
    ):
        for row in _decomposed(found, len(scenes)):
            kind = {"variant": found.estimator, "level": found.level}
            yield {"analysis_kind": "decomposition", **kind, **row, **about}
    for left in removals(z, scenes, embedded.train, test):
        more = [] if left.converged else ["refit_not_converged"]
        explained = scalar("explained", left.explained, (len(scenes), 0))
        for row in (explained, *recognised(left.probed)):
            yield {"analysis_kind": "removal", "variant": left.removed, "level": 0,
                   **row, **embedded.about(*more)}  # fmt: skip
    if other is not None:
        for row in _aligned(embedded, other):
            yield {"analysis_kind": "alignment", **row, **about}


def _aligned(embedded: Embedded, other: Floats) -> Iterator[Row]:
    """Yield how vectors of half of the objects, or values, lie on those of the other modality."""
    scenes = embedded.scenes
    both = [object_vectors(z, scenes, "avg").without_slots for z in (embedded.z, other)]
    of_objects = [table[scenes.present] for table in both]
    of_values = [
        np.concatenate([table[0] for table in value_vectors(z, scenes, by_slot=False)])
        for z in (embedded.z, other)
    ]
    for level, (first, second) in ((1, of_objects), (2, of_values)):
        order = rng(0, 13, level).permutation(len(first))
        if len(order) < FEWEST_ALIGNED:
            continue
        fitted, held_out = np.split(order, [(len(order) + 1) // 2])
        for found in align(first, second, np.sort(fitted), np.sort(held_out)):
            for row in _alignment(found):
                yield {"variant": found.map, "level": level, **row}


def _alignment(found: Alignment) -> Iterator[Row]:
    counts = (found.n_held_out, found.n_skipped)
    cosine = found.cosine
    yield {
        **scalar("cosine", cosine.value, counts),
        "value_low": number(cosine.low), "value_high": number(cosine.high),
    }  # fmt: skip
    yield scalar("retrieval_held_out", found.retrieval, counts, found.chance)
    yield scalar("retrieval_of_all", found.retrieval_all, counts, found.chance_all)


def _decomposed(found: Decomposition, n_bank: int) -> Iterator[Row]:
    counts = (found.n_scenes, found.n_skipped)
    yield scalar("r2", found.r2, counts)
    if found.level == 2:
        yield scalar("r2_objects", found.r2_objects, counts)
    yield scalar("retrieval_strict", found.retrieval_strict, counts, 1 / n_bank)
    yield scalar("retrieval_unordered", found.retrieval_unordered, counts)
    yield from recognised(found.probed)


def editing_rows(
    embedded: Embedded, estimators: Sequence[Estimator], strengths: Sequence[float]
) -> Iterator[Row]:
    """Yield rows of `concept_editing`: an edit per slot and scene that changes one value."""
    z, scenes = embedded.z, embedded.scenes
    by_type: list[Edits] = [value_edits(scenes, k) for k in range(len(scenes.sizes))]
    for estimator in estimators:
        vectors = embedded.vectors(estimator)
        for k, edits in enumerate(by_type):
            if not len(edits.base):
                continue
            for one in edited(z, scenes, vectors, embedded.readout, edits, tuple(strengths)):
                scores = _scores(one.accuracy)
                del scores["n_skipped"]
                yield {
                    "estimator": estimator, "concept_type": k, "strength": one.strength,
                    "measure": one.measure, **scores, "without_vector": one.without_vector,
                    "without_scene": one.without_scene, "without_value": one.without_value,
                    **embedded.about(),
                }  # fmt: skip
