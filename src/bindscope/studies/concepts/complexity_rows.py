"""Rows of the table `binding_complexity`: what approximators predict of one embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bindscope.studies.concepts.complexity.approximators import (
    Approximation,
    Approximator,
    approximations,
)
from bindscope.studies.concepts.complexity.coordinates import Starts
from bindscope.studies.concepts.complexity.descended import Descending
from bindscope.studies.concepts.complexity.splits import split_objects
from bindscope.studies.concepts.rows import Embedded, Row, recognised, scalar


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
                "kind": options["kind"], "coverage": found.coverage, "n_splits": found.n_splits,
                "fitted_share": found.n_fitted_objects / len(scenes.present),
                "n_fitted_objects": found.n_fitted_objects, "selected": found.selection,
                "split": found.subset, "n_train": found.n_train,
                "n_parameters": found.parameters, "n_absent_values": found.absent_values,
                **embedded.about(*more),
            }  # fmt: skip
            for row in _approximated(found):
                yield {**row, **about}


def _approximated(found: Approximation) -> Iterator[Row]:
    yield scalar("r2", found.r2, (found.n_scenes, 0))
    yield scalar("r2_all_scenes", found.r2_global, (found.n_scenes, 0))
    yield from recognised(found.probed)
