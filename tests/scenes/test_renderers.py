"""What every renderer promises: the same scenes in any shard, and arrays that say the same."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import solid_scenes
from datasets_by_hand import dataset, uniform
from ordered_scenes import clevr_2d, ordered, single_objects

from bindscope.codes.sampling import sample_codes
from bindscope.config.codes import Dataset
from bindscope.scenes.render import render_scenes

FAST = {"backend": {"kind": "raycast", "antialias": 1}}
HIDDEN = {"kind": "solids", "size_px": 96, "hidden": [0.2, 0.3], "fixed": {"size": "large"}, **FAST}
PAIRS = {"kind": "draws", "n_objects": 2}
SPACE = uniform(3, color=6, shape=4)
RENDERERS: dict[str, Dataset] = {
    "shapes": dataset(SPACE, render={"kind": "shapes", "size_px": 90, "object_px": 18}),
    "sprites, jitter": dataset(SPACE, render={"kind": "sprites", "jitter": True}),
    "clutter": dataset(uniform(5, color=8, shape=8), render={"kind": "clutter"}),
    "clevr_2d": clevr_2d(64),
    "clevr_2d, empty slots": single_objects(64),
    "solids": solid_scenes.dataset(**FAST, fixed={"size": "small"}),
    "solids, repeats": solid_scenes.dataset(solid_scenes.NATURAL, **FAST, size_px=32),
    "solids, hidden": ordered(PAIRS, 2, (568, 4, 4), render=HIDDEN),
}
START = 3


@pytest.fixture(params=RENDERERS)
def drawn(request: pytest.FixtureRequest) -> tuple[Dataset, np.ndarray, dict[str, Any]]:
    of = RENDERERS[request.param]
    objects = sample_codes(of, "train", START, START + 7)
    return of, objects, render_scenes(of, "train", START, objects)


def test_scenes_are_the_same_in_any_shard(drawn: Any) -> None:
    of, objects, whole = drawn
    for cuts in ((0, 0, 7), (0, 2, 5, 7)):  # one of them without a scene
        parts = [
            render_scenes(of, "train", START + start, objects[start:stop])
            for start, stop in pairwise(cuts)
        ]
        for name, values in whole.items():
            assert {part[name].dtype for part in parts} == {values.dtype}
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, values, err_msg=name)


def test_cells_boxes_and_masks_are_of_the_objects_of_the_code(drawn: Any) -> None:
    _, objects, arrays = drawn
    assert arrays["images"].dtype == np.uint8
    stuff = arrays.get("stuff", np.zeros_like(arrays["cells"]))
    for code, cells, boxes, mask, behind in zip(
        objects, arrays["cells"], arrays["boxes"], arrays["masks"], stuff, strict=True
    ):
        assert set(cells[cells >= 0]) == set(np.flatnonzero(code))
        things = np.flatnonzero((boxes >= 0).all(axis=1))  # a bar has a box and no cell
        assert set(np.flatnonzero(cells >= 0)) <= set(things)
        assert (np.delete(boxes, things, axis=0) == -1).all()
        assert set(np.unique(mask)) <= {0, *(things + 1), *(np.flatnonzero(behind == 1) + 1)}
        for j in things:
            x0, y0, x1, y1 = boxes[j]
            outside = mask == j + 1
            outside[y0:y1, x0:x1] = False
            assert not outside.any()
