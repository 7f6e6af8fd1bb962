"""F3: binding against the size of the feature space (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.curves import bound_curve, entries, panels, percent, swept
from bindscope.figures.style import (
    FAMILY_NAMES,
    GREY,
    TOKEN_NAMES,
    colours,
    handle,
    legend_below,
    markers,
    new_figure,
    styled,
)
from bindscope.tables.views import name_order

STATEMENT = (
    "The paper (CLIP-L/14, 1 x 1 to 7 x 7): beta* falls monotonically, not exponentially; "
    "it prints no numbers for this curve."
)


def available(table: pd.DataFrame, cells: Mapping[str, int]) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(swept(table, cells)):
        return "No model was measured on feature spaces of two sizes or more."
    return None


@styled
def draw(table: pd.DataFrame, cells: Mapping[str, int], models: Sequence[str] = ()) -> Figure:
    """Draw beta* and B* against the number of possible objects.

    Parameters
    ----------
    table
        `binding_information`.
    cells
        Per dataset the number of possible objects K, the product of its groups' sizes.
    models
        Order of the models, the configuration's.

    Returns
    -------
    Figure
        A row per token input and probe family. Left: share of H(O|F), no point where that is 0;
        right: bits, with H(O|F) in grey. Solid: the lower bound with its 95 % interval; dashed:
        the paper's estimate.
    """
    rows = swept(table, cells)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    parts = panels(rows)
    figure = new_figure(1.2 + 1.9 * len(parts))
    grid = figure.subplots(len(parts), 2, sharex=True, sharey="col", squeeze=False)
    for pair, (token, family, part) in zip(grid, parts, strict=True):
        for (model, _), curve in part.groupby(["model", "probe"], sort=False):
            look = (colour[str(model)], marker[str(model)])
            bound_curve(pair[0], curve, percent(curve), *look)
            bound_curve(pair[1], curve, np.ones(len(curve)), *look)
        known = part.drop_duplicates("dataset").sort_values("x")
        pair[1].plot(known["x"], known["h_object_given_feature_bits"], ":", color=GREY)
        pair[0].set_ylabel(f"{TOKEN_NAMES[token]}, {FAMILY_NAMES[family]}\n$\\beta^*$, %")
        pair[1].set_ylabel("$B^*$, bits per scene")
        for axes in pair:
            axes.axhline(0, color="#666666", linewidth=0.7)
    for axes in grid[-1]:
        axes.set_xlabel("number of possible objects, K")
        axes.set_xscale("log")
        sizes = sorted(rows["x"].unique())
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    shown = [*entries(names, colour, marker), handle("H(O|F)", color=GREY, linestyle=":")]
    legend_below(figure, shown, 4)
    figure.suptitle(STATEMENT, fontsize=7.5, x=0.01, ha="left", color="#444444")
    return figure
