"""The solids renderer: from object codes to images and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.codes.slots import slots_of
from bindscope.codes.type_counts import type_counts_of
from bindscope.config.codes import SceneDistribution
from bindscope.config.solids import Backend, SolidsRenderer
from bindscope.core.array_types import UInt8
from bindscope.core.progress import Progress
from bindscope.core.registries import BACKENDS, resolve
from bindscope.core.splits import SplitName
from bindscope.scenes.solids.description import SolidScene, pack
from bindscope.scenes.solids.fixed import FixedComposer
from bindscope.scenes.solids.labels import PixelLabels, cast
from bindscope.scenes.solids.pairs import PairComposer
from bindscope.scenes.solids.placement import ObjectFeatures, SolidComposer, check_room
from bindscope.scenes.solids.vocabulary import cell_features


def draw(config: Backend, scenes: Sequence[SolidScene]) -> UInt8:
    """Draw described scenes of one size with a backend, uint8 (n, H, W, 3), RGB.

    Of none at all only what the backend needs is checked: ConfigError if it is not installed.
    """
    backend: Callable[[Backend, Sequence[SolidScene]], Iterator[UInt8]]
    backend = resolve(BACKENDS[config.kind])
    progress = Progress(len(scenes), "images")
    images = []
    for image in backend(config, scenes):
        images.append(image)
        progress.advance()
    return np.array(images, np.uint8)


def render(
    dataset: SceneDistribution, split: SplitName, start: int, objects: UInt8
) -> dict[str, NDArray[Any]]:
    """Draw scenes; see `bindscope.scenes.render.render_scenes`.

    Where the space draws with repeats, how often is drawn here, and a cell stands in `cells` once
    per object. With `hidden` or `places`, objects are by slot. ConfigError if
    a scene cannot be placed, or the backend is not there.

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
    """
    config, where = dataset.render, f"dataset {dataset.name!r}"
    assert isinstance(config, SolidsRenderer)
    most = largest_scene(dataset.space)
    check_room(config, most, where)
    features = cell_features(dataset, config)
    if config.hidden is None and config.places is None:
        counts = type_counts_of(dataset, split, start, objects)
        scenes, labels = _scattered(dataset, config, features, split, start, counts)
    else:
        kind = FixedComposer if config.places else PairComposer
        composer = kind(config, features, dataset.seed, split, where)
        slots = slots_of(dataset, split, start, objects).tolist()
        composed = [composer.compose(start + i, row) for i, row in enumerate(slots)]
        scenes, labels = (
            [scene for scene, _ in composed],
            [cast_labels for _, cast_labels in composed],
        )
    size = config.size_px
    images = draw(config.backend, scenes).reshape(-1, size, size, 3)
    return {"images": images, **_arrays(scenes, labels, size, most)}


def _scattered(
    dataset: SceneDistribution,
    config: SolidsRenderer,
    features: ObjectFeatures,
    split: SplitName,
    start: int,
    counts: UInt8,
) -> tuple[list[SolidScene], list[PixelLabels]]:
    """Place objects by CLEVR's rules; scenes and their labels."""
    labels: list[PixelLabels] = []

    def judge(scene: SolidScene) -> str | None:
        """Say why a scene is refused; keep the labels of one that is not."""
        cast_labels = cast(scene)
        problem = _problem(cast_labels, config.min_visible_px)
        if problem is None:
            labels.append(cast_labels)
        return problem

    where = f"dataset {dataset.name!r}"
    composer = SolidComposer(config, features, dataset.seed, split, where, judge)
    scenes = [composer.compose(start + i, row) for i, row in enumerate(counts)]
    return scenes, labels


def description_bytes(most: int) -> int:
    """Bytes that hold any description of `most` objects."""
    return 2000 + 330 * most + 8 * most * most


def _problem(labels: PixelLabels, min_visible_px: int) -> str | None:
    """Say why a scene with these labels shows too little of an object."""
    if not labels.alone.all():
        return "an object would stand outside the image, or be smaller than a pixel"
    if labels.visible.min(initial=min_visible_px) < min_visible_px:
        return f"fewer than {min_visible_px} pixels of an object are visible"
    return None


def _arrays(
    scenes: Sequence[SolidScene], labels: Sequence[PixelLabels], size: int, most: int
) -> dict[str, NDArray[Any]]:
    """Stack the labels of scenes."""
    n = len(scenes)
    boxes = np.full((n, most, 4), -1, np.int16)
    cells = np.full((n, most), -1, np.int16)
    visible = np.full((n, most), -1, np.float32)
    masks, depth = np.zeros((n, size, size), np.uint8), np.zeros((n, size, size), np.uint16)
    for i, (scene, cast_labels) in enumerate(zip(scenes, labels, strict=True)):
        m = len(scene.objects)
        boxes[i, :m] = cast_labels.boxes
        cells[i, :m] = [solid.cell for solid in scene.objects]
        visible[i, :m] = cast_labels.visible / cast_labels.alone
        masks[i], depth[i] = cast_labels.mask, cast_labels.depth
    texts = [scene.to_json() for scene in scenes]
    return {
        "masks": masks,
        "boxes": boxes,
        "cells": cells,
        "depth": depth,
        "visible": visible,
        "descriptions": pack(texts, description_bytes(most)),
    }
