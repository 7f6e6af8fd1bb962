"""At which layers replaced activations matter, and how much of a mean difference is needed."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import in_order, legend_columns, named, rows_with, summaries
from bindscope.tables.write import read_table

GROUPS = {"O": "objects", "I": "items", "C": "colours"}
_ANEW: dict[str, Any] = {"linestyle": (0, (3, 1.5)), "markerfacecolor": "none"}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return {"table": read_table(inputs.paths("table")[0], BINDING_ID_SCHEMA)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if set(table["experiment"]) & {"layers", "doses"} else "Nothing was swept."


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw a row of panels by layer and one by dose, a panel per group and a line per model.

    Parameters
    ----------
    table
        As `read` returns it.
    """
    sweeps = [name for name in ("layers", "doses") if name in set(table["experiment"])]
    rows = summaries(table)
    rows = named(rows[rows["experiment"].isin(sweeps)])
    look = looks(in_order(rows["name"]))
    entries = [handle(name.replace("\n", ", "), **style) for name, style in look.items()]
    if "layers" in sweeps:
        entries.append(handle("context computed anew", color="#444444", marker="o", **_ANEW))
    columns = legend_columns(str(entry.get_label()) for entry in entries)
    figure = new_figure(0.3 + 1.9 * len(sweeps) + 0.17 * -(-len(entries) // columns))
    grid = figure.subplots(len(sweeps), 3, squeeze=False, sharey=True)
    for i, sweep in enumerate(sweeps):
        own = rows_with(rows, experiment=sweep)
        for axes, (group, words) in zip(grid[i], GROUPS.items(), strict=True):
            found = own[own["condition"].str.match(rf"{group}( all)?( anew)?$")]
            if found.empty:
                axes.set_axis_off()
                continue
            (_by_layer if sweep == "layers" else _by_dose)(axes, found, look)
            what = "replaced" if sweep == "layers" else "moved by mean differences"
            axes.set_title(f"{words} {what}", fontsize=7.5)
            axes.set_ylim(-0.04, 1.04)
        grid[i, 0].set_ylabel("answers as slots expect", fontsize=7.5)
    legend_below(figure, entries, columns)
    return figure


def _by_layer(axes: Axes, rows: pd.DataFrame, look: dict[str, Any]) -> None:
    """Draw windows of layers, with a frozen context and with one that is computed anew."""
    single = rows[rows["layers"].str.match(r"[0-9]+( to [0-9]+)?$")]
    places = sorted(set(single["layers"]), key=lambda words: int(words.split()[0]))
    shift = 0.5 / max(len(look), 2)
    for i, (name, style) in enumerate(look.items()):
        for anew in (False, True):
            own = rows_with(single, name=name)
            own = own[own["condition"].str.endswith("anew") == anew]
            at = [
                places.index(words) + shift * (i - (len(look) - 1) / 2) for words in own["layers"]
            ]
            order = sorted(range(len(at)), key=at.__getitem__)
            axes.plot([at[k] for k in order], own["share"].iloc[order],
                      **{**style, **(_ANEW if anew else {})})  # fmt: skip
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("layer", fontsize=7.5)


def _by_dose(axes: Axes, rows: pd.DataFrame, look: dict[str, Any]) -> None:
    shift = min(0.05, 0.25 / len(look))  # all of them stay near their dose
    for i, (name, style) in enumerate(look.items()):
        own = rows_with(rows, name=name).dropna(subset=["dose"]).sort_values("dose")
        axes.plot(own["dose"] + shift * (i - (len(look) - 1) / 2), own["share"], **style)
    axes.set_xlabel("multiple of the mean difference", fontsize=7.5)
