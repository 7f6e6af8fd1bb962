"""Which token shows which patch: patches of an image are changed, and the token that changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bindscope.core.errors import ModelError
from bindscope.core.interfaces import Layer, Model
from bindscope.models.base import LayerShape, layer_shapes
from bindscope.models.stream import FrozenViT

_CELLS = 16  # patches that are changed in turn
_SEED = 1
_SAME = 1e-4  # of the largest value: what two equal passes may differ by
_VANISHED = 1e-18  # squares of smaller values are 0 in float32
# Cells of overlapping convolutions can change less than their neighbours: so many need to be right.
_SHARE = 1 / 3
_LARGE = 7  # cells on a side, from which neighbours are distinguished from cells at random
_DIFFUSE = 2.0  # largest change over the median one, below which all tokens change alike
_SMALL_SHARE = 2 / 3  # of patches of smaller grids: a third is met by tokens of merged patches, too


def choose_cells(grid: tuple[int, int]) -> NDArray[np.intp]:
    """Return numbers of cells in raster order, a third of them at each of two edges.

    If tokens are shifted by one, cells of the left or right edge are found at the other edge.
    """
    rows, columns = grid
    rng = np.random.default_rng(_SEED)
    at_edge = min(rows, _CELLS // 3)
    first_column = rng.permutation(rows)[:at_edge] * columns
    last_column = rng.permutation(rows)[:at_edge] * columns + columns - 1
    anywhere = rng.permutation(rows * columns)[: _CELLS - 2 * at_edge]
    return np.unique(np.concatenate([first_column, last_column, anywhere]))


def change_patches(
    image: NDArray[np.uint8], grid: tuple[int, int], cells: NDArray[np.intp]
) -> NDArray[np.uint8]:
    """Return an image (H, W, 3) once per cell, with the colors of that cell inverted."""
    rows, columns = grid
    height, width = image.shape[:2]
    changed = np.repeat(image[None], len(cells), axis=0)
    for number, cell in enumerate(cells):
        row, column = divmod(int(cell), columns)
        inside_rows = slice(row * height // rows, (row + 1) * height // rows)
        inside_columns = slice(column * width // columns, (column + 1) * width // columns)
        changed[number, inside_rows, inside_columns] ^= 255
    return changed


def relative_changes(before: Tensor, after: Tensor) -> NDArray[np.float32]:
    """Return how much the tokens (1, T, d) change in each of the images (n, T, d), (n, T).

    Changes are relative, since tokens of large norm change with any part of an image.
    """
    norm = before.norm(dim=-1)
    relative: NDArray[np.float32] = (
        ((after - before).norm(dim=-1) / (norm + norm.mean())).cpu().numpy()
    )
    return relative


def is_raster(
    grid: tuple[int, int], cells: NDArray[np.intp], most: NDArray[np.intp], is_map: bool
) -> bool:
    """Return whether the cells that change most are those that were changed, or neighbours."""
    rows, columns = grid
    is_coarse = is_map or min(grid) >= _LARGE
    tolerance, share = int(is_coarse), _SHARE if is_coarse else _SMALL_SHARE
    row, column = np.divmod(cells, columns)
    distance = np.maximum(abs(most // columns - row), abs(most % columns - column))
    transposed = np.maximum(abs(most % rows - row), abs(most // rows - column))
    near = distance <= tolerance
    if near.mean() < max(share, (transposed <= tolerance).mean()):
        return False
    edges = (near[column == 0], near[column == columns - 1])
    return is_map or all(edge.any() for edge in edges)


def measure_offset(model: FrozenViT, side: int) -> tuple[float, float]:
    """Measure where the middle patch's token at layer 0 looks, in patches below and right of it."""
    generator = torch.Generator().manual_seed(_SEED)
    rows, columns = model.token_map.grid
    row, column = rows // 2, columns // 2
    with torch.inference_mode(False), torch.enable_grad():
        example = model.preprocess(np.zeros((1, side, side, 3), np.uint8))
        pixels = torch.randn(example.shape, generator=generator).to(example.device)
        pixels.requires_grad_()
        ((_, tokens),) = model.edited_stream(pixels, [0], {}, gradients=True)
        token = tokens[0, model.token_map.prefix + row * columns + column]
        weights = torch.randn(token.shape, generator=generator).to(token.device)
        (gradient,) = torch.autograd.grad((token * weights).sum(), pixels)
    power = gradient[0].square().sum(dim=0)
    places = (torch.arange(side, device=power.device) + 0.5) / side
    total = float(power.sum())
    below = float((power.sum(dim=1) * places).sum()) / total * rows - row - 0.5
    right = float((power.sum(dim=0) * places).sum()) / total * columns - column - 0.5
    return below, right


