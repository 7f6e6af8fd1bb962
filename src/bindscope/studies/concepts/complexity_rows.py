"""Rows of the table `binding_complexity`: what approximators foretell of one embedding."""

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
from bindscope.studies.concepts.complexity.description_length import description_length
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
    description: bool,
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
    description
        Whether embeddings are sent in bits, too, in an order of objects for each seed.
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
    for seed in seeds if description else ():
        yield _description(embedded, options, seed)


def _description(embedded: Embedded, options: Mapping[str, Any], seed: int) -> Row:
    found = description_length(approximator_of(options), embedded.z, embedded.scenes, seed=seed)
    more = [] if found.ended else ["not_converged"]
    return {
        **scalar("saved_bits", found.saved, (len(embedded.scenes), 0)),
        "bits": found.bits, "bits_without": found.bits_without, "kind": options["kind"],
        "coverage": 1.0, "seed": seed, "selected": "validation", "split": "blocks",
        "n_train": len(embedded.scenes), **embedded.about(*more),
    }  # fmt: skip


def _approximated(found: Approximation) -> Iterator[Row]:
    yield scalar("r2", found.r2, (found.n_scenes, 0))
    yield scalar("r2_all_scenes", found.r2_global, (found.n_scenes, 0))
    for row in recognised(found.probed):
        row.pop("value_low"), row.pop("value_high")
        yield row
