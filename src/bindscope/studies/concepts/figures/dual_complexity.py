"""What approximators predict of dual encoders, against what these were trained on."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.concepts.analyses_schemas import COMPLEXITY_SCHEMA
from bindscope.studies.concepts.analyses_views import approximated_duals, rows_with
from bindscope.studies.concepts.figures.parts import GREY_FLOOR, lines_by_coverage, only_table

PANELS = {"object": "objects", "concept": "values", "r2": "R2"}

read = partial(only_table, COMPLEXITY_SCHEMA)


def available(table: pd.DataFrame) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if len(approximated_duals(table, "object")):
        return None
    return "No dual encoder was approximated on scenes of unseen objects."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row of panels per encoder, pool and space, a line per approximator.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    found = {measure: approximated_duals(table, measure) for measure in PANELS}
    keys = ["embedding", "dataset"]
    names = list(found["object"][keys].drop_duplicates().itertuples(index=False, name=None))
    look = looks(list(dict.fromkeys(found["object"]["approximator"])))
    figure = new_figure(0.9 + 1.6 * len(names))
    grid = figure.subplots(len(names), len(PANELS), squeeze=False, sharex=True)
    for line, (embedding, space) in zip(grid, names, strict=True):
        for axes, (measure, title) in zip(line, PANELS.items(), strict=True):
            own = rows_with(found[measure], embedding=embedding, dataset=space)
            lines_by_coverage(axes, own, look, "trained_coverage")
            axes.set_ylim(-1.02 if measure == "r2" else -0.02, 1.02)
            axes.set_title(title, fontsize=8)
        line[0].set_ylabel(f"{embedding}\n{space}", fontsize=7)
    for axes in grid[-1]:
        axes.set_xlabel("coverage of the encoder")
    entries = [handle(name, **style) for name, style in look.items()]
    legend_below(figure, [*entries, handle("bag of concepts", **GREY_FLOOR)], 4)
    return figure
