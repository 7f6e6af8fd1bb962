"""Rows of the table `binding_complexity`: what approximators predict of one embedding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bindscope.fitting.checkpoint import Checkpoint
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


def rows_of_runs(
    runs: Iterable[tuple[Row, Embedded]],
    spec: Mapping[str, Any],
    checkpoint: Checkpoint,
    device: str = "cpu",
) -> list[Row]:
    """Return rows of `binding_complexity` of several embeddings, those of a checkpoint included.

    Parameters
    ----------
    runs
        What each row says of an embedding, and the embedding.
    spec
        The job's `approximator`, `coverages`, `seeds` and `validation_share`.
    checkpoint
        Holds the rows so far after each coverage of an embedding.
    device
        Where approximators are fitted.
    """
    state = checkpoint.read()
    done, rows = (state[1]["step"], state[1]["rows"]) if state else (0, [])
    how = spec["seeds"], spec["validation_share"], device
    step = 0
    for about, embedded in runs:
        for coverage in spec["coverages"]:
            step += 1
            if step <= done:
                continue
            found = complexity_rows(embedded, spec["approximator"], [coverage], *how)
            rows += [{**row, **about} for row in found]
            checkpoint.write({}, {"step": step, "rows": rows})
    return rows


def complexity_rows(
    embedded: Embedded,
    options: Mapping[str, Any],
    coverages: Sequence[float],
    seeds: Sequence[int],
    validation_share: float,
    device: str = "cpu",
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
    device
        Where the approximator is fitted.
    """
    z, scenes = embedded.z, embedded.scenes
    for coverage in coverages:
        splits = [split_objects(scenes, coverage, s, validation=validation_share) for s in seeds]
        for found in approximations(
            approximator_of(options), z, scenes, embedded.readout, splits, ("train", "test"),
            device=device,
        ):  # fmt: skip
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
