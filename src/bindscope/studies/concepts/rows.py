"""Rows of the tables on embeddings: what is measured of one embedding of one dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from bindscope.studies.concepts.complexity.approximators import (
    Approximation,
    Approximator,
    approximations,
)
from bindscope.studies.concepts.complexity.coordinates import Starts
from bindscope.studies.concepts.complexity.descended import Descending
from bindscope.studies.concepts.complexity.splits import split_objects
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
from bindscope.studies.concepts.vectors import Estimator, object_vectors

Row = dict[str, Any]


def number(value: float) -> float | None:
    """Return a number, None where there is none."""
    return float(value) if isfinite(value) else None


class Embedded:
    """Embeddings of scenes with linear probes, fitted on a share of the scenes.

    Parameters
    ----------
    z
        (n, d).
    scenes
        Of the same n.
    """

    def __init__(self, z: Floats, scenes: Scenes) -> None:
        self.z, self.scenes = z, scenes
        self.train, self.test = split_scenes(len(scenes))
        self.readout = fit_probes(z, scenes, self.train)

    @property
    def flags(self) -> list[str]:
        """What is to be known before the numbers are believed, of `marks.EMBEDDING_FLAGS`."""
        found = completeness(self.scenes)
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
            "n_slots": self.scenes.n_slots, "flags": ";".join(sorted([*self.flags, *more])),
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


def _recognised(found: Sequence[Recognition]) -> Iterator[Row]:
    for one in found:
        yield {"measure": one.target, **_scores(one.accuracy)}


def _share(measure: str, value: float, counts: tuple[int, int], chance: float | None = None) -> Row:
    """A number without strata, floors or interval."""
    return {
        "measure": measure, "stratum": "all", "value": number(value), "chance": chance,
        "n_scenes": counts[0], "n_skipped": counts[1],
    }  # fmt: skip


def geometry_rows(
    embedded: Embedded, estimators: Sequence[Estimator], captions: Readout | None = None
) -> Iterator[Row]:
    """Yield rows of `concept_geometry`: recognition, decomposition and removal.

    Parameters
    ----------
    embedded
        The embedding, with its probes.
    estimators
        Of the vectors that decompositions add up.
    captions
        Queries of the other modality, where there are any.
    """
    z, scenes, test = embedded.z, embedded.scenes, embedded.test
    asked, about = scenes.take(test), embedded.about()
    readouts = {"probes": embedded.readout} | ({"captions": captions} if captions else {})
    for name, readout in readouts.items():
        for row in _recognised(recognise(readout, z[test], asked)):
            yield {"analysis_kind": "recognition", "variant": name, "level": 0, **row, **about}
    for found in decompositions(z, scenes, embedded.readout, tuple(estimators)):
        for row in _decomposed(found, len(scenes)):
            yield {"analysis_kind": "decomposition", "variant": found.estimator, "level": found.level,
                   **row, **about}  # fmt: skip
    for left in removals(z, scenes, embedded.train, test):
        more = [] if left.converged else ["refit_not_converged"]
        explained = _share("explained", left.explained, (len(scenes), 0))
        for row in (explained, *_recognised(left.probed)):
            yield {"analysis_kind": "removal", "variant": left.removed, "level": 0,
                   **row, **embedded.about(*more)}  # fmt: skip


def _decomposed(found: Decomposition, n_bank: int) -> Iterator[Row]:
    counts = (found.n_scenes, found.n_skipped)
    yield _share("r2", found.r2, counts)
    if found.level == 2:
        yield _share("r2_objects", found.r2_objects, counts)
    yield _share("retrieval_strict", found.retrieval_strict, counts, 1 / n_bank)
    yield _share("retrieval_unordered", found.retrieval_unordered, counts)
    yield from _recognised(found.probed)


def editing_rows(
    embedded: Embedded, estimators: Sequence[Estimator], strengths: Sequence[float]
) -> Iterator[Row]:
    """Yield rows of `concept_editing`: an edit per slot and scene that changes one value."""
    z, scenes = embedded.z, embedded.scenes
    by_type: list[Edits] = [value_edits(scenes, k) for k in range(len(scenes.sizes))]
    for estimator in estimators:
        vectors = object_vectors(z, scenes, estimator)
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


def approximator_of(options: Mapping[str, Any]) -> Approximator:
    """Return an approximator, given as its configuration has it."""
    return Approximator(
        options["kind"],
        tuple(options["widths"]),
        options["rank"],
        Descending(options["steps"], options["learning_rate"]),
        Starts(options["starts"]),
        options["components"],
        options["rounds"],
    )


def complexity_rows(
    embedded: Embedded,
    options: Mapping[str, Any],
    coverages: Sequence[float],
    seeds: Sequence[int],
    validation_share: float,
) -> Iterator[Row]:
    """Yield rows of `binding_complexity`, of one approximator.

    Parameters
    ----------
    embedded
        The embedding, with its probes, which know all objects.
    options
        The approximator.
    coverages, seeds, validation_share
        Of the splits of objects.
    """
    z, scenes = embedded.z, embedded.scenes
    for coverage in coverages:
        splits = [split_objects(scenes, coverage, s, validation=validation_share) for s in seeds]
        for found in approximations(
            approximator_of(options), z, scenes, embedded.readout, splits, ("train", "test")
        ):
            more = [] if found.ended else ["not_converged"]
            about = {
                "kind": options["kind"], "coverage": found.coverage, "seed": found.seed,
                "selected": found.selection, "split": found.subset, "n_train": found.n_train,
                "n_parameters": found.parameters, "n_absent_values": found.absent_values,
                **embedded.about(*more),
            }  # fmt: skip
            for row in _approximated(found):
                yield {**row, **about}


def _approximated(found: Approximation) -> Iterator[Row]:
    yield _share("r2", found.r2, (found.n_scenes, 0))
    yield _share("r2_all_scenes", found.r2_global, (found.n_scenes, 0))
    for row in _recognised(found.probed):
        row.pop("value_low"), row.pop("value_high")
        yield row
