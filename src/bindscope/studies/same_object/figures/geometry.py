"""What scores and tokens are like, by layer and across layers; score maps of scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import ORANGE, WIDTH_IN
from bindscope.figures.facets import facets, heat_map, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import looks, new_figure
from bindscope.studies.same_object.quantities import KINDS
from bindscope.studies.same_object.tables import GEOMETRY_SCHEMA
from bindscope.studies.same_object.views import over_seeds, panels_of, read_grouped

_read = partial(read_grouped, schema=GEOMETRY_SCHEMA)
_SERIES = ("group", "dataset", "probe")


# Title of a panel -> label, lines (quantities and their `at`), and what the key says of them.
_PANELS = {
    "Place": ("R² of row and column", (("position_r2", ""),), ""),
    "Copies minus originals": (
        "named right, share",
        (
            ("residual_separability", ""),
            ("residual_separability_shuffled", ""),
            ("residual_chance", ""),
        ),
        "\n(dashed: shuffled; dotted: chance)",
    ),
    "Identical objects": (
        "decoded probability",
        tuple(("cross_score", at) for at in KINDS),
        "\n(dashed: copy; dotted: class;\n-.: others)",
    ),
}
_DASHES = ((0, (4, 1.5)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))  # of the lines after the first


@figure(_read)
def same_object_geometry(table: pd.DataFrame, models: list[str]) -> Figure:
    """Position decodability, residuals of copies and scores of identical objects, by layer."""
    some(table[table["value"].notna()], "Nothing was measured.")
    rows = over_seeds(table)
    groups = panels_of(rows, models, _SERIES, ", ")
    look = looks([*groups])
    lines = pd.DataFrame(
        [
            (*line, title, i)
            for title, (_, names, _) in _PANELS.items()
            for i, line in enumerate(names)
        ],
        columns=["quantity", "at", "panel", "place"],
    )
    tidy = pd.concat(group.assign(line=name) for name, group in groups.items())
    tidy = tidy.merge(lines, on=["quantity", "at"])
    grid = wrapped(_PANELS, len(_PANELS), (0, 3.1))
    first = tidy["place"] == 0
    facets(tidy[first], look, grid, "panel", band=0.15, markersize=3.5)
    for i, dashes in enumerate(_DASHES, start=1):
        facets(tidy[tidy["place"] == i], look, grid, "panel", linestyle=dashes, marker=None)
    ticks = rows.drop_duplicates("layer").sort_values("x")
    for title, axes in grid.panels.items():
        label, _, key = _PANELS[title]
        axes.set(title=title, ylabel=label, xlabel=f"layer{key}")
        axes.set_xticks(ticks["x"], ticks["layer"])
        if not axes.has_data():
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
    return grid.legend(
        {name: {**style, "markersize": 4} for name, style in look.items()}, per_row=4
    )


_MOST_MODELS = 4


@figure(_read)
def same_object_cross_layers(table: pd.DataFrame, models: list[str]) -> Figure:
    """Areas within images of the probe of one layer on the tokens of another."""
    every = over_seeds(table)
    rows = every[every["quantity"] == "transfer_auc"]
    some(rows[rows["layer"] != rows["at"]], "No model was read in two layers.")
    transferred = {
        name: points
        for name, points in panels_of(rows, models, _SERIES, ", ").items()
        if (points["layer"] != points["at"]).any()
    }
    names = [*list(transferred)[:_MOST_MODELS], *([""] if len(transferred) < 2 else [])]
    grid = wrapped(names, len(names), (0.4, 2.1))
    for name, axes in grid.panels.items():
        if not name:
            axes.set_axis_off()
            continue
        points = transferred[name]
        layers = points.drop_duplicates("layer").sort_values("x")["layer"].tolist()
        cells = points.pivot_table(index="layer", columns="at", values="value")
        drawn = heat_map(
            axes,
            cells.reindex(index=layers, columns=layers),
            rows=layers,
            columns=layers,
            size=8,
            cmap="viridis",
            vmin=0.5,
            aspect="equal",
            number_size=6.5,
            numbers=lambda value: (f"{value:.2f}", "black" if value > 0.8 else "white"),
        )
        axes.set(ylabel="probe of layer", xlabel="on tokens of layer", title=name)
    grid.figure.colorbar(
        drawn,
        ax=[*grid.panels.values()],
        shrink=0.6,
        aspect=30,
        label="area under ROC within images",
    )
    return grid.figure


_CELL_IN = 0.92
_COLUMNS = 6  # of maps, beside the scene
_ROWS = 8

ScoreMap = tuple[str, str, NDArray[np.float32]]
"""Model (and probe, where there are several), layer, and probabilities (n, Q, P)."""


def _read_maps(inputs: Inputs) -> dict[str, Any]:
    """Read the maps of models of one patch grid on the first dataset that has any."""
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
        if not np.array_equal(arrays["grid"], scenes["grid"]):
            continue  # queries are patches of one grid
        for layer in product.names["layers"].split("-"):
            maps.append((label, layer, arrays[f"scores-{layer}"]))
    return {"dataset": dataset, "scenes": scenes, "maps": maps}


@figure(_read_maps)
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
                values,
                cmap="viridis",
                vmin=0,
                vmax=1,
                interpolation="nearest",
                extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            )
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
