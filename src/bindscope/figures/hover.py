"""Values that a figure shows when the pointer rests on them: invisible marks in its SVG.

A mark names its value, and carries the names by which a page can filter it (panel, line, row) and
the id of the element that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, ScalarFormatter
from matplotlib.transforms import Affine2D, Bbox, IdentityTransform, Transform

from bindscope.tables.numbers import number

MOST_POINTS: Final = 60  # of a line; of longer ones so many, evenly
MOST_CELLS: Final = 1500  # of a map; larger ones are images
RADIUS_PT: Final = 4.0
_POINTS_PER_INCH: Final = 72
_SCALE: Final = 1000  # three decimals
_SMALL: Final = 0.01


@dataclass(frozen=True)
class Mark:
    """A value of a figure.

    Attributes
    ----------
    box
        Where it is, data coordinates of its axes: (left, bottom), (right, top).
    axes
        Its axes.
    text
        What it says.
    names
        Of its panel, its line and its row.
    artist
        What shows it.
    """

    box: tuple[tuple[float, float], tuple[float, float]]
    axes: Axes
    text: str
    names: tuple[str, ...]
    artist: Artist


def moved_right(axes: Axes, start: float) -> Transform:
    """Return the transform of lines whose values count from `start` of an axis, as marks do."""
    return Affine2D().translate(start, 0.0) + axes.transData


def collect_marks(figure: Figure) -> list[Mark]:
    """Collect the values of a figure's maps, bars and lines, those on top last."""
    series = _Series(figure)
    marks: list[Mark] = []
    for axes in figure.axes:
        if axes.name == "3d" or not axes.axison:
            continue
        marks += [*_of_maps(axes), *_of_bars(axes, series), *_of_lines(axes, series)]
    return marks


def name_artists(marks: Sequence[Mark]) -> None:
    """Give what is marked an id in the SVG, which matplotlib then writes."""
    for i, artist in enumerate(dict.fromkeys(mark.artist for mark in marks)):
        artist.set_gid(f"value-{i}")


def with_marks(svg: bytes, figure: Figure, marks: Sequence[Mark]) -> bytes:
    """Append marks to the SVG of a figure that was just written, whose layout is thus done."""
    height = figure.get_figheight() * _POINTS_PER_INCH
    size = np.array([figure.get_figwidth() * _POINTS_PER_INCH, height])
    lines = ['<g id="values" fill="none" stroke="none" pointer-events="all">']
    for mark in marks:
        ends = mark.axes.transData.transform(mark.box)
        ends = figure.transFigure.inverted().transform(ends) * size
        box = Bbox(ends)
        start, end = max(box.xmin, 0.0), min(box.xmax, size[0])
        low, high = max(box.ymin, 0.0), min(box.ymax, size[1])
        if not np.isfinite(ends).all() or start > end or low > high:
            continue
        pad_x, pad_y = (max(RADIUS_PT - (b - a) / 2, 0) for a, b in ((start, end), (low, high)))
        names = escape("|".join(mark.names))
        lines.append(
            f'<rect x="{start - pad_x:.1f}" y="{height - high - pad_y:.1f}" '
            f'width="{end - start + 2 * pad_x:.1f}" height="{high - low + 2 * pad_y:.1f}" '
            f'data-of="{mark.artist.get_gid()}" data-names="{names}">'
            f"<title>{escape(mark.text)}</title></rect>"
        )
    close = svg.rindex(b"</svg>")
    return svg[:close] + "\n".join([*lines, "</g>\n"]).encode() + svg[close:]


class _Series:
    """Names of lines and bars by how the legends show them."""

    def __init__(self, figure: Figure) -> None:
        legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
        self._names: dict[tuple[str, ...], str] = {}
        for legend in filter(None, legends):
            for entry, text in zip(legend.legend_handles, legend.get_texts(), strict=False):
                if isinstance(entry, Line2D | Patch):
                    self._names.setdefault(_look(entry), text.get_text())

    def name(self, artist: Line2D | Patch) -> str:
        label = str(artist.get_label())
        return self._names.get(_look(artist), "") if label.startswith("_") else label


def _look(artist: Line2D | Patch) -> tuple[str, ...]:
    """Return what tells artists of a legend from each other."""
    if isinstance(artist, Patch):
        return ("patch", to_hex(artist.get_facecolor()), str(artist.get_hatch()))
    shape, color = str(artist.get_marker()), to_hex(artist.get_color())
    filled = to_hex(artist.get_markerfacecolor()) if shape not in ("None", "") else ""
    return ("line", color, shape, filled, str(artist.get_linestyle()))


def _of_maps(axes: Axes) -> Iterator[Mark]:
    for image in axes.images:
        values = image.get_array()
        if values is None or values.ndim != 2 or values.size > MOST_CELLS:
            continue
        rows, columns = _ticks(axes.yaxis), _ticks(axes.xaxis)
        for (i, j), value in np.ndenumerate(np.ma.filled(values.astype(float), np.nan)):
            if np.isfinite(value):
                names = (_title(axes), _tick_at(rows, i), _tick_at(columns, j))
                box = ((j - 0.5, i - 0.5), (j + 0.5, i + 0.5))
                yield _mark(box, axes, names, _number(value), image)


