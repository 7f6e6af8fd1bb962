"""One figure job: read what a figure needs, draw it, or say in its place why there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bindscope.core.registries import resolve
from bindscope.figures import style
from bindscope.figures.figure import Figure, NothingToDrawError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from bindscope.core.interfaces import Inputs


def drawn(implementation: str, inputs: Inputs) -> Canvas:
    """Draw a figure (``"module:object"``); without its data, one line that says so."""
    figure: Figure[...] = resolve(implementation)
    try:
        return figure.draw(**figure.read(inputs))
    except NothingToDrawError as nothing:
        return style.placeholder(str(nothing))


def make_figure(implementation: str, inputs: Inputs, png: Path | str, svg: Path | str) -> None:
    """Draw a figure as `drawn` and write it as PNG and SVG."""
    style.save(drawn(implementation, inputs), png, svg)
