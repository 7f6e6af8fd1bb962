"""Baselines: numbers of an image that bind nothing, measured as if they were a model.

Whatever a probe decodes from them of which feature belongs to which needs no binding: the scenes
give it away. Two of the three discard where pixels are (`BaselineKind.discards_place`), so a
representation that binds must hold more than they do. The third, `pixels`, keeps coarse places: a
probe can combine colors and outlines itself, so it is a reference and no rival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from bindscope.core.array_types import Singles, UInt8
from bindscope.models.base import LayerShape, TokenMap
from bindscope.scenes.palette import COLORS

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, device

    from bindscope.config.models import Baseline
    from bindscope.core.interfaces import Layer


LEVELS: Final = 4  # of a channel, in `color_histogram`
SIDE: Final = 12  # of what `pixels` gives

# A linear probe distinguishes areas that lie at different knots: all up to a thousand pixels, since
# the released stamps have even areas, and those that differ by 4 % above.
KNOTS: Final = np.concatenate([np.arange(0, 1024, 2), np.geomspace(1024, 2**16, 97)])


def color_histogram(images: UInt8) -> Singles:
    """Return the share of pixels in each of 4 x 4 x 4 bins of RGB.

    Parameters
    ----------
    images
        uint8 (N, H, W, 3).

    Returns
    -------
    numpy.ndarray
        float32 (N, 64), rows sum to 1; bins in order of red, green, blue.
    """
    level = images // (256 // LEVELS)
    bins = (level[..., 0] * LEVELS + level[..., 1]) * LEVELS + level[..., 2]
    n, n_bins = len(images), LEVELS**3
    flat = bins.reshape(n, -1) + n_bins * np.arange(n)[:, None]
    counts = np.bincount(flat.ravel(), minlength=n * n_bins).reshape(n, n_bins)
    shares: Singles = (counts / bins[0].size).astype(np.float32)
    return shares


def color_areas(images: UInt8, palette: Sequence[tuple[int, int, int]]) -> Singles:
    """Return how many pixels have exactly each color of a palette, in a code for linear probes.

    The number of pixels of a color is written as its share, and as its place between `KNOTS`: its
    two neighbors share a weight of 1. A linear probe thus reads any function of each number (the
    one area that means "star", and no other), which it could not from the number itself.

    Parameters
    ----------
    images
        uint8 (N, H, W, 3).
    palette
        Colors in RGB, 0 to 255.

    Returns
    -------
    numpy.ndarray
        float32 (N, len(palette) * (1 + len(KNOTS))), color by color.
    """
    counts = count_pixels(images, packed_colors(np.array(palette)))
    return area_codes(counts, images[0, ..., 0].size)


def count_pixels(images: UInt8, colors: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of pixels of each of `packed_colors`, (N, colors)."""
    packed = packed_colors(images)
    return np.stack([(packed == color).sum(axis=(1, 2)) for color in colors], axis=1)


def packed_colors(colors: NDArray[Any]) -> NDArray[np.int32]:
    """Return each color (..., 3) as one number."""
    red, green, blue = np.moveaxis(colors.astype(np.int32), -1, 0)
    return np.asarray((red * 256 + green) * 256 + blue)


def area_codes(areas: NDArray[np.integer], n_pixels: int) -> Singles:
    """Return numbers of pixels (N, colors) of images of `n_pixels` as codes; see `color_areas`."""
    upper = np.clip(np.searchsorted(KNOTS, areas), 1, len(KNOTS) - 1)
    weight = (areas - KNOTS[upper - 1]) / (KNOTS[upper] - KNOTS[upper - 1])
    codes = np.zeros((*areas.shape, 1 + len(KNOTS)), np.float32)
    codes[..., 0] = areas / n_pixels
    np.put_along_axis(codes, upper[..., None], 1 - weight[..., None], axis=2)
    np.put_along_axis(codes, upper[..., None] + 1, weight[..., None], axis=2)
    return codes.reshape(len(areas), -1)


def pixels(images: UInt8) -> Singles:
    """Return images as 12 x 12 pixels, means over areas of equal size, from 0 to 1.

    Parameters
    ----------
    images
        uint8 (N, H, W, 3) of any side; pixels on a border count in part.

    Returns
    -------
    numpy.ndarray
        float32 (N, 432), row by row.
    """
    rows, columns = (_pooling(side) for side in images.shape[1:3])
    pooled = np.einsum("ih,nhwc,jw->nijc", rows, images.astype(np.float32), columns, optimize=True)
    means: Singles = (pooled / 255.0).reshape(len(images), -1).astype(np.float32)
    return means


def _pooling(side: int) -> Singles:
    """Return the share of each of `side` pixels in each of `SIDE` equal parts, (SIDE, side)."""
    edges = np.linspace(0, side, SIDE + 1)
    starts, ends = np.arange(side), np.arange(side) + 1
    overlap = np.minimum(edges[1:, None], ends) - np.maximum(edges[:-1, None], starts)
    return (overlap.clip(min=0) * SIDE / side).astype(np.float32)


@dataclass(frozen=True)
class BaselineKind:
    """One kind of baseline.

    Attributes
    ----------
    words
        What figures and sentences call it.
    dim
        How many numbers an image has.
    discards_place
        Whether it forgets where pixels are. What it holds of pairing is a cue of the scenes, so it
        is a rival of representations that are said to bind.
    describe
        uint8 images (N, H, W, 3) -> float32 (N, dim).
    """

    words: str
    dim: int
    discards_place: bool
    describe: Callable[[UInt8], Singles]


# By the name of the model in a configuration.
BASELINES: Final = {
    "color-histogram": BaselineKind("color histogram", LEVELS**3, True, color_histogram),
    "color-areas": BaselineKind(
        "color areas",
        len(COLORS) * (1 + len(KNOTS)),
        True,
        partial(color_areas, palette=tuple(COLORS.values())),
    ),
    "pixels": BaselineKind(f"{SIDE} x {SIDE} pixels", SIDE * SIDE * 3, False, pixels),
}


class BaselineModel:
    """A baseline as a model of images: one layer, whose only token is a [CLS]; no weights."""

    n_layers = 0
    weights_sha256 = ""

    def __init__(self, name: str, device: device, input_px: int | None = None) -> None:
        self._baseline, self._device, self._input_px = BASELINES[name], device, input_px
        self.dim, self.revision = self._baseline.dim, f"baseline {name}"
        self.token_map = TokenMap(prefix=1, registers=0, grid=(0, 0), patch_px=1, has_cls=True)
        self.shapes: dict[Layer, LayerShape] = {0: LayerShape(self.dim, self.token_map)}

    def preprocess(self, images: UInt8) -> Tensor:
        """Describe images: uint8 (B, H, W, 3) to float32 (B, dim)."""
        import torch

        if self._input_px:
            from bindscope.models.images import resized

            tensor = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
            images = resized(tensor, self._input_px).permute(0, 2, 3, 1).numpy()
        return torch.from_numpy(self._baseline.describe(images)).to(self._device)

    def residual_stream(
        self, pixels: Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Give layer 0, float32 (B, 1, dim)."""
        for layer in layers:
            yield layer, pixels[:, None]


def load(
    config: Baseline, weights: Path | None, device: device, input_px: int | None = None
) -> BaselineModel:
    """Return a baseline (`load_model`); it reads images as they are, unless it says a size."""
    return BaselineModel(config.name, device, config.input_px)
