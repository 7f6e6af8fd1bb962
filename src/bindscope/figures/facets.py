"""Panels over a tidy table: what almost all figures are made of.

`facets` draws a table with a row per point: which panel it is in, which line it belongs to, where
it is, its value and the ends of its interval. `grid` makes panels for what is drawn by hand;
`dots` draws a number per name, `heat_map` a map into a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from bindscope.figures.colors import BLUE, GREY, INK
from bindscope.figures.style import (
    handle,
    legend_below,
    lowest_panels,
    name_ends,
    new_figure,
    values_along_x,
)

Look = Mapping[str, Any]
Inches = tuple[float, float]
"""Of a figure without its rows of panels, and of one such row."""


@dataclass(frozen=True)
class FacetGrid:
    """Panels of a figure.

    Attributes
    ----------
    figure
        Where they are.
    panels
        Axes by key; of a table of panels, keys are (row, column).
    left, bottom
        Those that name the vertical and the horizontal axes.
    """

    figure: Figure
    panels: Mapping[Any, Axes]
    left: Sequence[Axes]
    bottom: Sequence[Axes]

    def label(self, x: str = "", y: str | Sequence[str] = "", **style: Any) -> None:
        """Name the axes of the lowest and of the leftmost panels; `y` may differ row by row."""
        for axes in self.bottom if x else ():
            axes.set_xlabel(x, **style)
        names = [y] * len(self.left) if isinstance(y, str) else y
        for axes, name in zip(self.left, names if y else (), strict=False):
            axes.set_ylabel(name, **style)

    def legend(self, looks: Mapping[str, Look], *more: Any, per_row: int = 5) -> Figure:
        """Name the lines, at their ends in a column of panels, else below, where `more` is, too."""
        if len(self.left) == len(self.panels):
            named = {name for axes in self.panels.values() for name in name_ends(axes, looks)}
            looks = {name: look for name, look in looks.items() if name not in named}
        if entries := [*handles(looks), *more]:
            legend_below(self.figure, entries, per_row)
        return self.figure


def wrapped(
    keys: Iterable[Any], columns: int, inches: Inches, on: Any = None, **shared: Any
) -> FacetGrid:
    """Make a panel per key, at most `columns` in a row; None: none there; see `crossed`."""
    names = list(keys)
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    figure: Figure = on or new_figure(inches[0] + inches[1] * rows)
    places = figure.subplots(rows, columns, squeeze=False, **shared)
    bottom = lowest_panels(places, len(names))
    panels = {}
    for key, axes in zip(names, places.flat, strict=False):
        if key is None:
            axes.set_axis_off()
        else:
            panels[key] = axes
    return FacetGrid(figure, panels, list(places[:, 0]), bottom)


def broken(
    rows: Iterable[Any], columns: Iterable[Any], most: int, inches: Inches, **shared: Any
) -> FacetGrid:
    """Make a table of panels as `crossed` that is broken after `most` columns."""
    down, across = list(rows), list(columns)
    width = min(most, len(across))
    across += [None] * (-len(across) % width)
    keys = [
        (row, name) if name is not None else None
        for i in range(0, len(across), width)
        for row in down
        for name in across[i : i + width]
    ]
    return wrapped(keys, width, inches, **shared)


def crossed(
    rows: Iterable[Any],
    columns: Iterable[Any],
    inches: Inches,
    on: Any = None,
    **shared: Any,
) -> FacetGrid:
    """Make a table of panels, in a figure of its own or `on` one; `shared` goes to `subplots`."""
    down, across = list(rows), list(columns)
    figure: Figure = on or new_figure(inches[0] + inches[1] * len(down))
    places = figure.subplots(len(down), len(across), squeeze=False, **shared)
    keys = [(row_key, column_key) for row_key in down for column_key in across]
    panels = dict(zip(keys, places.flat, strict=True))
    return FacetGrid(figure, panels, list(places[:, 0]), list(places[-1]))


def facets(
    rows: pd.DataFrame,
    looks: Mapping[str, Look],
    grid: FacetGrid,
    panel: str | Sequence[str],
    *,
    title: Callable[[Any], str] | None = None,
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
    **how: Any,
) -> FacetGrid:
    """Draw lines into panels.

    Parameters
    ----------
    rows
        A tidy table.
    looks
        By the name of a line how it is drawn (`plot`), in the order of the legend.
    grid
        The panels.
    panel
        The column of the panels' keys, or the two columns of a table of panels.
    title
        Of a panel by its key.
    xlim, ylim
        Ends of the axes.
    how
        See `lines`.
    """
    names = [panel] if isinstance(panel, str) else list(panel)
    for key, axes in grid.panels.items():
        panel_key = (key,) if isinstance(panel, str) else key
        panel_rows = rows
        for name, value in zip(names, panel_key, strict=True):
            panel_rows = panel_rows[panel_rows[name] == value]
        lines(axes, panel_rows, looks, **how)
        if title:
            axes.set_title(title(key), fontsize=8)
        axes.set(**{name: ends for name, ends in (("xlim", xlim), ("ylim", ylim)) if ends})
    return grid


def lines(
    axes: Axes,
    rows: pd.DataFrame,
    looks: Mapping[str, Look],
    *,
    x: str = "x",
    y: str = "value",
    by: str = "line",
    scale: float = 1.0,
    apart: float = 0.0,
    band: float = 0.0,
    bars: float = 0.0,
    area: Callable[[pd.DataFrame, str], Look] | None = None,
    **style: Any,
) -> None:
    """Draw the lines of one panel.

    Parameters
    ----------
    axes, rows, looks
        As in `facets`.
    x, y, by
        Columns: the place, the value, whose interval is in `<y>_low` and `<y>_high`, and the
        line's name.
    scale
        What values are multiplied with.
    apart
        How far lines are moved sideways from each other, where they often agree.
    band, bars
        Opacity of the interval as an area, or width of its bars; 0: none are drawn.
    area
        From a line's rows and its color what else its interval's area looks like.
    style
        For all lines, over `looks`.
    """
    for i, (name, look) in enumerate(looks.items()):
        line_rows = rows[rows[by] == name].sort_values(x, kind="stable")
        if not len(line_rows):
            continue
        at = line_rows[x].to_numpy(float) + apart * (i - (len(looks) - 1) / 2)
        if band or bars:
            low, high = (scale * line_rows[f"{y}_{end}"].to_numpy(float) for end in ("low", "high"))
        if band:
            more = area(line_rows, look["color"]) if area else {}
            axes.fill_between(at, low, high, facecolor=look["color"], alpha=band, lw=0, **more)
        if bars:
            axes.vlines(at, low, high, color=look["color"], linewidth=bars)
        axes.plot(at, scale * line_rows[y].to_numpy(float), **{**look, **style})


def dots(rows: pd.DataFrame, quantity: str, point: str, rival: str) -> Figure:
    """Draw values with numbers and intervals, and a tick at the rival of each.

    Parameters
    ----------
    rows
        `panel` and `name` of each value; in percent `value`, `low`, `high` and `rival` (NaN: none).
    quantity, point, rival
        Names of the axis, of the values and of the rivals.
    """
    names = list(dict.fromkeys(rows["name"]))
    inches = (0.75, 0.45 + 0.3 * len(names))
    grid = wrapped(dict.fromkeys(rows["panel"]), 3, inches, sharex=True, sharey=True)
    for panel, axes in grid.panels.items():
        for row in rows[rows["panel"] == panel].to_dict("records"):
            value, y = row["value"], names.index(row["name"])
            axes.plot(value, y, "o", color=BLUE, markersize=4)
            axes.plot((row["low"], row["high"]), (y, y), color=BLUE, linewidth=1.2)
            axes.plot(row["rival"], y, "|", color=GREY, markersize=9)
            axes.annotate(
                f"{value:.1f}",
                (value, y),
                (0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        axes.set_title(panel)
        values_along_x(axes)
    least = float(np.nanmin(rows[["value", "low", "rival"]].to_numpy(float)))
    margin = max(0.08 * (100 - least), 1)
    grid.left[0].set_xlim(least - margin, 100 + margin)
    grid.left[0].set_yticks(range(len(names)), names)
    grid.left[0].set_ylim(len(names) - 0.5, -0.7)
    grid.label(quantity)
    entries = [handle(f"{point} (95 % CI)", color=BLUE, marker="o", markersize=4)]
    if rows["rival"].notna().any():
        entries.append(handle(rival, color=GREY, marker="|", linestyle="none"))
    legend_below(grid.figure, entries)
    return grid.figure


def stacked(rows: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Make a tidy table of columns that are lines: `line`, `value` and its interval, and the rest.

    Parameters
    ----------
    rows
        A table with a row per place; the interval of a column may be in `<column>_low`, `_high`.
    columns
        By the name of a line its column.
    """
    parts = []
    for line, column in columns.items():
        ends = {f"value{end}": rows.get(f"{column}{end}", np.nan) for end in ("", "_low", "_high")}
        parts.append(rows.assign(line=line, **ends))
    return pd.concat(parts)


