"""One look for all figures, and files that are the same for the same figure."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import LogFormatter, LogFormatterMathtext
from numpy.typing import NDArray

from bindscope.core.files import write_atomic
from bindscope.figures.colors import EMPTY, INK, LARGEST_SVG_BYTES, PALETTE, WIDTH_IN
from bindscope.figures.hover import collect_marks, name_artists, with_marks

P = ParamSpec("P")
T = TypeVar("T")

MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")

DPI: Final = 200
LABEL_PT: Final = 9.0  # from one name at a line's end to the next

# How a number of the paper's looks, wherever one stands beside ours.
PAPER_MARK: Final[dict[str, Any]] = {
    "marker": "*",
    "color": "#F0E442",
    "markeredgecolor": INK,
    "markersize": 9,
    "zorder": 5,
}

# Text of an SVG stays text. Where the reader has no DejaVu, Verdana has nearly its widths.
_FONT: Final = b"font-family: 'DejaVu Sans'"
_FONTS: Final = b"font-family: 'DejaVu Sans', Verdana, sans-serif"

_RC: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "savefig.dpi": DPI,
    "svg.fonttype": "none",
    "svg.hashsalt": "bindscope",
    "text.parse_math": False,  # a name that holds `$` is shown as it is
    "xtick.color": "#444444",
    "xtick.labelsize": 8,
    "ytick.color": "#444444",
    "ytick.labelsize": 8,
}


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Run a drawing function under the common style, whatever the user's matplotlibrc says."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_RC)
            return draw(*args, **kwargs)

    return wrapped


class NotebookFigure(Figure):
    """A figure that a notebook shows, whether pyplot is imported or not."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Make an empty figure of the page's width whose layout keeps labels apart."""
    figure = NotebookFigure(figsize=(width_in, height_in), layout="constrained")
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(w_pad=0.05, h_pad=0.05, wspace=0.03, hspace=0.04)
    return figure


