"""Two solids with a controlled hidden share: found by casting rays, in their slots."""

from __future__ import annotations

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


def pairs(hidden: list[float], **render: Any) -> Dataset:
    content = {
        "kind": "solids",
        "size_px": 96,
        "backend": {"kind": "raycast", "antialias": 1},
        "camera_jitter": 0,
        "camera_height": 2.5,
        "fixed": {"size": "large"},
        "hidden": hidden,
        **render,
    }
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


def test_what_cannot_be_hidden_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"of the object behind can be hidden"):
        drawn(pairs([0.95, 1.0], camera_height=8.0))
    with pytest.raises(ValidationError, match=r"hidden is \[smallest, largest\]"):
        pairs([0.5, 0.2])
    with pytest.raises(ValidationError, match="two objects in `slots: 2`"):
        ordered(PAIRS, 3, None, render={"kind": "solids", "hidden": [0.1, 0.2]})
