"""Captions of scenes in slots, their table, and what their configuration refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ordered_scenes import ordered
from pydantic import ValidationError

from bindscope.config.captions import CaptionTemplate
from bindscope.scenes.captions import queries, read_captions, scene_captions, write_captions

GROUPS = [("color", ("red", "blue")), ("shape", ("cube", "cone"))]
PLAIN = CaptionTemplate()
PHOTO = CaptionTemplate(
    name="photo",
    object="{shape} in {color}",
    join=", ",
    scene="a photo of {objects}.",
    concept="something {value}",
)


def test_scenes_are_named_in_the_order_of_their_slots() -> None:
    slots = np.array([[0, 3], [3, 0], [2, 2], [-1, 1]])
    captions = list(scene_captions("val", slots, GROUPS, [PLAIN, PHOTO]))
    assert [c.text for c in captions[:4]] == [
        "a red cube and a blue cone",
        "a blue cone and a red cube",
        "a blue cube and a blue cube",
        "a red cone",
    ]
    assert captions[4].text == "a photo of cube in red, cone in blue."
    assert [(c.template, c.kind, c.number) for c in captions] == [
        (name, "val", i) for name in ("plain", "photo") for i in range(4)
    ]
    assert captions[3].words == (("red", "cone"),)


def test_every_object_and_value_has_a_query() -> None:
    captions = list(queries(GROUPS, [PHOTO]))
    assert [c.text for c in captions if c.kind == "object"] == [
        "a photo of cube in red.",
        "a photo of cone in red.",
        "a photo of cube in blue.",
        "a photo of cone in blue.",
    ]
    concepts = [c for c in captions if c.kind == "concept"]
    assert [c.text for c in concepts] == [f"something {v}" for v in ("red", "blue", "cube", "cone")]
    assert [c.number for c in concepts] == [0, 1, 2, 3]  # positions in the feature code
    assert concepts[2].words == ((None, "cube"),)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    captions = [
        *queries(GROUPS, [PLAIN]),
        *scene_captions("test", np.array([[0, 1]]), GROUPS, [PLAIN]),
    ]
    path = tmp_path / "captions.parquet"
    write_captions(path, captions, {"spec_key": "a"})
    assert read_captions(path) == captions


@pytest.mark.parametrize(
    ("captions", "slots", "problem"),
    [
        ({}, None, "give `slots`"),
        ({"templates": [{"object": "a {color}"}]}, 2, r"has \{color\} in braces"),
        ({"templates": [{"object": "a {color} {shape"}]}, 2, "is no template"),
        ({"templates": [{"concept": "{color}"}]}, 2, r"needs \{value\}"),
        ({"words": {"shape": ["a", "a", "b"]}}, 2, "needs 3 different words"),
    ],
)
def test_captions_that_do_not_fit_are_refused(
    captions: dict[str, Any], slots: int | None, problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        ordered({"kind": "draws", "n_objects": 2}, slots, None, captions=captions)
