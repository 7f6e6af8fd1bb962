"""Trained toys as engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.config.zoo import REMEDY, manifest_path
from bindscope.core.errors import ConfigError
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.images import draw
from bindscope.studies.binding_id.tasks.task import Pictures, Scenes
from bindscope.studies.binding_id.toys.adapter import engine_of
from bindscope.studies.binding_id.toys.stored import load as load_toy
from bindscope.studies.binding_id.toys.vocabulary import LAYOUT
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine


def load(
    model: Mapping[str, Any], reading: Reading, weights: Path | None, device: str = "cpu"
) -> tuple[VisionLanguageEngine, Pictures]:
    """Load a toy, and draw the images that it reads.

    Parameters
    ----------
    model
        `name`, and `source` where the zoo has it.
    reading
        How it is given scenes: toys know `layout: sprites` and `template: short`.
    weights
        Manifest that `stored.write` wrote; None where the zoo has it.
    device
        Not used: a toy is read on the CPU.

    Raises
    ------
    ConfigError
        If scenes are not those of toys.
    ModelError
        If the toy's files are missing or damaged.
    """
    where = f"toy {model['name']}"
    if reading.rule.layout != LAYOUT or reading.template != "short" or reading.text_only:
        raise ConfigError(
            where, f"it is given {reading.rule.layout!r} scenes in the template "
            f"{reading.template!r}{' without images' if reading.text_only else ''}",
            f"use a task of `layout: {LAYOUT}` and a suite of `template: short` with images",
        )  # fmt: skip

    def pictures(scenes: Scenes) -> NDArray[np.uint8]:
        return draw(scenes, reading.rule.layout).images

    if "source" in model:
        weights = manifest_path(model["source"])
    assert weights is not None  # the graph has it
    remedy = REMEDY if "source" in model else None
    return engine_of(where, load_toy(weights, remedy=remedy), reading.form), pictures