@styled
def save(figure: Figure, png: Path | str, svg: Path | str) -> None:
    """Write a figure as PNG (200 dpi) and SVG (with its values), without date, host or version."""
    _number_plainly(figure)
    marks = collect_marks(figure)
    name_artists(marks)
    for path, kind, metadata in (
        (png, "png", {"Software": None}),
        (svg, "svg", {"Date": None, "Creator": None}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        figure.set_layout_engine("none")  # both files have the layout of the first
        content = buffer.getvalue()
        if kind == "svg":
            content = _with_numbered_clips(content).replace(_FONT, _FONTS)
            marked = with_marks(content, figure, marks)
            # Thousands of values are no reading, and would take the figure out of the page.
            content = marked if len(marked) <= LARGEST_SVG_BYTES else content
        write_atomic(Path(path), content)


def _number_plainly(figure: Figure) -> None:
    """Write the ticks of logarithmic axes without formulas, which are not parsed."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for level in (axis.major, axis.minor):
                theirs = level.formatter
                if isinstance(theirs, LogFormatterMathtext):
                    base = getattr(axis.get_transform(), "base", 10)
                    plain = LogFormatter(base, theirs.labelOnlyBase, theirs.minor_thresholds)
                    plain.set_axis(axis)
                    level.formatter = plain


def _with_numbered_clips(svg: bytes) -> bytes:
    """Number the clip paths of an SVG in the order of their first use.

    matplotlib names them by a hash of coordinates in full precision, and the last bits of those
    vary from process to process: the layout's solver visits its constraints in order of address.
    """
    numbers: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return match[1] + numbers.setdefault(match[2], b"clip%d" % len(numbers))

    return re.sub(rb'(url\(#|<clipPath id=")(p[0-9a-f]{10})(?=[)"])', number, svg)


@styled
def placeholder(reason: str) -> Figure:
    """Return a figure that says why there is nothing to see."""
    figure = new_figure(1.2)
    figure.text(0.5, 0.5, reason, ha="center", va="center", color="#444444", wrap=True, gid=EMPTY)
    return figure


def looks(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Give each name a `color` of the palette and a `marker`, in order.

    After eight names colors come again with other markers: no two of 64 names look the same.
    """
    n = len(PALETTE)
    return {
        name: {"color": PALETTE[i % n], "marker": MARKERS[(i + i // n) % len(MARKERS)]}
        for i, name in enumerate(names)
    }


def handle(label: str, **style: Any) -> Line2D:
    """Return a legend entry."""
    return Line2D([], [], label=label, **style)


def paper_entry(marks: Sized) -> list[Line2D]:
    """Return the legend's entry for the paper's numbers where there are any, else nothing."""
    return [handle("published value", linestyle="none", **PAPER_MARK)] if len(marks) else []


def legend_below(figure: Figure, handles: Sequence[Any], per_row: int = 5) -> None:
    """Put one legend for all panels under the figure, in rows of at most `per_row` entries."""
    rows = -(-len(handles) // per_row)
    figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=-(-len(handles) // rows),
        handlelength=1.8,
        columnspacing=1.6,
    )


def note_above(figure: Figure, text: str) -> None:
    """Put a sentence or two above all panels; nothing where the text is empty."""
    if not text:
        return
    lines = "\n".join(wrap(text, 125))
    figure.suptitle(lines, fontsize=7.5, x=0.01, ha="left", color="#444444")


def reference_line(axes: Axes, value: float, label: str, vertical: bool = False) -> None:
    """Draw a dashed line at an entropy and write its name at the line's end."""
    line: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 0.9}
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5}
    if vertical:
        axes.axvline(value, **line)
        axes.annotate(
            label,
            (value, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            ha="center",
            va="bottom",
            **text,
        )
    else:
        axes.axhline(value, **line)
        axes.annotate(
            label,
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            ha="left",
            va="center",
            **text,
        )


def name_ends(axes: Axes, looks: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Write the names of lines beside their last points, and return those of lines that are drawn.

    Names are moved up and down by as little as keeps them apart, with those of reference lines.
    """
    from scipy.optimize import isotonic_regression  # half a second, which few figures need

    texts = [text for text in axes.texts if isinstance(text, Annotation) and text.xy[0] == 1]
    named = set()
    for name, look in looks.items():
        lines = [line for line in axes.lines if np.size(line.get_xdata()) > 1]
        alike = [line for line in lines if _looks(line, look)]
        for line in alike:
            line.set_label(name)  # which the values of its points carry
        for line in alike[:1]:
            named.add(name)
            value = np.asarray(line.get_ydata(), float)
            texts.append(
                axes.annotate(
                    name.replace("\n", ", "),
                    (1, value[np.isfinite(value)][-1]),
                    (3, 0),
                    xycoords=("axes fraction", "data"),
                    textcoords="offset points",
                    ha="left",
                    va="center",
                    fontsize=7.5,
                    color=line.get_color(),
                )
            )
    if not named:
        return named
    texts.sort(key=lambda text: text.xy[1])
    to_points = 72 / mpl.rcParams["figure.dpi"]
    places = np.array([axes.transData.transform((0, text.xy[1]))[1] * to_points for text in texts])
    steps = LABEL_PT * np.arange(len(texts))
    for text, move in zip(
        texts, isotonic_regression(places - steps).x + steps - places, strict=True
    ):
        text.set_position((3, move))
    return named


def _looks(line: Line2D, look: Mapping[str, Any]) -> bool:
    """Return whether a line looks like this, and joins points that are not all missing."""
    shape = (line.get_color(), line.get_marker()) == (look["color"], look.get("marker", "None"))
    joined = line.get_linestyle() != "None"
    return shape and joined and bool(np.isfinite(np.asarray(line.get_ydata(), float)).any())


def zero_line(axes: Axes, vertical: bool = False) -> None:
    """Draw a thin line at 0."""
    (axes.axvline if vertical else axes.axhline)(0, color="#666666", linewidth=0.7)


def values_along_x(axes: Axes) -> None:
    """Turn the grid, for bars that lie."""
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")


def lowest_panels(grid: NDArray[Any], n_panels: int) -> list[Axes]:
    """Return the lowest panel of each column, its ticks named; blank a grid's unused places."""
    for axes in grid.flat[n_panels:]:
        axes.set_axis_off()
    lowest: list[Axes] = list(grid.flat)[:n_panels][-grid.shape[1] :]
    for axes in lowest:
        axes.tick_params(labelbottom=True)
    return lowest
