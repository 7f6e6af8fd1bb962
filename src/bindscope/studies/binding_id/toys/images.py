"""Images of the toys: sprites in 3 x 3 slots, each with its own light, tint and place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.tasks.images import draw
from bindscope.studies.binding_id.tasks.task import Scenes
from bindscope.studies.binding_id.toys.vocabulary import LAYOUT


def images(scenes: Scenes, stream: np.random.Generator) -> NDArray[np.uint8]:
    """Draw scenes, uint8 (n, 36, 36, 3)."""
    return draw(scenes, LAYOUT, stream).images
