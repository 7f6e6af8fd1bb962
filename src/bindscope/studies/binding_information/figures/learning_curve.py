"""How far a bound is a matter of the number of training scenes, and where it would end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY, INK
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    new_figure,
    styled,
    zero_line,
)
from bindscope.studies.binding_information.names import tokens_shown
from bindscope.studies.binding_information.schemas import CURVE_SCHEMA
from bindscope.studies.binding_information.views import name_order
from bindscope.tables.write import read_table

_DASHES = (0, (4, 2))
_CURVE = ["dataset", "model", "layer", "tokens", "probe"]
# The chain's parts; what is the sum of the last two stands in for them where they are not told
# apart.
_TITLES = {
    "feature": "what occurs",
    "counts": "how many",
    "pairing": "what goes with what",
    "conditional": "how many, and what with what",
}
_SAVED: Final[dict[str, Any]] = {"marker": "x", "linestyle": "none", "markersize": 5}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the models' order."""
    table = read_table(inputs.paths("table")[0], CURVE_SCHEMA)
    return {"table": table, "models": inputs.content["models"]}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(_rows(table)) else "No probe was fitted on several numbers of scenes."


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the chain's parts, means over seeds; an end only where every seed has one."""
    rows = table[table["quantity"].isin(list(_TITLES)) & (table["control"] == "none")]
    rows = rows[rows["lower_bound_bits"].notna()]
    apart = set(rows.loc[rows["quantity"] == "pairing", "dataset"])
    rows = rows[(rows["quantity"] != "conditional") | ~rows["dataset"].isin(apart)]
    numbers = [c.name for c in CURVE_SCHEMA.columns if c.kind == "float64"]
    groups = rows.groupby([*_CURVE, "quantity", "n_train_scenes"], sort=False, observed=True)
    means = groups[numbers].mean()
    ends = [name for name in numbers if name.startswith("asymptote_bits")]
    means[ends] = means[ends].where(groups["asymptote_bits"].count() == groups.size())
    return means.reset_index()


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw bits against training scenes.

    Parameters
    ----------
    table
        A `learning_curve` table.
    models
        Names of the models in the configuration's order.

    Returns
    -------
    Figure
        A row of panels per dataset and a column per part of the chain. Solid: the lower bound with
        its 95 % interval; dashed: where the curve would end, with its interval at the right; a
        cross: what the prequential code saves; dotted: the part's entropy.
    """
    rows = _rows(table)
    rows["line"] = _line_names(rows)
    order = name_order(rows["model"], models)
    lines = [line for model in order for line in rows.loc[rows["model"] == model, "line"].unique()]
    look = looks(lines)
    datasets = sorted(rows["dataset"].unique())
    quantities = [name for name in _TITLES if name in set(rows["quantity"])]
    figure = new_figure(1.1 + 2.1 * len(datasets) + 0.12 * len(lines))
    grid = figure.subplots(len(datasets), len(quantities), squeeze=False, sharex=True)
    for row, dataset in zip(grid, datasets, strict=True):
        for axes, quantity in zip(row, quantities, strict=True):
            part = rows[(rows["dataset"] == dataset) & (rows["quantity"] == quantity)]
            if not len(part):
                axes.set_axis_off()
                continue
            _panel(axes, part, look)
            axes.set_title(_TITLES[quantity], fontsize=8.5)
        several = f"{dataset}\n" if len(datasets) > 1 else ""
        row[0].set_ylabel(f"{several}bits per scene")
    for axes in grid[-1]:
        axes.set_xlabel("training scenes")
    legend_below(figure, _entries(look), 3)
    return figure


def _line_names(rows: pd.DataFrame) -> pd.Series[str]:
    """Name each curve by its model and token input, and by what else tells curves apart."""
    tokens = rows["tokens"].map(lambda token: tokens_shown(token).name)
    names = rows["model"] + ", " + tokens
    for column in ("layer", "probe"):
        told_apart = rows.groupby(["model", "tokens"])[column].transform("nunique") > 1
        if told_apart.any() or (column == "probe" and rows["probe"].nunique() > 1):
            names = names + ", " + ("layer " if column == "layer" else "") + rows[column]
    return names


def _panel(axes: Axes, part: pd.DataFrame, look: Mapping[str, Mapping[str, Any]]) -> None:
    counts = sorted(part["n_train_scenes"].unique())
    right = counts[-1] * (counts[-1] / counts[0]) ** 0.22
    n_lines = max(part["line"].nunique(), 2)
    for i, (line, curve) in enumerate(part.groupby("line", sort=False)):
        curve, style = curve.sort_values("n_train_scenes"), look[str(line)]
        places = curve["n_train_scenes"].to_numpy(float)
        low, value, high = (
            curve[f"lower_bound_bits{end}"].to_numpy(float) for end in ("_low", "", "_high")
        )
        axes.fill_between(places, low, high, facecolor=style["color"], alpha=0.2, lw=0)
        axes.plot(places, value, **style)
        last = curve.iloc[-1]
        saved = last["prior_code_bits"] - last["prequential_bits"]
        axes.plot(places[-1], saved, color=style["color"], **_SAVED)
        if pd.notna(last["asymptote_bits"]):
            end = last["asymptote_bits"]
            place = right * (right / counts[-1]) ** (0.5 * i / (n_lines - 1))
            axes.plot(
                [places[-1], place], [value[-1], end], color=style["color"],
                linestyle=_DASHES, linewidth=1,
            )  # fmt: skip
            ends = [[end - last["asymptote_bits_low"]], [last["asymptote_bits_high"] - end]]
            axes.errorbar([place], [end], ends, color=style["color"], fmt="_", capsize=2, lw=1)
    axes.axhline(part["entropy_bits"].iloc[0], color=GREY, linestyle=":")
    zero_line(axes)
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{n:,.0f}" for n in counts], rotation=30)
    axes.minorticks_off()


def _entries(look: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    return [
        *(handle(name, **style) for name, style in look.items()),
        handle("lower bound, 95 % interval", color=INK),
        handle("extrapolated to scenes without end", color=INK, linestyle=_DASHES, linewidth=1),
        handle("saved by the prequential code", color=INK, **_SAVED),
        handle("entropy: all there is", color=GREY, linestyle=":"),
    ]
