"""Images of object codes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bindscope.codes.counting import largest_scene
from bindscope.config.codes import SceneDistribution
from bindscope.core.errors import ConfigError
from bindscope.core.registries import RENDERERS, resolve
from bindscope.core.splits import SplitName
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.shards import write_blocks

if TYPE_CHECKING:
    from bindscope.core.interfaces import Renderer

BLOCK = 256  # scenes that are drawn, and held in memory, at a time


def render_scenes(
    dataset: SceneDistribution, split: SplitName, start: int, objects: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    """Draw consecutive scenes of a split, from number `start` on: object codes uint8 (n, K).

    Scene i looks the same in whatever shard it is drawn. Called with no scenes at all, it checks
    whether the dataset can be drawn.

    Returns
    -------
    `images`
        uint8 (n, H, W, 3), RGB.
    `masks`
        uint8 (n, H, W): 0 = background, j = the j-th object of the scene.
    `boxes`
        int16 (n, M, 4): x0 y0 x1 y1 of the j-th object's square, in pixels, ends exclusive; -1
        where there is no j-th object. M is the largest number of objects of the dataset.
    `cells`
        int16 (n, M): the object-code index of the j-th object, ascending; -1 = none.

    Raises
    ------
    ConfigError
        If the dataset cannot be drawn, or a scene not be placed.
    """
    if dataset.render is None:
        raise ConfigError(
            f"dataset {dataset.name!r}",
            "has no render section, so there are no images of it",
            "add one (`render: {kind: shapes}`), or use it with known-answer models only",
        )
    n_cells = prod(group.size for group in dataset.space.groups)
    if objects.ndim != 2 or objects.shape[1] != n_cells:
        raise ConfigError(
            f"dataset {dataset.name!r}, {split}",
            f"object codes of shape {objects.shape} do not fit the space's {n_cells} cells",
            "pass the codes of this dataset, one scene a row",
        )
    counts, largest = objects.sum(axis=1, dtype=np.int64), largest_scene(dataset.space)
    if counts.max(initial=0) > largest:
        raise ConfigError(
            f"dataset {dataset.name!r}, {split}, scene {start + int(counts.argmax())}",
            f"has {counts.max()} objects, and the dataset's space allows {largest}",
            "render the codes of this dataset, or widen its space",
        )
    renderer: Renderer = resolve(RENDERERS[dataset.render.kind])
    return renderer(dataset, split, start, objects)


def write_scenes(
    dataset: SceneDistribution,
    split: SplitName,
    start: int,
    objects: NDArray[np.uint8],
    writer: StoreWriter,
) -> None:
    """Draw the scenes of a shard into a store that is being written; see `render_scenes`."""

    def drawn(first: int, last: int) -> dict[str, NDArray[Any]]:
        return render_scenes(dataset, split, start + first, objects[first:last])

    writer.attributes.update(split=split, start=start)
    write_blocks(writer, len(objects), BLOCK, "scenes", drawn)
