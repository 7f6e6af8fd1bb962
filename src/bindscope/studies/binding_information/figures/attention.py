"""Where the attention probe's object queries read, over scenes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patheffects import withStroke
from safetensors.numpy import load_file

from bindscope.core.interfaces import Inputs
from bindscope.figures.colors import BLUE, GREY, INK, ORANGE
from bindscope.figures.figure import figure, some
from bindscope.figures.style import handle, new_figure, values_along_x
from bindscope.studies.binding_information.names import show_model
from bindscope.tables.numbers import number

ScoreMaps = Mapping[str, npt.NDArray[Any]]
log = logging.getLogger(__name__)

OBJECTS = 5
_CELL_IN = 1.2
_DARK = 4.0  # times a uniform weight: no map is darkest below it, so that uniform looks pale


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read the first maps of each model; a fit with flags is called by them too."""
    maps: dict[str, ScoreMaps] = {}
    drawn = set()
    for product in inputs.get("maps"):
        model = product.names["model"]
        if model in drawn:
            log.info("only the first maps of %s are drawn, not %s", model, product.path)
            continue
        drawn.add(model)
        flags = json.loads(Path(product.files["share"]).read_bytes())["flags"]
        label = show_model(model, model in inputs.content["positive_controls"])
        label = f"{label}\n({flags.replace(';', ', ')})" if flags else label
        maps[label] = load_file(product.path)
    return {"maps": maps}


@figure(_read)
def attention(maps: Mapping[str, ScoreMaps]) -> Figure:
    """Draw where object queries read: three scenes of one model, or one of each of several."""
    some(maps, "No attention probe was fitted to patch tokens.")
    n_scenes = 3 if len(maps) == 1 else 1
    rows = [
        (label, arrays, scene)
        for label, arrays in maps.items()
        for scene in range(min(n_scenes, len(arrays["images"])))
    ]
    canvas = new_figure(_CELL_IN * len(rows) + 0.9 + 0.3 * len(maps) + 0.3)
    heights = [_CELL_IN * len(rows) + 0.3, 0.9 + 0.3 * len(maps)]
    above, below = canvas.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    grid = above.subplots(len(rows), 1 + OBJECTS, squeeze=False)
    for axes, (label, arrays, scene) in zip(grid, rows, strict=True):
        _scene(axes, arrays, scene)
        if scene == 0:
            axes[0].set_title(label, fontsize=8)
    _shares(below, maps)
    return canvas


def _scene(row: Sequence[Axes], arrays: ScoreMaps, scene: int) -> None:
    image, mask = arrays["images"][scene], arrays["masks"][scene]
    present = [j for j in range(arrays["maps"].shape[1]) if (mask == j + 1).any()][:OBJECTS]
    for axes in row:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    row[0].imshow(image, interpolation="nearest")
    for rank, j in enumerate(present, 1):
        _outline(row[0], mask == j + 1, INK)
        rows, columns = np.nonzero(mask == j + 1)
        row[0].text(
            float(columns.max()) + 1,
            float(rows.min()),
            str(rank),
            fontsize=6.5,
            va="bottom",
            ha="left",
            color=INK,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )
    grey = np.asarray(image, float).mean(axis=2) * 0.45 + 0.55 * 255
    height, width = mask.shape
    for rank, (axes, j) in enumerate(zip(row[1:], present, strict=False), 1):
        axes.imshow(grey, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        weights = arrays["maps"][scene, j].reshape([int(n) for n in arrays["grid"]])
        axes.imshow(
            weights,
            cmap="Blues",
            alpha=0.65,
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            interpolation="nearest",
            vmin=0,
            vmax=max(weights.max(), _DARK / weights.size),
        )
        _outline(axes, mask == j + 1, ORANGE)
        axes.set_title(str(rank), fontsize=7.5, pad=2)
    for axes in row[1 + len(present) :]:
        axes.set_axis_off()


def _outline(axes: Axes, mask: npt.NDArray[np.bool_], color: str) -> None:
    axes.contour(mask.astype(float), levels=[0.5], colors=[color], linewidths=0.9)


def _shares(figure: SubFigure, maps: Mapping[str, ScoreMaps]) -> None:
    axes = figure.subplots()
    values_along_x(axes)
    for i, arrays in enumerate(maps.values()):
        share, baseline = arrays["share"], arrays["baseline"]
        low, middle, high = np.percentile(share, [25, 50, 75])
        axes.barh(i, high - low, 0.5, left=low, color=BLUE, alpha=0.35, linewidth=0)
        axes.plot([middle, middle], [i - 0.25, i + 0.25], color=BLUE, linewidth=2)
        axes.plot(share.mean(), i, "o", color=BLUE, markeredgecolor="white", markersize=6)
        axes.plot(baseline.mean(), i, "x", color=GREY, markersize=6, markeredgewidth=1.5)
        axes.annotate(
            f"{number(100 * share.mean(), '.0f')} %",
            (share.mean(), i),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=BLUE,
        )
    axes.set_yticks(range(len(maps)), list(maps))
    axes.set_ylim(len(maps) - 0.4, -0.7)
    axes.set_xlim(0, 1)
    axes.set_xticks(np.linspace(0, 1, 6), [f"{100 * x:.0f} %" for x in np.linspace(0, 1, 6)])
    axes.set_xlabel("fraction of attention on the object's own patches")
    figure.legend(
        handles=[
            handle("mean", marker="o", color=BLUE, linestyle="none"),
            handle("median and quartiles", marker="s", color=BLUE, alpha=0.35, linestyle="none"),
            handle("a uniform query", marker="x", color=GREY, linestyle="none"),
        ],
        loc="outside lower center",
        ncols=3,
    )
