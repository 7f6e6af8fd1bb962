"""Position decodability, residuals of copies and scores of identical objects, by layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.same_object.geometry.shown import curve, over_seeds, series
from bindscope.studies.same_object.geometry.table import SCHEMA
from bindscope.studies.same_object.views import read_shown

_STYLES = ("-", (0, (4, 1.5)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))


class _Panel(NamedTuple):
    title: str
    label: str
    # Quantity and `at` (None: a mean over them) of the solid, dashed, dotted and last line.
    lines: tuple[tuple[str, str | None], ...]
    key: str


_PANELS = (
    _Panel("Place", "R² of row and column", (("position_r2", ""),), ""),
    _Panel("Copies minus originals", "named right, share",
           (("residual_separability", ""), ("residual_separability_shuffled", ""),
            ("residual_chance", "")), "dashed: shuffled; dotted: chance"),
    _Panel("Identical objects", "decoded probability",
           tuple(("cross_score", at) for at in ("object", "copy", "class", "other")),
           "dashed: copy; dotted: class;\n-.: others"),
)  # fmt: skip


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if table["value"].notna().any() else "Nothing was measured."


@styled
def draw(table: pd.DataFrame, models: list[str]) -> Figure:
    """Draw the panels by layer, a color per model.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    rows = over_seeds(table)
    shown = list(series(rows, models))
    colours = looks([name for name, _ in shown])
    figure = new_figure(3.1)
    for axes, panel in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for name, own in shown:
            _lines(axes, panel, own, colours[name])
        axes.set_title(panel.title)
        axes.set_ylabel(panel.label)
        axes.set_xlabel(f"layer\n({panel.key})" if panel.key else "layer")
        ticks = rows.drop_duplicates("layer").sort_values("x")
        axes.set_xticks(ticks["x"], ticks["layer"])
        if not axes.has_data():
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
    legend_below(figure, [handle(name, **colours[name], markersize=4) for name, _ in shown], 4)
    return figure


def _lines(axes: Axes, panel: _Panel, rows: pd.DataFrame, look: dict[str, str]) -> None:
    for i, ((quantity, at), style) in enumerate(zip(panel.lines, _STYLES, strict=False)):
        line = curve(rows, quantity, at)
        if not len(line):
            continue
        x, colour = line["x"].to_numpy(float), look["color"]
        marker = look["marker"] if i == 0 else None
        axes.plot(x, line["value"], color=colour, linestyle=style, marker=marker, markersize=3.5)
        if i == 0:
            low, high = (line[end].to_numpy(float) for end in ("low", "high"))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
