"""Each model's bits of what goes with what in [CLS] against IsSameObject of its patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    new_figure,
    reference_line,
    styled,
    zero_line,
)
from bindscope.studies.together.claims import Judged, judged
from bindscope.studies.together.sides import ENDS
from bindscope.studies.together.table import SCHEMA
from bindscope.studies.together.views import BITS, LEAD, over_groups, points
from bindscope.studies.together.words import in_short
from bindscope.tables.write import read_table

# What a row of panels shows of IsSameObject: column -> the axis.
_LEADS: Final = {
    LEAD: "IsSameObject: ahead of\npositions alone, points",
    "class_position_lead": "IsSameObject: ahead of\nclass and position, points",
}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, the groups' order, and how intervals are resampled."""
    return {"table": read_table(inputs.paths("table")[0], SCHEMA), **inputs.content}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(points(table)) else "No model has a number of both studies."


@styled
def draw(
    table: pd.DataFrame,
    groups: Sequence[str] = (),
    bootstrap_samples: int = 1000,
    bootstrap_seed: int = 0,
) -> Figure:
    """Draw a point per model, and the mean of each group with its intervals.

    Parameters
    ----------
    table, groups, bootstrap_samples, bootstrap_seed
        As `read` returns them.

    Returns
    -------
    Figure
        A column of panels per dataset; a row per lead that was measured.
    """
    shown = points(table)
    datasets = list(dict.fromkeys(shown["dataset"]))
    leads = [name for name in _LEADS if shown[name].notna().any()]
    look = looks([name for name in groups if name in set(shown["group"])])
    verdicts = judged(shown, bootstrap_samples, bootstrap_seed)
    figure = new_figure(1.0 + 2.9 * len(leads))
    panels = figure.subplots(len(leads), len(datasets), sharex="col", squeeze=False)
    for column, verdict in zip(panels.T, verdicts, strict=True):
        part = shown[shown["dataset"] == verdict.dataset]
        for axes, lead in zip(column, leads, strict=True):
            _panel(axes, part, lead, look)
            axes.set_ylabel(_LEADS[lead])
        column[0].set_title(_title(verdict), pad=14)
        column[-1].set_xlabel("what goes with what in [CLS], at least, bits per scene")
    entries = [handle(name, linestyle="none", **style) for name, style in look.items()]
    single = handle("one model", marker="o", color=GREY, linestyle="none", markersize=2.5)
    legend_below(figure, [*entries, single], 4)
    return figure


def _title(verdict: Judged) -> str:
    return f"{verdict.dataset}: {in_short(verdict)}"


def _panel(axes: Axes, part: pd.DataFrame, lead: str, look: Mapping[str, dict[str, Any]]) -> None:
    """Draw models small, groups large, and what no model can be beyond."""
    part = part[part[lead].notna()]
    for _, row in part.iterrows():
        style = look[str(row["group"])]
        axes.plot(row[BITS], 100 * row[lead], **style, linestyle="none", markersize=2.5, alpha=0.6)
    for _, row in over_groups(part).iterrows():
        style = look[str(row["group"])]
        x, y = ([float(row[f"{name}{end}"]) for end in ENDS] for name in (BITS, lead))
        y = [100 * value for value in y]
        axes.plot(x[1:], [y[0], y[0]], color=style["color"], linewidth=1)
        axes.plot([x[0], x[0]], y[1:], color=style["color"], linewidth=1)
        axes.plot(x[0], y[0], **style, linestyle="none", markersize=6.5, markeredgecolor="white")
    zero_line(axes)
    zero_line(axes, vertical=True)
    reference_line(axes, part["pairing_entropy_bits"].iloc[0], "all there is", vertical=True)
    if lead == LEAD:  # the rival is one for all models, so that what is above it is too
        rival = (part["same_object_accuracy"] - part[lead]).mean()
        reference_line(axes, 100 * (1 - rival), "all\npairs")
