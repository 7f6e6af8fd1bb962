"""What comes of exchanging an object in the embedding of a scene, by the strength of the edit."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.colours import PALETTE
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.concepts.analyses_schemas import EDITING_SCHEMA
from bindscope.studies.concepts.analyses_views import edits_by_strength, named, rows_with
from bindscope.studies.concepts.figures.parts import FLOOR, only_table

PANELS = {
    "retrieval_unordered": "finds the real scene\n(either order)",
    "concept": "probes read its values",
    "object": "the probe reads its objects",
}


read = partial(only_table, EDITING_SCHEMA)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if (table["n_scenes"] > 0).any() else "No scene could be edited."


def estimator_of(table: pd.DataFrame) -> str:
    """Return the estimator that is shown: means by slot where they are there."""
    found = list(dict.fromkeys(table["estimator"]))
    return "avg_pos" if "avg_pos" in found else str(found[0])


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per measure, a line per embedding.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    shown = edits_by_strength(rows_with(table, estimator=estimator_of(table), stratum="all"))
    rows = named(shown)
    names = list(dict.fromkeys(rows["name"]))
    look = {
        name: {**style, "linestyle": "-" if i < len(PALETTE) else "--"}
        for i, (name, style) in enumerate(looks(names).items())
    }
    figure = new_figure(3.0)
    for axes, (measure, title) in zip(figure.subplots(1, 3, sharey=True), PANELS.items(),
                                      strict=True):  # fmt: skip
        for name in names:
            own = rows_with(rows, name=name, measure=measure).sort_values("strength")
            axes.plot(own["strength"], own["value"], **look[name])
            if own["floor"].notna().any():
                axes.plot(own["strength"], own["floor"], color=look[name]["color"], **FLOOR)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("strength of the edit")
        axes.set_ylim(-0.02, 1.02)
    figure.axes[0].set_ylabel("share of edits")
    entries = [handle(name.replace("\n", ", "), **style) for name, style in look.items()]
    legend_below(figure, [*entries, handle("bag of concepts", color="k", **FLOOR)], 4)
    return figure
