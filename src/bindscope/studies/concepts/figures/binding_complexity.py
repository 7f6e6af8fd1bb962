"""What approximators predict of embeddings of scenes of objects that they never saw."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.concepts.analyses_schemas import COMPLEXITY_SCHEMA
from bindscope.studies.concepts.analyses_views import approximated, named, rows_with
from bindscope.studies.concepts.figures.parts import GREY_FLOOR, lines_by_coverage, only_table

read = partial(only_table, COMPLEXITY_SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(approximated(table, "object")) else "No scene of unseen objects was there."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row of panels per embedding (objects, concepts), a line per approximator.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    found = {what: named(approximated(table, what)) for what in ("object", "concept")}
    names = list(dict.fromkeys(found["object"]["name"]))
    look = looks(list(dict.fromkeys(table["approximator"])))
    figure = new_figure(0.9 + 1.6 * len(names))
    grid = figure.subplots(len(names), 2, squeeze=False, sharex=True, sharey=True)
    for line, name in zip(grid, names, strict=True):
        for axes, (what, means) in zip(line, found.items(), strict=True):
            lines_by_coverage(axes, rows_with(means, name=name), look, "fitted_share")
            axes.set_ylim(-0.02, 1.02)
            axes.set_title(f"{name.replace(chr(10), ', ')}: {what}s", fontsize=8)
        line[0].set_ylabel("share of scenes")
    for axes in grid[-1]:
        axes.set_xlabel("share of objects that it is fitted on")
    entries = [handle(name, **style) for name, style in look.items()]
    legend_below(figure, [*entries, handle("bag of concepts", **GREY_FLOOR)], 4)
    return figure
