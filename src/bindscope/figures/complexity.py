"""F3: binding against the size of the feature space (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.style import (
    FAMILY_NAMES,
    GREY,
    INK,
    TOKEN_NAMES,
    colours,
    handle,
    legend_below,
    markers,
    new_figure,
    styled,
)
from bindscope.tables.views import (
    family_order,
    last_layers,
    measured,
    name_order,
    over_seeds,
    token_order,
)

_CURVE = ["model", "tokens", "probe"]
BOUND, PAPER = "conditional_binding_lower_bound_bits", "conditional_binding_bits"
STATEMENT = (
    "The paper (CLIP-L/14, 1 x 1 to 7 x 7): beta* falls monotonically, not exponentially; "
    "it prints no numbers for this curve."
)


def _rows(table: pd.DataFrame, cells: Mapping[str, int]) -> pd.DataFrame:
    """Last layers of the models that were measured at two sizes or more, with `cells`."""
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    rows = rows[rows[BOUND].notna() & rows["dataset"].isin(list(cells))].copy()
    rows["cells"] = rows["dataset"].map(cells).astype(float)
    if len(rows):
        rows = rows[rows.groupby(_CURVE)["cells"].transform("nunique") > 1]
    return rows.sort_values([*_CURVE, "cells", "dataset"], kind="stable")


def available(table: pd.DataFrame, cells: Mapping[str, int]) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(_rows(table, cells)):
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
    rows = _rows(table, cells)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    panels = [
        (token, family)
        for token in token_order(rows["tokens"])
        for family in family_order(rows.loc[rows["tokens"] == token, "family"])
    ]
    figure = new_figure(1.2 + 1.9 * len(panels))
    grid = figure.subplots(len(panels), 2, sharex=True, sharey="col", squeeze=False)
    for pair, (token, family) in zip(grid, panels, strict=True):
        part = rows[(rows["tokens"] == token) & (rows["family"] == family)]
        for (model, _), curve in part.groupby(["model", "probe"], sort=False):
            given = curve["h_object_given_feature_bits"].to_numpy(float)
            whole = np.where(given > 0, given, np.nan)  # beta* has no value where H(O|F) = 0
            look = (colour[str(model)], marker[str(model)])
            _curve(pair[0], curve, 100.0 / whole, *look)
            _curve(pair[1], curve, np.ones(len(curve)), *look)
        known = part.drop_duplicates("dataset").sort_values("cells")
        pair[1].plot(known["cells"], known["h_object_given_feature_bits"], ":", color=GREY)
        pair[0].set_ylabel(f"{TOKEN_NAMES[token]}, {FAMILY_NAMES[family]}\n$\\beta^*$, %")
        pair[1].set_ylabel("$B^*$, bits per scene")
        for axes in pair:
            axes.axhline(0, color="#666666", linewidth=0.7)
    for axes in grid[-1]:
        axes.set_xlabel("number of possible objects, K")
        axes.set_xscale("log")
        sizes = sorted(rows["cells"].unique())
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.minorticks_off()
    entries = [handle(name, color=colour[name], marker=marker[name]) for name in names]
    entries += [
        handle("lower bound, 95 % interval", color=INK),
        handle("paper's estimate", color=INK, linestyle=(0, (3, 1.5)), linewidth=1),
        handle("H(O|F)", color=GREY, linestyle=":"),
    ]
    legend_below(figure, entries, 4)
    figure.suptitle(STATEMENT, fontsize=7.5, x=0.01, ha="left", color="#444444")
    return figure


def _curve(axes: Axes, curve: pd.DataFrame, scale: np.ndarray, colour: str, marker: str) -> None:
    x = curve["cells"].to_numpy(float)
    value, low, high, paper = (
        curve[name].to_numpy(float) * scale
        for name in (BOUND, f"{BOUND}_low", f"{BOUND}_high", PAPER)
    )
    axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(x, value, color=colour, marker=marker)
    axes.plot(x, paper, color=colour, linestyle=(0, (3, 1.5)), linewidth=1)
