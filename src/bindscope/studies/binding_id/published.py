"""Published vision-language models, and those of a folder, as engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.images import Images
from bindscope.studies.binding_id.tasks.looks import Look
from bindscope.studies.binding_id.tasks.task import Pictures, Scenes
from bindscope.studies.binding_id.vlm import loading
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine


def load(
    model: Mapping[str, Any], reading: Reading, weights: Path | None, device: str = "cpu"
) -> tuple[VisionLanguageEngine, Pictures]:
    """Load a model of the configuration, and draw the images that it reads.

    Parameters
    ----------
    model
        Its section, as JSON.
    reading
        How it is given scenes.
    weights
        Manifest of the rule that downloaded it, where one did.
    device
        Where it is to run.
    """
    pictures = Images(reading.rule.layout, Look.of(reading.rule))

    def masks(scenes: Scenes) -> NDArray[np.bool_]:
        roles = np.arange(1, scenes.things + 1)[:, None, None]
        return np.asarray(pictures.drawn(scenes).masks[:, None] == roles)

    engine = loading.load(
        model, reading.form, weights, masks, device=device, rule=reading.rule
    )  # fmt: skip
    return engine, pictures