def colored(looks: Mapping[str, Look], **style: Any) -> dict[str, Look]:
    """Return what else is drawn of the same lines: in their colors, else in a look of its own."""
    return {name: {"color": look["color"], **style} for name, look in looks.items()}


def handles(looks: Mapping[str, Look], **style: Any) -> list[Line2D]:
    """Return the legend's entries of lines by name, each name on one line; `style` for all."""
    return [handle(name.replace("\n", ", "), **{**look, **style}) for name, look in looks.items()]


def heat_map(
    axes: Axes,
    values: NDArray[Any] | pd.DataFrame,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    size: float = 6,
    numbers: Callable[[float], tuple[str, str]] | None = None,
    number_size: float = 6,
    framed: Iterable[tuple[int, int]] = (),
    **style: Any,
) -> AxesImage:
    """Draw a map from 0 to 1 without a grid.

    Parameters
    ----------
    axes
        Where.
    values
        (n, m), NaN where there is none.
    rows, columns
        Their names; None leaves the ticks.
    size, number_size
        Points of the names, and of the numbers in cells.
    numbers
        The words and the color of a cell's number, by its value.
    framed
        (row, column) of the cells that get a frame.
    style
        For `imshow`, over a map in blues from 0 to 1.
    """
    array = np.asarray(values, float)
    image = axes.imshow(array, **{"vmin": 0, "vmax": 1, "cmap": "Blues", "aspect": "auto", **style})
    for (i, j), value in np.ndenumerate(array):
        if numbers and np.isfinite(value):
            words, color = numbers(value)
            axes.text(j, i, words, ha="center", va="center", fontsize=number_size, color=color)
    for i, j in framed:
        corner = j - 0.5, i - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=1.2))
    if rows is not None:
        axes.set_yticks(range(len(rows)), list(rows), fontsize=size)
    if columns is not None:
        axes.set_xticks(range(len(columns)), list(columns), fontsize=size)
    axes.grid(False)
    axes.tick_params(length=0)
    return image
