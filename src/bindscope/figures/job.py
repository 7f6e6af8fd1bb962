"""One figure job: read what a figure needs, draw it, or say in its place why there is nothing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bindscope.figures import style

if TYPE_CHECKING:
    from bindscope.core.interfaces import Figure, Inputs


def make_figure(implementation: str, inputs: Inputs, png: Path | str, svg: Path | str) -> None:
    """Draw a figure and write it as PNG and SVG.

    Parameters
    ----------
    implementation
        Name of a module that is a `core.interfaces.Figure`.
    inputs
        What it reads.
    png, svg
        Where to write.

    Notes
    -----
    A figure whose data the run did not produce becomes one line that says so.
    """
    figure = cast("Figure", import_module(implementation))
    data = figure.read(inputs)
    reason = figure.available(**data)
    style.save(style.placeholder(reason) if reason else figure.draw(**data), png, svg)
