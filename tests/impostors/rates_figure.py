"""Rates at which claims are made of planted representations: impostors against genuine cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bindscope.figures import style
from bindscope.figures.colors import BLUE, ORANGE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ROW_IN = 0.24
KINDS = {"impostor": (ORANGE, "o"), "genuine": (BLUE, "s")}


@style.styled
def draw(rates: pd.DataFrame) -> Figure:
    """Draw the rate of "holds" by claim, a mark per case, with Wilson's 95 % interval.

    Parameters
    ----------
    rates
        Rows of `impostors.claim_rates`.
    """
    studies = list(dict.fromkeys(rates["study"]))
    claims = [list(dict.fromkeys(rates.loc[rates["study"] == s, "claim"])) for s in studies]
    heights = [len(names) + 1 for names in claims]
    figure = style.new_figure(1.2 + ROW_IN * sum(heights))
    axes = figure.subplots(len(studies), 1, sharex=True, squeeze=False, height_ratios=heights)
    for axis, study, names in zip(axes[:, 0], studies, claims, strict=True):
        for row, claim in enumerate(names):
            here = rates[(rates["study"] == study) & (rates["claim"] == claim)]
            places = row + np.linspace(-0.3, 0.3, len(here)) if len(here) > 1 else [float(row)]
            for place, case in zip(places, here.itertuples(), strict=True):
                color, marker = KINDS[case.kind]
                axis.plot([case.low, case.high], [place, place], color=color, linewidth=0.9)
                axis.plot(case.rate, place, marker, color=color, markersize=3)
        axis.axvline(0.05, color=ORANGE, linestyle=":", linewidth=0.9)
        axis.axvline(0.90, color=BLUE, linestyle=":", linewidth=0.9)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_xlim(-0.03, 1.03)
        axis.set_title(study.replace("_", " "))
    axes[-1, 0].set_xlabel("fraction of seeds for which the claim holds (95 % interval)")
    entries = [
        style.handle(kind, color=color, marker=marker, linestyle="none")
        for kind, (color, marker) in KINDS.items()
    ]
    style.legend_below(figure, entries)
    return figure
