"""The clevr renderer: from object codes to images and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.space import build_space
from bindscope.config.clevr import ClevrRenderer
from bindscope.config.codes import SceneDistribution, SplitName
from bindscope.errors import ConfigError
from bindscope.registries import BACKENDS, resolve
from bindscope.scenes.clevr.description import Scene, pack
from bindscope.scenes.clevr.labels import Labels, cast
from bindscope.scenes.clevr.placement import check_room, compose
from bindscope.scenes.clevr.vocabulary import cell_features

MOST_OBJECTS = 255  # that a mask can number

UInt8 = NDArray[np.uint8]
Backend = Callable[[ClevrRenderer, Sequence[Scene]], UInt8]


def render(
    dataset: SceneDistribution, config: ClevrRenderer, split: SplitName, start: int, objects: UInt8
) -> dict[str, NDArray[Any]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`.

    Parameters
    ----------
    dataset, split, start
        As there.
    config
        The dataset's `render` section.
    objects
        uint8 (n, K): how many objects of each cell a scene holds; object codes (0 and 1) unless
        the space can hold an object twice.

    Returns
    -------
    `images`, `masks`, `cells`
        As there.
    `boxes`
        int16 (n, M, 4): the tight box of each object's outline, hidden parts included.
    `depth`
        uint16 (n, H, W): depth in thousandths of a scene unit; 0 = background.
    `visible`
        float32 (n, M): visible pixels of the j-th object over those that it would show alone, both
        inside the image; -1 where there is no j-th object.
    `descriptions`
        uint8 (n, L): the scene as JSON text, zeros behind it; see `description.unpack`.

    Raises
    ------
    ConfigError
        If a scene cannot be placed, or the backend is not there.
    """
    where = f"dataset {dataset.name!r}"
    most = build_space(dataset.space).max_objects
    counts = objects.sum(axis=1, dtype=np.int64)
    if counts.max(initial=0) > most or most > MOST_OBJECTS:
        raise ConfigError(
            f"{where}, {split}, scene {start + int(counts.argmax()) if len(counts) else 0}",
            f"has {counts.max(initial=0)} objects; the space allows {most} and masks number "
            f"{MOST_OBJECTS}",
            "render the codes of this dataset, or change its space",
        )
    check_room(config, most, where)
    backend: Backend = resolve(BACKENDS[config.backend])
    features = cell_features(dataset, config)
    drawn = _Drawn(config, most)
    for i, row in enumerate(objects):
        scene = compose(
            config, features, row, seed=dataset.seed, split=split, index=start + i, where=where,
            accept=drawn.judge,
        )  # fmt: skip
        drawn.add(scene)
    return {"images": backend(config, drawn.scenes), **drawn.arrays()}


def _length(most: int) -> int:
    """Bytes that hold a description of `most` objects (a test tries the worst)."""
    return 2000 + 330 * most + 8 * most * most


class _Drawn:
    """Scenes and their labels while they are collected."""

    def __init__(self, config: ClevrRenderer, most: int) -> None:
        self.config, self.most = config, most
        self.scenes: list[Scene] = []
        self._labels: list[Labels] = []
        self._judged: tuple[Scene, Labels] | None = None

    def judge(self, scene: Scene) -> str | None:
        """Say which object shows too little of itself."""
        labels = cast(scene)
        self._judged = scene, labels
        if not labels.alone.all():
            return "an object would stand outside the image, or be smaller than a pixel"
        if labels.visible.min(initial=self.config.min_visible_px) < self.config.min_visible_px:
            return f"fewer than min_visible_px = {self.config.min_visible_px} pixels of an object"
        return None

    def add(self, scene: Scene) -> None:
        """Keep a scene that was just judged."""
        assert self._judged is not None
        assert self._judged[0] is scene
        self.scenes.append(scene)
        self._labels.append(self._judged[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Stack the labels."""
        n, size = len(self.scenes), self.config.size_px
        boxes = np.full((n, self.most, 4), -1, np.int16)
        cells = np.full((n, self.most), -1, np.int16)
        visible = np.full((n, self.most), -1, np.float32)
        masks, depth = np.zeros((n, size, size), np.uint8), np.zeros((n, size, size), np.uint16)
        for i, (scene, labels) in enumerate(zip(self.scenes, self._labels, strict=True)):
            m = len(scene.objects)
            boxes[i, :m] = labels.boxes
            cells[i, :m] = [solid.cell for solid in scene.objects]
            visible[i, :m] = labels.visible / labels.alone
            masks[i], depth[i] = labels.mask, labels.depth
        texts = [scene.to_json() for scene in self.scenes]
        return {
            "masks": masks, "boxes": boxes, "cells": cells, "depth": depth, "visible": visible,
            "descriptions": pack(texts, _length(self.most)),
        }  # fmt: skip
