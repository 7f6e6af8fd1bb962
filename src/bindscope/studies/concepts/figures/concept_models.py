"""What goes with naming new combinations: a point per trained encoder, a panel per measure."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    new_figure,
    reference_line,
    styled,
)
from bindscope.studies.concepts.models_schema import MODELS_SCHEMA
from bindscope.studies.concepts.models_views import MEASURES, OUTCOME, correlated
from bindscope.tables.write import read_table


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the names of the encoders in the configuration's order."""
    table = read_table(inputs.paths("table")[0], MODELS_SCHEMA)
    return {"table": table, "encoders": inputs.content["encoders"]}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "No trained encoder was measured."


@styled
def draw(table: pd.DataFrame, encoders: list[str]) -> Figure:
    """Draw recognition of held-out pairs against each measure.

    Parameters
    ----------
    table, encoders
        As `read` returns them.
    """
    shown = [name for name in encoders if name in set(table["encoder"])]
    look = looks(shown)
    figure = new_figure(3.3)
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    for axes, (measure, words) in zip(panels, MEASURES.items(), strict=True):
        _points(axes, table, measure, look)
        overall = correlated(table, measure)[:1]
        axes.set_title(_title(overall[0]) if overall else "too few models", fontsize=7.5)
        axes.set_xlabel(words.replace(", ", ",\n").replace(" in ", "\nin "), fontsize=7.5)
        axes.set_xlim(min(-0.03, table[measure].min() - 0.03), 1.03)
        last = "bag of\nconcepts" if axes is panels[-1] else ""
        reference_line(axes, table["bag_of_concepts_floor"].mean(), last)
    panels[0].set_ylabel("held-out pairs recognised")
    panels[0].set_ylim(-0.03, 1.03)
    legend_below(figure, [handle(name, linestyle="none", **look[name]) for name in shown], 4)
    return figure


def _title(found: Any) -> str:
    ends = "" if found.low != found.low else f"\n({found.low:.2f} to {found.high:.2f})"
    return f"rank correlation {found.correlation:.2f}{ends}"


def _points(axes: Axes, table: pd.DataFrame, measure: str, look: dict[str, Any]) -> None:
    """Draw models small and pale, more of them seen in training darker."""
    for name, style in look.items():
        own = table[table["encoder"] == name]
        for coverage in own["coverage"].unique():
            rows = own[own["coverage"] == coverage]
            axes.plot(
                rows[measure], rows[OUTCOME], linestyle="none",
                alpha=0.25 + 0.75 * float(coverage), **style,
            )  # fmt: skip
