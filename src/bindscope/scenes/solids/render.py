"""The solids renderer: from object codes to images and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.codes.type_counts import type_counts_of
from bindscope.config.codes import SceneDistribution
from bindscope.config.solids import Backend, SolidsRenderer
from bindscope.core.errors import ConfigError
from bindscope.core.registries import BACKENDS, resolve
from bindscope.core.splits import SplitName
from bindscope.scenes.solids.description import Scene, pack
from bindscope.scenes.solids.labels import PixelLabels, cast
from bindscope.scenes.solids.placement import Composer, check_room
from bindscope.scenes.solids.vocabulary import cell_features

UInt8 = NDArray[np.uint8]


def draw(config: Backend, scenes: Sequence[Scene]) -> UInt8:
    """Draw described scenes with a backend.

    Parameters
    ----------
    config
        A `backend` section.
    scenes
        All of one size; none at all: only what the backend needs is checked.

    Returns
    -------
    uint8 (n, H, W, 3), RGB.

    Raises
    ------
    ConfigError
        If the backend is not installed.
    """
    backend: Callable[[Backend, Sequence[Scene]], UInt8] = resolve(BACKENDS[config.kind])
    return backend(config, scenes)


def render(
    dataset: SceneDistribution,
    config: SolidsRenderer,
    split: SplitName,
    start: int,
    objects: UInt8,
) -> dict[str, NDArray[Any]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`.

    Parameters
    ----------
    dataset, split, start, objects
        As there; where the space draws with repeats, how often is drawn here.
    config
        The dataset's `render` section.

    Returns
    -------
    `images`, `masks`, `cells`
        As there; a cell stands in `cells` once per object.
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
    most = largest_scene(dataset.space)
    check_room(config, most, where)
    counts = type_counts_of(dataset, split, start, objects)
    _check_counts(counts, most, f"{where}, {split}", start)
    drawn = _Drawn(config, most)
    features = cell_features(dataset, config)
    composer = Composer(config, features, dataset.seed, split, where, drawn.judge)
    for i, row in enumerate(counts):
        drawn.add(composer.compose(start + i, row))
    size = config.size_px
    images = draw(config.backend, drawn.scenes).reshape(-1, size, size, 3)
    return {"images": images, **drawn.arrays()}


def _check_counts(counts: UInt8, most: int, where: str, start: int) -> None:
    found = counts.sum(axis=1, dtype=np.int64)
    if found.max(initial=0) > most:
        raise ConfigError(
            f"{where}, scene {start + int(found.argmax())}",
            f"has {found.max()} objects, and the dataset's space allows {most}",
            "render the codes of this dataset, or widen its space",
        )


def description_bytes(most: int) -> int:
    """Bytes that hold any description of `most` objects."""
    return 2000 + 330 * most + 8 * most * most


class _Drawn:
    """Scenes and their labels while they are collected."""

    def __init__(self, config: SolidsRenderer, most: int) -> None:
        self.config, self.most = config, most
        self.scenes: list[Scene] = []
        self._labels: list[PixelLabels] = []
        self._judged: PixelLabels | None = None

    def judge(self, scene: Scene) -> str | None:
        """Say which object shows too little of itself; keep the labels for `add`."""
        labels = self._judged = cast(scene)
        if not labels.alone.all():
            return "an object would stand outside the image, or be smaller than a pixel"
        if labels.visible.min(initial=self.config.min_visible_px) < self.config.min_visible_px:
            return f"fewer than {self.config.min_visible_px} pixels of an object are visible"
        return None

    def add(self, scene: Scene) -> None:
        """Keep the scene that was judged last."""
        assert self._judged is not None
        self.scenes.append(scene)
        self._labels.append(self._judged)

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
            "descriptions": pack(texts, description_bytes(self.most)),
        }  # fmt: skip
