"""What scores and tokens are like, by layer and across layers; score maps of scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK, WIDTH_IN
from bindscope.figures.facets import Look, crossed, facets, heat_map, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import handle, legend_below, new_figure, note_above
from bindscope.studies.same_object.tables import GEOMETRY_SCHEMA
from bindscope.studies.same_object.views import over_seeds, panels_of, read_models
from bindscope.tables.groups import GroupMappings
from bindscope.tables.rules import layer_number
from bindscope.tables.write import read_table

T = TypeVar("T")
_SERIES = ("model", "dataset", "probe")


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and models and their groups."""
    table = read_table(inputs.paths("table")[0], GEOMETRY_SCHEMA)
    groups = inputs.content["model_groups"]
    return {"table": table, "models": read_models(inputs), "groups": groups}


# Question, a row of panels -> its axis; lines: (quantity, `at`) -> name, look.
_QUESTIONS: Final[dict[str, tuple[str, dict[tuple[str, str], tuple[str, Look]]]]] = {
    "position": (
        "position from token,\nR²",
        {("position_r2", ""): ("row and column", {"color": INK, "marker": "o"})},
    ),
    "scores": (
        "probability of the\nsame object, %",
        {
            ("cross_score", "object"): ("one object", {"color": GREEN, "marker": "o"}),
            ("cross_score", "copy"): ("an exact copy", {"color": PINK, "marker": "D"}),
            ("cross_score", "class"): ("another of its class", {"color": AMBER, "marker": "^"}),
            ("cross_score", "other"): ("another class", {"color": GREY, "marker": "X"}),
        },
    ),
}
_MOST_MODELS, _MOST_TICKS = 4, 9


@figure(_read)
def same_object_geometry(
    table: pd.DataFrame, models: Sequence[str], groups: GroupMappings = ()
) -> Figure:
    """Positions, and scores of identical objects, a column per model."""
    some(table[table["value"].notna()], "Nothing was measured.")
    rows = over_seeds(table, groups)
    panels = dict(list(panels_of(rows, models, _SERIES).items())[:_MOST_MODELS])
    tidy = pd.concat(part.assign(panel=name) for name, part in panels.items())
    there = {*tidy[["quantity", "at"]].itertuples(index=False, name=None)}
    names = [name for name, (_, each) in _QUESTIONS.items() if there & {*each}]
    grid = crossed(names, panels, (0.9, 1.45), sharex="col", sharey="row")
    used: dict[str, Look] = {}
    for name in names:
        for (quantity, at), (words, look) in _QUESTIONS[name][1].items():
            points = tidy[(tidy["quantity"] == quantity) & (tidy["at"] == at)]
            points = points.assign(row=name, line=words)
            scale = 1 if name == "position" else 100
            facets(points, {words: look}, grid, ("row", "panel"), band=0.15, scale=scale)
            used |= {words: {**look, "markersize": 4}} if len(points) else {}
    for (name, title), axes in grid.panels.items():
        if name == names[0]:
            axes.set_title(title, fontsize=8)
        ticks = panels[title].drop_duplicates("layer").sort_values("x")
        ticks = ticks.iloc[:: -(-len(ticks) // _MOST_TICKS)]
        axes.set_xticks(ticks["x"], ticks["layer"])
    grid.label("layer", [_QUESTIONS[name][0] for name in names], fontsize=7.5)
    return grid.legend(used, per_row=4)


@figure(_read)
def same_object_cross_layers(
    table: pd.DataFrame, models: Sequence[str], groups: GroupMappings = ()
) -> Figure:
    """Areas within images of the probe of one layer on the tokens of another."""
    every = over_seeds(table, groups)
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
    both = every[every["quantity"] == "cross_layer_accuracy"]
    if len(both):
        pairs = (
            f"{row['layer']} and {row['at']} ({row['model']}) {100 * row['value']:.1f} %"
            for _, row in both.iterrows()
        )
        note_above(grid.figure, f"Accuracy of bilinear probes of two layers: {', '.join(pairs)}.")
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


def _read_copies(inputs: Inputs) -> dict[str, Any]:
    """Read the residuals of copies of each model, of its first probe."""
    copies: dict[str, dict[str, NDArray[Any]]] = {}
    for product in inputs.get("maps"):
        names = product.names
        arrays = load_file(product.path)
        if "copies-image" not in arrays:
            continue
        of_model = copies.setdefault(f"{names['model']}\n{names['dataset']}", {})
        for name, values in arrays.items():
            if name.startswith("copies-"):
                of_model.setdefault(name.removeprefix("copies-"), values)
    return {"copies": copies}


_CLUSTERS: Final = {"second": BLUE, "third": ORANGE, "fourth": GREEN}


@figure(_read_copies)
def same_object_copies(copies: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Residuals of three copies in two components (IsSameObject paper, Fig. 6)."""
    some(copies, "No object fits four times into its scene.")
    rows = list(copies.items())[:_MOST_MODELS]
    columns = {name: _layers_of_copies(arrays) for name, arrays in rows}
    across = max(len(layers) for layers in columns.values())
    canvas = new_figure(0.9 + 1.75 * len(rows))
    grid = canvas.subplots(len(rows), 1 + across, squeeze=False)
    for of_row, (name, arrays) in zip(grid, rows, strict=True):
        _blank(of_row[:1])
        of_row[0].imshow(arrays["image"], interpolation="nearest")
        of_row[0].set_title(name, fontsize=7)
        for axes in of_row[1 + len(columns[name]) :]:
            axes.set_axis_off()
        for axes, layer in zip(of_row[1:], columns[name], strict=False):
            for points, color in zip(arrays[layer], _CLUSTERS.values(), strict=True):
                axes.scatter(points[:, 0], points[:, 1], s=7, color=color, alpha=0.6, lw=0)
            first, second, _ = 100 * arrays[f"variance-{layer}"]
            axes.set_title(f"layer {layer}", fontsize=7)
            axes.set_xlabel(f"PC 1, {first:.0f} %", fontsize=6.5)
            axes.set_ylabel(f"PC 2, {second:.0f} %", fontsize=6.5)
            axes.set(xticks=[], yticks=[])
    entries = [
        handle(f"{which} object minus the first", linestyle="none", marker="o", color=color)
        for which, color in _CLUSTERS.items()
    ]
    legend_below(canvas, entries, 3)
    return canvas


def _layers_of_copies(arrays: Mapping[str, Any]) -> list[str]:
    """Return layers that fit on the page."""
    layers = [name for name in arrays if name != "image" and not name.startswith("variance-")]
    ordered = pd.Series(layers).sort_values(key=layer_number).tolist()
    return _spread(ordered, _COLUMNS - 1)


def _spread(entries: Sequence[T], n: int) -> list[T]:
    """Return the first and the last of some entries, and others between, `n` at most."""
    places = np.linspace(0, len(entries) - 1, min(n, len(entries))).round()
    return [entries[int(i)] for i in np.unique(places)]


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
    chosen: list[ScoreMap] = []
    for model in models:
        of_model = [entry for entry in maps if entry[0] == model]
        chosen += _spread(of_model, max(1, _COLUMNS // len(models)))
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
