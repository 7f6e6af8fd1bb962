"""A model that reads an image as a sheet of crops, each on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from bindscope.core.array_types import UInt8
from bindscope.core.interfaces import Layer, Model
from bindscope.models.base import LayerShape, TokenMap, layer_shapes


def read_crops(model: Model, crops: tuple[int, int]) -> Model:
    """Return a model that reads sheets of crops (rows, columns); itself where there is one crop."""
    return model if crops == (1, 1) else CropReader(model, crops)


class CropReader:
    """Patch tokens of a sheet of crops, in raster order of the whole sheet; no other tokens.

    Patches of two crops see nothing of each other. What else `core.interfaces.Model` offers is that
    of the model of one crop.
    """

    def __init__(self, model: Model, crops: tuple[int, int]) -> None:
        self.model, self.crops = model, crops
        self.n_layers, self.dim, self.revision = model.n_layers, model.dim, model.revision
        self.weights_sha256 = model.weights_sha256
        self.token_map: TokenMap = self._whole(model.token_map)
        self.shapes: dict[Layer, LayerShape] = {
            layer: replace(shape, token_map=self._whole(shape.token_map))
            for layer, shape in layer_shapes(model).items()
        }

    def _whole(self, token_map: TokenMap) -> TokenMap:
        """Return which token is what of the sheet."""
        rows, columns = (n * side for n, side in zip(self.crops, token_map.grid, strict=True))
        return TokenMap(0, 0, (rows, columns), token_map.patch_px, False)

    def preprocess(self, images: UInt8) -> Tensor:
        """Cut sheets (B, H, W, 3) into crops, and apply the model's transform to each of them."""
        (n, height, width, channels), (rows, columns) = images.shape, self.crops
        cells = images.reshape(n, rows, height // rows, columns, width // columns, channels)
        cut = cells.swapaxes(2, 3).reshape(-1, height // rows, width // columns, channels)
        return self.model.preprocess(np.ascontiguousarray(cut))

    def residual_stream(
        self, pixels: Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Run the model over all crops, and put their patches together."""
        shapes = layer_shapes(self.model)
        for layer, tokens in self.model.residual_stream(pixels, layers):
            yield layer, self._joined(tokens, shapes[layer].token_map)

    def _joined(self, tokens: Tensor, token_map: TokenMap) -> Tensor:
        """Put patches of crops (B * crops, T, d) in the raster order of their sheets."""
        (rows, columns), (high, wide) = self.crops, token_map.grid
        patches, width = tokens[:, token_map.patches], tokens.shape[-1]
        sheets = patches.reshape(-1, rows, columns, high, wide, width)
        joined: Tensor = sheets.transpose(2, 3).reshape(len(sheets), -1, width)
        return joined
