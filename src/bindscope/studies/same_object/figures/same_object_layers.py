"""How well each probe tells same from different objects, layer by layer (the paper's Fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import handle, legend_below, new_figure, styled
from bindscope.studies.same_object.names import (
    LINES,
    LOOK_OF_POSITION,
    family_order,
    family_shown,
)
from bindscope.studies.same_object.schemas import SAME_OBJECT_SCHEMA
from bindscope.studies.same_object.views import fitted, of_positions, over_models, read_shown

_COLUMNS = 4
_MEASURES = (("accuracy", "accuracy, %", 100.0), ("auc", "area under ROC", 1.0))
_KEYS = ["dataset", "group", "grid", "probe", "family", "layer", "x"]


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, SAME_OBJECT_SCHEMA)


def _curves(table: pd.DataFrame) -> pd.DataFrame:
    return over_models(fitted(table), _KEYS)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(_curves(table)) else "No probe of pairs read tokens of a model."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw accuracy and the area under the ROC curve by layer, a column of panels per model.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    curves, positions = _curves(table), of_positions(table)
    order = {name: i for i, name in enumerate(models)}
    panels = sorted(
        {(str(d), str(m)) for d, m in zip(curves["dataset"], curves["group"], strict=True)},
        key=lambda panel: (panel[0], order.get(panel[1], len(order))),
    )
    columns = min(_COLUMNS, len(panels))
    bands = -(-len(panels) // columns)
    figure = new_figure(0.9 + 3.4 * bands)
    grid = figure.subplots(2 * bands, columns, sharex=False, squeeze=False, sharey=False)
    for axes in grid.flat[:]:
        axes.set_axis_off()
    several = curves["dataset"].nunique() > 1
    for i, (dataset, model) in enumerate(panels):
        rows = curves[(curves["dataset"] == dataset) & (curves["group"] == model)]
        base = positions[
            (positions["dataset"] == dataset) & positions["grid"].isin(rows["grid"].unique())
        ]
        for j, (measure, words, scale) in enumerate(_MEASURES):
            axes = grid[2 * (i // columns) + j, i % columns]
            axes.set_axis_on()
            _panel(axes, rows, base, measure, scale)
            if i % columns == 0:
                axes.set_ylabel(words)
            if j == 0:
                axes.set_title(f"{model}\n{dataset}" if several else model, fontsize=8)
            else:
                axes.set_xlabel("layer")
    _same_limits(grid, len(panels), columns)
    legend_below(figure, _entries(curves, positions), 5)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, base: pd.DataFrame, measure: str, scale: float) -> None:
    for (_, family), curve in rows.groupby(["probe", "family"], sort=False):
        shown, curve = family_shown(str(family)), curve.sort_values("x")
        x, y = curve["x"].to_numpy(float), scale * curve[measure].to_numpy(float)
        ends = [scale * curve[f"{measure}_{end}"].to_numpy(float) for end in ("low", "high")]
        axes.fill_between(x, ends[0], ends[1], color=shown.colour, alpha=0.15, linewidth=0)
        axes.plot(x, y, color=shown.colour, marker=shown.marker or None, markersize=3.5)
    if measure == "accuracy":
        for column, _, look in LINES:
            if rows[column].notna().any():
                axes.axhline(scale * rows[column].mean(), linewidth=1.0, **look)
    for value in base[measure].dropna():
        axes.axhline(scale * value, linewidth=1.0, **LOOK_OF_POSITION)
    ticks = rows.drop_duplicates("layer").sort_values("x")
    axes.set_xticks(ticks["x"].to_numpy(float), ticks["layer"].astype(str))


def _same_limits(grid: Any, n_panels: int, columns: int) -> None:
    """Give all panels of a measure the same scale."""
    for j in range(2):
        shown = [grid[2 * (i // columns) + j, i % columns] for i in range(n_panels)]
        low = min(axes.get_ylim()[0] for axes in shown)
        high = max(axes.get_ylim()[1] for axes in shown)
        for i, axes in enumerate(shown):
            axes.set_ylim(low, high)
            axes.tick_params(labelleft=i % columns == 0)


def _entries(curves: pd.DataFrame, positions: pd.DataFrame) -> list[Any]:
    families = sorted(curves["family"].unique(), key=family_order)
    shown = [family_shown(family) for family in families]
    entries = [handle(s.name, color=s.colour, marker=s.marker or None, markersize=4) for s in shown]
    if len(positions):
        entries.append(handle("position alone", linewidth=1.0, **LOOK_OF_POSITION))
    return [*entries, *(handle(name, linewidth=1.0, **look) for _, name, look in LINES)]
