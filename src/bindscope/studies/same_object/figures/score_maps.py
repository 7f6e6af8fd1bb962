"""What probes say of a query patch and every patch of a scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import ORANGE, WIDTH_IN
from bindscope.figures.figure import figure, some
from bindscope.figures.style import new_figure

_CELL_IN = 0.92
_COLUMNS = 6  # of maps, beside the scene
_ROWS = 8

ScoreMap = tuple[str, str, NDArray[np.float32]]
"""Model (and probe, where there are several), layer, and probabilities (n, Q, P)."""


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read the maps of all models on the first dataset that has any."""
    dataset = inputs.get("maps")[0].names["dataset"]
    scenes: dict[str, NDArray[Any]] = {}
    maps: list[ScoreMap] = []
    several = len({product.names["probe"] for product in inputs.get("maps")}) > 1
    for product in inputs.get("maps"):
        name = product.names["model"]
        label = f"{name}, {product.names['probe']}" if several else name
        if product.names["dataset"] != dataset:
            continue
        arrays = load_file(product.path)
        scenes = scenes or arrays
        for layer in product.names["layers"].split("-"):
            maps.append((label, layer, arrays[f"scores-{layer}"]))
    return {"dataset": dataset, "scenes": scenes, "maps": maps}


@figure(_read)
def same_object_maps(
    dataset: str, scenes: Mapping[str, NDArray[Any]], maps: Sequence[ScoreMap]
) -> Figure:
    """What a probe says of a query patch and every patch of the scene (Fig. 2 and 5)."""
    queries = scenes["queries"]
    places = [(int(i), int(j)) for i, j in np.argwhere(queries >= 0)][:_ROWS]
    some(places, "No scene has an object to ask about.")
    chosen = _chosen(maps)
    wide = min(WIDTH_IN, _CELL_IN * (1 + len(chosen)) + 1.0)
    canvas = new_figure(0.5 + _CELL_IN * len(places), wide)
    grid = canvas.subplots(len(places), 1 + len(chosen), squeeze=False)
    for row, (scene, query) in zip(grid, places, strict=True):
        image = scenes["images"][scene]
        _blank(row)
        row[0].imshow(image, interpolation="nearest")
        _mark(row[0], scenes, int(queries[scene, query]))
        for axes, (_, _, scores) in zip(row[1:], chosen, strict=True):
            values = scores[scene, query].reshape([int(n) for n in scenes["grid"]])
            height, width = image.shape[:2]
            drawn = axes.imshow(
                values, cmap="viridis", vmin=0, vmax=1, interpolation="nearest",
                extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            )  # fmt: skip
            _mark(axes, scenes, int(queries[scene, query]))
    grid[0, 0].set_title(dataset, fontsize=7.5)
    for axes, (model, layer, _) in zip(grid[0, 1:], chosen, strict=True):
        axes.set_title(f"{model}\nlayer {layer}", fontsize=7)
    canvas.colorbar(
        drawn, ax=grid, shrink=0.5, aspect=30, pad=0.02, label="probability of the same object"
    )
    return canvas


def _chosen(maps: Sequence[ScoreMap]) -> list[ScoreMap]:
    """Return maps that fit on the page: of every model as many layers, spread over its depth."""
    models = list(dict.fromkeys(model for model, _, _ in maps))[:_COLUMNS]
    each = max(1, _COLUMNS // len(models))
    chosen: list[ScoreMap] = []
    for model in models:
        layers = [entry for entry in maps if entry[0] == model]
        places = np.unique(np.linspace(0, len(layers) - 1, min(each, len(layers))).round())
        chosen += [layers[int(i)] for i in places]
    return chosen


def _blank(row: Sequence[Axes]) -> None:
    for axes in row:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)


def _mark(axes: Axes, scenes: Mapping[str, NDArray[Any]], place: int) -> None:
    """Draw the query patch's outline."""
    rows, columns = (int(n) for n in scenes["grid"])
    height, width = scenes["images"].shape[1:3]
    high, wide = height / rows, width / columns
    row, column = divmod(place, columns)
    corner = column * wide - 0.5, row * high - 0.5
    frame = Rectangle(corner, wide, high, fill=False, edgecolor=ORANGE, linewidth=1.2)
    axes.add_patch(frame)
