"""Planted patch tokens of cluttered scenes, with what binds them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from bindscope.arrays.example import Example
from bindscope.studies.same_object.config import Planted
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.known import planted_tokens
from bindscope.studies.same_object.planted import GRID, labels

N_SCENES: Final = 200
_PARTS: Final[dict[str, Any]] = {
    "dim": 32, "rank": 6, "class_dims": 4, "place_dims": 6, "image_dims": 6, "classes": 1.0,
    "position": 1.0, "image": 1.0, "noise": 0.3,
}  # fmt: skip


def clutter(n: int | None, random_state: int) -> Example:
    """Make `n` (200) scenes of two to five objects of three classes on a grid of 4 x 4 patches.

    Tokens of the layer `classes` hold the class of their object, their position and a vector of
    the image: two objects of one class cannot be distinguished. Those of `objects` also hold a
    vector of their object, which a quadratic probe of rank 6 reads.
    """
    sample = labels(N_SCENES if n is None else n, random_state, 0, uneven=False)
    data = PairData.of(sample, None, GRID)
    arrays = {
        name: planted_tokens(
            data.instances, data.classes, data.positions, GRID,
            Planted(**_PARTS, binding=binding, seed=random_state),
        )
        for name, binding in (("classes", 0.0), ("objects", 1.0))
    }  # fmt: skip
    segments = sample["instances"]
    scene, segment = np.divmod(
        np.unique(np.arange(len(segments))[:, None] * (segments.max() + 1) + segments),
        segments.max() + 1,
    )
    patch = (segments[scene] == segment[:, None]).argmax(1)
    objects = pd.DataFrame(
        {"scene": scene, "segment": segment, "class": sample["classes"][scene, patch]}
    )
    truth = {"classes": {"binds": 0.0, "rank": 0.0}, "objects": {"binds": 1.0, "rank": 6.0}}
    return Example(arrays, objects, truth, segments=segments)
