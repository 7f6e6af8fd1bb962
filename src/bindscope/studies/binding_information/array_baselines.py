"""Baselines of arrays' images: what `measure.binding_information` fits beside a representation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bindscope.arrays.inputs import Representation, to_array
from bindscope.core.array_types import UInt8
from bindscope.core.errors import InputError
from bindscope.models.baselines import BASELINES, area_codes, count_pixels, packed_colors

PREFIX: Final = "baseline:"  # of the layers that baselines stand in
MOST_COLORS: Final = 32  # of images whose colors are flat
_AT_ONCE: Final = 128  # images


def read_baselines(images: Any, n_scenes: int, where: str) -> dict[str, Representation]:
    """Describe images, uint8 (N, H, W, 3), read in parts where they are on disk.

    Returns
    -------
    dict
        By layer: the color histogram and 12 x 12 pixels; the areas of colors where all images
        together have at most `MOST_COLORS`.

    Raises
    ------
    InputError
        If they are no such array, or not as many as there are scenes.
    """
    if not (isinstance(images, np.memmap) or hasattr(images, "chunks")):
        images = to_array(images, where, "images")
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[-1] != 3 or 0 in shape or images.dtype != np.uint8:
        raise InputError(
            where,
            f"`images` is {images.dtype} {shape}",
            "give uint8 (N, H, W, 3), colors of 0 to 255 last",
        )
    if shape[0] != n_scenes:
        raise InputError(
            where,
            f"there are {shape[0]} images for {n_scenes} scenes",
            "give one image for each scene of `Z`",
        )
    values = {
        name: np.concatenate([BASELINES[name].describe(block) for block in _blocks(images)])
        for name in ("color-histogram", "pixels")
    }
    areas = _areas(images, _flat_colors(images))
    if areas.shape[1]:
        values["color-areas"] = areas
    return {PREFIX + name: Representation(z, where, name) for name, z in values.items()}


def _blocks(images: Any) -> Iterator[UInt8]:
    for start in range(0, images.shape[0], _AT_ONCE):
        yield np.asarray(images[start : start + _AT_ONCE])


def _flat_colors(images: Any) -> NDArray[np.int32]:
    """Return the colors of all images, packed; none where there are too many."""
    colors = np.empty(0, np.int32)
    for block in _blocks(images):
        colors = np.union1d(colors, packed_colors(block))
        if len(colors) > MOST_COLORS:
            return np.empty(0, np.int32)
    return colors


def _areas(images: Any, colors: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return codes of the areas of some colors, without columns that are the same everywhere."""
    if not len(colors):
        return np.empty((images.shape[0], 0), np.float32)
    counts = np.concatenate([count_pixels(block, colors) for block in _blocks(images)])
    n_pixels = images.shape[1] * images.shape[2]
    codes = [area_codes(counts[:, [i]], n_pixels) for i in range(len(colors))]
    return np.hstack([code[:, np.ptp(code, axis=0) > 0] for code in codes])
