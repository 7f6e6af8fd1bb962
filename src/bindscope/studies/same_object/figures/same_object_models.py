"""Accuracy of each model at its best layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import handle, legend_below, new_figure, styled, values_along_x
from bindscope.studies.same_object.names import (
    LINES,
    LOOK_OF_POSITION,
    family_order,
    family_shown,
)
from bindscope.studies.same_object.schemas import SAME_OBJECT_SCHEMA
from bindscope.studies.same_object.views import at_best_layers, of_positions, read_shown

_SHOWN = ("linear", "diagonal", "class_pointwise", "class_position", "identity_pointwise", "cosine",
          "quadratic", "quadratic_position")  # fmt: skip


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table."""
    return read_shown(inputs, SAME_OBJECT_SCHEMA)


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    rows = at_best_layers(table)
    return rows[rows["family"].isin(_SHOWN)]


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    rows = _rows(table)
    if (rows["family"] == "quadratic").any():
        return None
    return "No quadratic probe was fitted to tokens of a model."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw the accuracy of each model's best layer.

    Parameters
    ----------
    table, models
        As `read` returns them.
    """
    rows, positions = _rows(table), of_positions(table)
    datasets = list(dict.fromkeys(rows["dataset"]))
    heights = [rows.loc[rows["dataset"] == name, "group"].nunique() for name in datasets]
    figure = new_figure(0.9 + 0.42 * (sum(heights) + 2 * len(heights)))
    ours = figure.subplots(len(datasets), 1, sharex=True, squeeze=False, height_ratios=heights)
    for axes, dataset in zip(ours.flat, datasets, strict=True):
        part = rows[rows["dataset"] == dataset]
        order = [name for name in models if name in set(part["group"])]
        _panel(axes, part, positions[positions["dataset"] == dataset], order)
        axes.set_title(dataset, fontsize=8)
    ours[-1, 0].set_xlabel("accuracy at the layer with the lowest validation loss, %")
    legend_below(figure, _entries(rows, positions), 4)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, positions: pd.DataFrame, order: Sequence[str]) -> None:
    families = sorted(rows["family"].unique(), key=family_order)
    for y, model in enumerate(order):
        of_model = rows[rows["group"] == model]
        for _, row in of_model.iterrows():
            shown = family_shown(str(row["family"]))
            at = y + 0.5 * (families.index(row["family"]) / max(1, len(families) - 1) - 0.5)
            values = [100 * float(row[f"accuracy{end}"]) for end in ("", "_low", "_high")]
            axes.plot(values[1:], [at, at], color=shown.colour, linewidth=1)
            axes.plot(values[0], at, color=shown.colour, marker=shown.marker, markersize=4.5)
            if row["family"] == "quadratic":
                axes.annotate(
                    f"layer {row['layer']}", (values[2], at), xytext=(6, 0), fontsize=7,
                    textcoords="offset points", va="center", color=GREY,
                )  # fmt: skip
    for column, _, look in LINES:
        if rows[column].notna().any():
            axes.axvline(100 * rows[column].mean(), linewidth=1.0, **look)
    for value in positions["accuracy"].dropna():
        axes.axvline(100 * value, linewidth=1.0, **LOOK_OF_POSITION)
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    values_along_x(axes)


def _entries(rows: pd.DataFrame, positions: pd.DataFrame) -> list[Any]:
    shown = [family_shown(name) for name in sorted(rows["family"].unique(), key=family_order)]
    entries = [
        handle(s.name, color=s.colour, marker=s.marker, linewidth=1, markersize=4.5) for s in shown
    ]
    if len(positions):
        entries.append(handle("position alone", linewidth=1.0, **LOOK_OF_POSITION))
    return [*entries, *(handle(name, linewidth=1.0, **look) for _, name, look in LINES)]
