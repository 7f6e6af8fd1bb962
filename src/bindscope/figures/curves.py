"""What the figures share that draw binding against a property of the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bindscope.figures.style import INK, handle
from bindscope.tables.views import family_order, last_layers, measured, over_seeds, token_order

CURVE = ["model", "tokens", "probe"]
BOUND, PAPER = "conditional_binding_lower_bound_bits", "conditional_binding_bits"
_DASHES = (0, (3, 1.5))


def swept(table: pd.DataFrame, values: Mapping[str, float]) -> pd.DataFrame:
    """Return last layers of the models that were measured at two values or more.

    Parameters
    ----------
    table
        `binding_information`.
    values
        Per dataset its value on the horizontal axis; other datasets are left out.

    Returns
    -------
    DataFrame
        Means over seeds, with `x`; ordered by model, tokens, probe and x.
    """
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    rows = rows[rows[BOUND].notna() & rows["dataset"].isin(list(values))].copy()
    rows["x"] = rows["dataset"].map(values).astype(float)
    if len(rows):
        rows = rows[rows.groupby(CURVE)["x"].transform("nunique") > 1]
    return rows.sort_values([*CURVE, "x", "dataset"], kind="stable")


def panels(rows: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Split rows into (tokens, family, rows), in the order of the figures."""
    return [
        (token, family, rows[(rows["tokens"] == token) & (rows["family"] == family)])
        for token in token_order(rows["tokens"])
        for family in family_order(rows.loc[rows["tokens"] == token, "family"])
    ]


def percent(curve: pd.DataFrame) -> np.ndarray:
    """Return what turns bits into percent of H(O|F); NaN where that is 0."""
    given = curve["h_object_given_feature_bits"].to_numpy(float)
    return np.asarray(100.0 / np.where(given > 0, given, np.nan))


def bound_curve(
    axes: Axes, curve: pd.DataFrame, scale: np.ndarray, colour: str, marker: str, x: str = "x"
) -> None:
    """Draw a lower bound with its interval, and the paper's estimate dashed.

    Parameters
    ----------
    axes
        Where.
    curve
        Rows of one model, token input and probe.
    scale
        Per row, what its bits are multiplied with.
    colour, marker
        The model's.
    x
        Column of the horizontal axis.
    """
    places = curve[x].to_numpy(float)
    value, low, high, paper = (
        curve[name].to_numpy(float) * scale
        for name in (BOUND, f"{BOUND}_low", f"{BOUND}_high", PAPER)
    )
    axes.fill_between(places, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(places, value, color=colour, marker=marker)
    axes.plot(places, paper, color=colour, linestyle=_DASHES, linewidth=1)


def entries(
    names: Sequence[str], colour: Mapping[str, str], marker: Mapping[str, str]
) -> list[Line2D]:
    """Return the legend: a line per model, and what solid and dashed lines are."""
    models = [handle(name, color=colour[name], marker=marker[name]) for name in names]
    return [
        *models,
        handle("lower bound, 95 % interval", color=INK),
        handle("paper's estimate", color=INK, linestyle=_DASHES, linewidth=1),
    ]
