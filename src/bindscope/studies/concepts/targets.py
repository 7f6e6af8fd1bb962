"""What is recognized in embeddings: each target is declared here, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from bindscope.studies.concepts.scenes import Doubles, Floats, Scenes
from bindscope.studies.concepts.set_separation import (
    Expected,
    expected_of_objects,
    expected_of_values,
)

if TYPE_CHECKING:
    from bindscope.studies.concepts.recognition import Readout


class Target(NamedTuple):
    """A `measure` of the tables, and its `meaning` there; all else follows from this.

    `hits` says of embeddings (n, d) of scenes how far each is recognized, (n,), `expected` what
    rivals without an embedding get right of the same scenes.
    """

    meaning: str
    hits: Callable[[Readout, Floats, Scenes], Doubles]
    expected: Callable[[Readout, Scenes], Expected]


TARGETS: Final = {
    "concept": Target(
        "values, a mean over types; of edits the values of all types at once",
        lambda readout, z, scenes: readout.concept_hits(z, scenes).mean(axis=1),
        lambda readout, scenes: expected_of_values(scenes, "mean"),
    ),
    "object": Target(
        "both objects of a pair are recognized",
        lambda readout, z, scenes: readout.object_hits(z, scenes),
        lambda readout, scenes: expected_of_objects(scenes, readout.candidates),
    ),
}
