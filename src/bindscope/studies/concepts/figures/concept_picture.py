"""Values, objects, scenes and their sums in three dimensions, a picture per embedding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY, PALETTE
from bindscope.figures.style import handle, legend_below, new_figure, styled

MARKS: dict[str, dict[str, Any]] = {
    "value": {"marker": "^", "color": PALETTE[0], "markersize": 6},
    "object": {"marker": "s", "color": PALETTE[1], "markersize": 5},
    "scene": {"marker": "o", "color": PALETTE[2], "markersize": 4},
    "sum": {"marker": "x", "color": "k", "markersize": 5},
}
LABELS = {"value": ("A1", "A2", "B1", "B2"), "object": ("A1B1", "A1B2", "A2B1", "A2B2")}
_WORDS = {"value": "a value", "object": "an object", "scene": "a scene of two objects",
          "sum": "sum of its objects' vectors"}  # fmt: skip
_COLUMNS = 3
_SHOWN = 9


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the pictures in the configuration's order."""
    files = [Path(given.files["picture"]) for given in inputs.of("pictures")]
    return {"pictures": [json.loads(file.read_text()) for file in files]}


def available(pictures: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    why = [one["why"] for one in pictures if "why" in one]
    return f"There is no picture: {why[0]}." if len(why) == len(pictures) else None


@styled
def draw(pictures: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the first nine pictures; a thin line joins a scene with the sum of its objects' vectors.

    Parameters
    ----------
    pictures
        As `read` returns them.
    """
    shown = [one for one in pictures if "why" not in one][:_SHOWN]
    rows = -(-len(shown) // _COLUMNS)
    figure = new_figure(0.7 + 2.6 * rows)
    for i, one in enumerate(shown):
        axes: Any = figure.add_subplot(rows, _COLUMNS, i + 1, projection="3d")
        _draw_one(axes, one["points"])
        vectors = "" if one["vectors"] == "planted" else f", {one['vectors']}"
        title = f"{one['embedding']}{vectors}\n{one['dataset']}, stress {one['stress']:.2f}"
        axes.set_title(title, fontsize=8, y=0.99)
        axes.set_box_aspect((1, 1, 1), zoom=1.1)
        axes.set(xticklabels=[], yticklabels=[], zticklabels=[])
        axes.tick_params(length=0)
    marks = [handle(_WORDS[kind], linestyle="none", **mark) for kind, mark in MARKS.items()]
    legend_below(figure, marks, 4)
    return figure


def _draw_one(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    sums = {tuple(one["objects"]): one["place"] for one in points if one["kind"] == "sum"}
    for kind, mark in MARKS.items():
        places = np.array([one["place"] for one in points if one["kind"] == kind])
        if len(places):
            axes.plot(*places.T, linestyle="none", **mark)
        for name, place in zip(LABELS.get(kind, ()), places, strict=False):
            axes.text(*place, f"  {name}", fontsize=6)
    for one in points:
        if one["kind"] == "scene":
            ends = np.array([one["place"], sums[tuple(sorted(one["objects"]))]])
            axes.plot(*ends.T, color=GREY, linewidth=0.7)
