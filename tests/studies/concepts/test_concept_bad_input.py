"""What embeddings of scenes may lack is named and counted in the rows, or refused before a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planted_analyses import alone, graph_of, pairs

from bindscope.core.errors import ConfigError, InputError
from bindscope.studies.concepts.approximators import approximator_rows
from bindscope.studies.concepts.decomposition import decomposition_rows
from bindscope.studies.concepts.editing import editing_rows
from bindscope.studies.concepts.inputs import planted_vectors
from bindscope.studies.concepts.planted_encoders import PlantedVectors, lookup
from bindscope.studies.concepts.recognition import Embedded
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.vectors import SingleScenes
from bindscope.tables.rows import Row

SIZES = (4, 3)
ALL = Scenes.all_of(SIZES)
SUMS = {"kind": "additive"}


def embedded(scenes: Scenes = ALL, dim: int = 24, single: SingleScenes | None = None) -> Embedded:
    """Embed scenes with an encoder that has a vector for every object."""
    return Embedded(lookup(scenes, PlantedVectors(dim, slot_effect=1.0)), scenes, single=single)


def decomposed(rows: list[Row], estimator: str) -> Row:
    """The row of R2 of the sums of an estimator's vectors."""
    (matching,) = (
        row
        for row in rows
        if (row["variant"], row["level"], row["measure"]) == (estimator, 1, "r2")
    )
    return matching


def test_an_incomplete_factorial_is_flagged_and_what_lacks_is_counted() -> None:
    about = embedded().about()
    assert about["n_missing_scenes"] == 0
    assert "incomplete" not in about["flags"]
    # Without 9 scenes the means of object 0 hold less of the others than those of object 11.
    lacking = embedded(ALL.take((ALL.slots[:, 0] != 0) | (ALL.slots[:, 1] < 3)))
    assert lacking.about()["n_missing_scenes"] == 9
    assert "incomplete" in lacking.about()["flags"].split(";")
    rows = list(decomposition_rows(lacking, ["avg_pos", "ols"]))
    # That is why least squares stands beside the means: the law itself still holds.
    assert decomposed(rows, "ols")["value"] == pytest.approx(1, abs=1e-6)
    assert decomposed(rows, "avg_pos")["value"] < 0.995
    edits = list(editing_rows(lacking, ["ols"], [1.0]))
    assert {row["n_skipped"] for row in edits if row["concept_type"] == 0} != {0}


def test_an_object_without_a_scene_of_its_own_is_skipped_and_counted() -> None:
    objects = np.repeat(np.arange(1, 12), 2)
    places = np.tile([0, 1], 11)
    slots = np.where(np.arange(2) == places[:, None], objects[:, None], -1)
    z = planted_vectors(slots, SIZES, {"kind": "lookup", "dim": 24, "slot_effect": 1.0})
    single = embedded(single=SingleScenes(z, objects, places))
    rows = list(decomposition_rows(single, ["single", "ols"]))
    assert decomposed(rows, "ols")["n_skipped"] == 0
    holds = (ALL.slots[embedded().parts.scored] == 0).any(axis=1)
    assert decomposed(rows, "single")["n_skipped"] == holds.sum() > 0
    assert decomposed(rows, "single")["n_scenes"] == (~holds).sum()
    edits = editing_rows(embedded(single=SingleScenes(z, objects, places)), ["single"], [1.0])
    assert all(row["n_skipped"] > 0 for row in edits)
    with pytest.raises(InputError, match="no embeddings of scenes with one object"):
        list(editing_rows(embedded(), ["single"], [1.0]))


def test_values_that_no_training_object_has_are_counted() -> None:
    rows = list(approximator_rows(embedded(), SUMS, [0.25, 0.5], [0], validation_share=0.0))
    absent = {row["coverage"]: row["n_absent_values"] for row in rows}
    assert absent[0.25] >= 1  # three objects cannot have four values
    assert absent[0.5] == 0
    none = ALL.take((ALL.values[:, :, 0] != 3).all(axis=1))
    assert "absent_values" in embedded(none).flags


def test_fewer_dimensions_than_objects_are_flagged() -> None:
    assert "fewer_dimensions_than_objects" in embedded(dim=11).flags
    assert not any("fewer" in flag for flag in embedded(dim=12).flags)


ENTRY: dict[str, Any] = {"name": "known", "datasets": ["pairs"], "planted": ["sums"]}
DUAL = {"name": "d", "encoder": {"kind": "product"}, "spaces": [[4, 4]], "coverages": [0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimators": ["single"]}, "`single` needs scenes of one object: give `singles`"),
        ({"singles": "nobody"}, "nobody"),
        ({"singles": "pairs"}, "need one object each"),
        ({"singles": "others"}, "must have the groups and as many slots"),
        ({"datasets": []}, "there is nothing to embed"),
        ({"planted": []}, "there is no embedding"),
        ({"datasets": ["nothing"]}, "nothing"),
        ({"dual_encoders": ["d"]}, "they are approximated alone: give `complexity`"),
        ({"dual_encoders": ["e"]}, "e"),
    ],
)
def test_what_an_entry_lacks_is_said_before_anything_runs(
    change: dict[str, Any], message: str
) -> None:
    section = {
        "planted": [{"name": "sums", "kind": "additive"}],
        "dual_encoders": [DUAL],
        "analyses": [{**ENTRY, **change}],
    }
    fewer = {**alone("others"), "slots": 1, "n_scenes": {"train": 10, "val": 5, "test": 5}}
    fewer |= {
        "shard_size": fewer["n_scenes"],
        "split": {"rule": "enumerated", "sizes": fewer["n_scenes"]},
    }
    with pytest.raises((ConfigError, ValueError), match=message):
        graph_of(section, datasets=[pairs(), alone(), fewer])
