"""Two solids with a controlled hidden share: found by casting rays, in their slots."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ordered_scenes import ordered
from pydantic import ValidationError

from bindscope.codes.sampling import sample_codes
from bindscope.codes.slots import slots_of
from bindscope.config.codes import Dataset
from bindscope.core.errors import ConfigError
from bindscope.scenes.render import render_scenes

PAIRS = {"kind": "draws", "n_objects": 2}
RENDER = {
    "kind": "solids",
    "size_px": 96,
    "backend": {"kind": "raycast", "antialias": 1},
    "camera_jitter": 0,
    "fixed": {"size": "large"},
}


def pairs(hidden: list[float], **render: Any) -> Dataset:
    content = {**RENDER, "camera_height": 2.5, "hidden": hidden, **render}
    return ordered(PAIRS, 2, (576 - 8, 4, 4), render=content)


def drawn(dataset: Dataset, n: int = 4) -> tuple[dict[str, np.ndarray], np.ndarray]:
    objects = sample_codes(dataset, "train", 0, n)
    return render_scenes(dataset, "train", 0, objects), slots_of(dataset, "train", 0, objects)


@pytest.mark.parametrize("hidden", [[0.0, 0.0], [0.2, 0.3], [0.45, 0.55]])
def test_as_much_is_hidden_as_was_asked_for(hidden: list[float]) -> None:
    arrays, slots = drawn(pairs(hidden))
    np.testing.assert_array_equal(arrays["cells"], slots)
    np.testing.assert_array_equal(arrays["visible"][:, 0], 1)  # the one in front
    shares = 1 - arrays["visible"][:, 1]
    assert (shares >= hidden[0] - 0.02).all()
    assert (shares <= hidden[1] + 0.02).all()
    for mask, visible in zip(arrays["masks"], arrays["visible"], strict=True):
        assert {1, 2} <= set(np.unique(mask).tolist())
        assert visible[1] > 0.4
    front, behind = (
        np.median(depth[mask == j])
        for j in (1, 2)
        for depth, mask in [(arrays["depth"][0], arrays["masks"][0])]
    )
    assert front < behind


PLACES = [[-1.4, -0.1], [1.5, -0.05]]


def placed(n_objects: int, places: list[list[float]] = PLACES, **render: Any) -> Dataset:
    space = PAIRS if n_objects == 2 else {"kind": "uniform", "max_objects": 1}
    content = {**RENDER, "light_jitter": 0, "places": places, **render}
    sizes = (40, 4, 4) if n_objects == 1 else (568, 4, 4)
    return ordered(space, 2, sizes, render=content)


def test_objects_at_fixed_places_are_all_that_scenes_differ_in() -> None:
    arrays, slots = drawn(placed(2), 12)
    np.testing.assert_array_equal(arrays["cells"], slots)
    left, right = arrays["boxes"][:, 0], arrays["boxes"][:, 1]
    assert (left[:, 2] < right[:, 0] + 20).all()  # the first one stands left of the second
    assert (np.ptp(arrays["boxes"].astype(int).mean(axis=2), axis=0) < 5).all()
    ground = (arrays["masks"] == 0).all(axis=0)
    corner = arrays["images"][:, :10, :10]
    assert ground[:10, :10].all()
    np.testing.assert_array_equal(corner, np.broadcast_to(corner[:1], corner.shape))


def test_an_object_alone_stands_where_its_slot_is() -> None:
    arrays, slots = drawn(placed(1), 12)
    rows = np.arange(len(slots))
    np.testing.assert_array_equal(
        arrays["cells"][:, 0], slots[rows, (slots[:, 1] >= 0).astype(int)]
    )
    centers = arrays["boxes"][:, 0, [0, 2]].mean(axis=1)
    assert centers[slots[:, 0] >= 0].max() < centers[slots[:, 1] >= 0].min()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: drawn(pairs([0.95, 1.0], camera_height=8.0)),
            r"of the object behind can be hidden",
        ),
        (lambda: pairs([0.5, 0.2]), r"hidden is \[smallest, largest\]"),
        (
            lambda: ordered(PAIRS, 3, None, render={"kind": "solids", "hidden": [0.1, 0.2]}),
            "two objects in `slots: 2`",
        ),
        (lambda: placed(2, hidden=[0.1, 0.2]), "one of hidden and places"),
        (lambda: placed(2, [*PLACES, [0.0, 0.0]]), "3 places, one for each slot"),
        (lambda: drawn(placed(2, [[-1.4, -0.1], [40.0, 0.0]])), "outside the image"),
    ],
)
def test_what_cannot_be_hidden_or_placed_is_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        make()