def check_layers(
    model: Model, side: int, batch_size: int, where: str, names: Sequence[str]
) -> None:
    """Refuse layers that differ between passes, or whose patches are not in raster order.

    `side` is that of images in pixels; `names` are those of layers 1, 2, ... in messages.
    """
    shapes = layer_shapes(model)
    layers = list(shapes)
    places = {
        layer: f"{where}, submodule {name!r}" for layer, name in zip(layers, names, strict=True)
    }
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    pixels = model.preprocess(image[None])
    plain, again = (dict(model.residual_stream(pixels, layers)) for _ in range(2))
    for layer in layers:
        _check_passes(plain[layer], again[layer], places[layer])
    for grid in sorted({shape.token_map.grid for shape in shapes.values()}):
        same_grid = [layer for layer in layers if shapes[layer].token_map.grid == grid]
        cells = choose_cells(grid)
        changed = change_patches(image, grid, cells)
        parts: dict[Layer, list[NDArray[np.float32]]] = {layer: [] for layer in same_grid}
        for start in range(0, len(cells), batch_size):
            pixels = model.preprocess(changed[start : start + batch_size])
            for layer, tokens in model.residual_stream(pixels, same_grid):
                patches = shapes[layer].token_map.patches
                parts[layer].append(relative_changes(plain[layer][:, patches], tokens[:, patches]))
        for layer in same_grid:
            changes = np.concatenate(parts[layer])
            if not is_raster(grid, cells, changes.argmax(axis=1), shapes[layer].is_map):
                raise _misplaced(shapes[layer], places[layer], changes)


def _check_passes(tokens: Tensor, again: Tensor, where: str) -> None:
    if not tokens.isfinite().all():
        raise ModelError(
            where,
            "it gives values that are not finite",
            "check its weights for NaN, and the range of its input (`transform`)",
        )
    largest = float(tokens.abs().max())
    if largest < _VANISHED:
        raise ModelError(
            where,
            f"its values are {largest:.0e} at most, too small for float32",
            "load trained weights, since random ones of some networks shrink every image to "
            "nothing; or name an earlier submodule",
        )
    if float((tokens - again).abs().max()) > _SAME * largest:
        raise ModelError(
            where,
            "it gives other values in a second pass over the same image",
            "switch off what is random in it (masks of patches, noise), or wrap it in a module "
            "that does",
        )


def _misplaced(shape: LayerShape, where: str, changes: NDArray[np.float32]) -> ModelError:
    rows, columns = shape.token_map.grid
    if np.median(changes.max(axis=1)) < _DIFFUSE * np.median(changes):
        return ModelError(
            where,
            f"a changed patch of the image changes all of its {rows} x {columns} cells alike",
            "load trained weights if these are random, or name a submodule before attention "
            "mixes the patches",
        )
    if shape.is_map:
        return ModelError(
            where,
            f"its map is read as {rows} x {columns} cells of {shape.dim} channels, which do "
            "not lie as the image does",
            "set `channels_last: true` if its maps are (B, H, W, C); otherwise return them as "
            "(B, C, H, W), rows from the top",
        )
    return ModelError(
        where,
        f"its tokens are read as {rows} x {columns} patches in raster order, and changes of "
        "the image show another order",
        "correct `grid` (rows, columns), `prefix` and `has_cls`; or wrap the module, and return "
        "a map (B, C, H, W) or every patch in raster order",
    )