def _of_bars(axes: Axes, series: _Series) -> Iterator[Mark]:
    for bars in axes.containers:
        if not isinstance(bars, BarContainer):
            continue
        lie = bars.orientation == "horizontal"
        ticks = _ticks(axes.yaxis if lie else axes.xaxis)
        for bar in bars.patches:
            if not isinstance(bar, Rectangle) or not abs(bar.get_width() * bar.get_height()) > 0:
                continue  # nothing is drawn; NaN is not above 0
            at = bar.get_y() + bar.get_height() / 2 if lie else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if lie else bar.get_height()
            x, y = bar.get_xy()
            box = ((x, y), (x + bar.get_width(), y + bar.get_height()))
            names = (_title(axes), _tick_at(ticks, at), series.name(bar))
            unit = _axis_label(axes, "x" if lie else "y")
            yield _mark(box, axes, names, f"{unit} {_number(value)}".strip(), bar)


def _of_lines(axes: Axes, series: _Series) -> Iterator[Mark]:
    rows, columns = _ticks(axes.yaxis), _ticks(axes.xaxis)
    label_x, label_y = _axis_label(axes, "x"), _axis_label(axes, "y")
    for line in axes.lines:
        moved = line.get_transform() - axes.transData
        if not isinstance(moved, IdentityTransform | Affine2D):
            continue  # a line across the panel
        points = np.column_stack([np.asarray(v, float) for v in line.get_data()])
        points = points[np.isfinite(points).all(axis=1)]
        if len(points) == 2 and (points[0] == points[1]).any():
            yield from _of_interval(axes, line, points, moved, series.name(line))
            continue
        keep = np.unique(np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(int))
        for x, y in points[keep] if len(points) else ():
            row, column = _tick_at(rows, y), _tick_at(columns, x)
            words = [f"{label_x} {_number(x)}"] * (not column) + [f"{label_y} {_number(y)}"] * (
                not row
            )
            names = (_title(axes), row, column, series.name(line))
            text = "; ".join(word.strip() for word in words)
            place = tuple(moved.transform((x, y)))
            yield _mark((place, place), axes, names, text, line)


def _of_interval(
    axes: Axes, line: Line2D, ends: Any, moved: Transform, name: str
) -> Iterator[Mark]:
    lies = ends[0][1] == ends[1][1]
    low, high = sorted(ends[:, 0] if lies else ends[:, 1])
    row = (
        _tick_at(_ticks(axes.yaxis), ends[0][1])
        if lies
        else _tick_at(_ticks(axes.xaxis), ends[0][0])
    )
    text = f"{_number(low)} to {_number(high)}"
    if not lies and _ticks(axes.yaxis):  # across rows: the value is where it stands
        row, text = "", _number(ends[0][0])
    ends = moved.transform(ends)
    box = (tuple(ends.min(axis=0)), tuple(ends.max(axis=0)))
    yield _mark(box, axes, (_title(axes), row, name), text, line)


def _mark(box: Any, axes: Axes, names: tuple[str, ...], text: str, artist: Artist) -> Mark:
    names = tuple(dict.fromkeys(name for name in names if name))
    words = ": ".join([*([", ".join(names)] if names else []), text])
    return Mark(box, axes, words, names, artist)


def _title(axes: Axes) -> str:
    return " ".join((axes.get_title("left") or axes.get_title()).split())


def _axis_label(axes: Axes, which: str) -> str:
    """Return an axis's label, that of the panels that share it, or the only one of the figure."""
    shared = axes.get_shared_x_axes() if which == "x" else axes.get_shared_y_axes()
    for panel in (axes, *shared.get_siblings(axes)):
        label = panel.get_xlabel() if which == "x" else panel.get_ylabel()
        if label:
            return " ".join(str(label).split())
    panels = axes.figure.axes
    labels = {panel.get_xlabel() if which == "x" else panel.get_ylabel() for panel in panels}
    labels.discard("")
    return " ".join(str(labels.pop()).split()) if len(labels) == 1 else ""


def _ticks(axis: Axis) -> dict[float, str]:
    """Return the names of an axis that has names instead of numbers."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, FixedLocator) or isinstance(formatter, ScalarFormatter):
        return {}
    places = [float(place) for place in locator.tick_values(0.0, 1.0)]
    names = [" ".join(str(formatter(place, i)).split()) for i, place in enumerate(places)]
    return dict(zip(places, names, strict=True))


def _tick_at(ticks: dict[float, str], place: float) -> str:
    near = [at for at in ticks if abs(at - place) <= 0.5]
    return ticks[min(near, key=lambda at: abs(at - place))] if near else ""


def _number(value: float) -> str:
    """Write a digit more than texts do, cut off: never above a bound that a text rounds down."""
    if value and abs(value) < _SMALL:
        return number(value, ".3g")
    text = number(floor(value * _SCALE + 1e-6) / _SCALE, ".3f")
    return text.rstrip("0").rstrip(".")
