"""Whether attention goes where a probe predicts the same object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from bindscope.figures.style import handle, legend_below, new_figure, styled, zero_line
from bindscope.studies.same_object.effects.tables import ATTENTION_SCHEMA
from bindscope.studies.same_object.marks import MEAN_HEAD
from bindscope.studies.same_object.views import panels_of, read_shown

_MEASURES: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("pearson", "Pearson", {"color": BLUE, "marker": "o"}),
    ("spearman", "Spearman", {"color": GREEN, "marker": "s"}),
    (
        "beyond_rivals",
        "with the labels, given class, distance, cosine",
        {"color": ORANGE, "marker": "^"},
    ),
)
_HEADS: Final[dict[str, Any]] = {
    "color": BLUE,
    "marker": ".",
    "linestyle": "none",
    "alpha": 0.4,
    "markersize": 4,
}
_SHARE: Final[dict[str, Any]] = {"color": INK, "marker": "o"}
_UNIFORM: Final[dict[str, Any]] = {"color": GREY, "linestyle": (0, (3, 1.5))}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, ATTENTION_SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if table["pearson"].notna().any() else "Attention or scores do not vary anywhere."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw correlations and shares on the same object by layer, a column of panels per model.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    panels = panels_of(table, models)
    figure = new_figure(4.6)
    axes = figure.subplots(2, len(panels), squeeze=False, sharey="row")
    for i, (title, rows) in enumerate(panels):
        _correlations(axes[0, i], rows)
        _shares(axes[1, i], rows)
        axes[0, i].set_title(title, fontsize=8)
        axes[1, i].set_xlabel("layer that the probe reads")
    axes[0, 0].set_ylabel("correlation of attention and\nprobe over pairs of patches")
    axes[1, 0].set_ylabel("share of attention on\nthe same object, %")
    entries = [handle(name, **look) for _, name, look in _MEASURES]
    entries += [
        handle("Pearson, single heads", **_HEADS),
        handle("share on the same object", **_SHARE),
    ]
    entries.append(handle("attention to all alike", **_UNIFORM))
    legend_below(figure, entries, 3)
    return figure


def _correlations(axes: Axes, rows: pd.DataFrame) -> None:
    mean, heads = rows[rows["head"] == MEAN_HEAD], rows[rows["head"] != MEAN_HEAD]
    axes.plot(heads["layer"].astype(float), heads["pearson"], **_HEADS)
    for name, _, look in _MEASURES:
        _curve(axes, mean, name, 1.0, look)
    zero_line(axes)


def _shares(axes: Axes, rows: pd.DataFrame) -> None:
    mean = rows[rows["head"] == MEAN_HEAD]
    _curve(axes, mean, "object_share", 100.0, _SHARE)
    mean = mean.sort_values("layer", key=lambda layers: layers.astype(float))
    axes.plot(mean["layer"].astype(float), 100 * mean["uniform_share"], **_UNIFORM)


def _curve(axes: Axes, rows: pd.DataFrame, name: str, scale: float, look: dict[str, Any]) -> None:
    """Draw a measure by layer with its interval."""
    rows = rows.sort_values("layer", key=lambda layers: layers.astype(float))
    x = rows["layer"].astype(float)
    low, high = (scale * rows[f"{name}_{end}"] for end in ("low", "high"))
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(x, scale * rows[name], **look)
    axes.set_xticks(x, rows["layer"])
