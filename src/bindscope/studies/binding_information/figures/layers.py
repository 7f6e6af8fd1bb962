"""F2: beta* by layer for each model and probe family (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import INK
from bindscope.figures.style import (
    colours,
    handle,
    legend_below,
    markers,
    new_figure,
    reference_line,
    styled,
)
from bindscope.studies.binding_information.figures.assumed import (
    assumed_entry,
    hatched,
    marked,
    rests_on_one,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.views import (
    family_order,
    measured,
    name_order,
    over_seeds,
    token_order,
)

_CURVE = ["dataset", "model", "tokens", "probe"]
PERCENT = 100.0
_SHOW_WHOLE_FROM = 50.0  # per cent; below, the line at 100 would press the curves together


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of curves with at least two layers, with `x`: the layer's place."""
    rows = over_seeds(measured(table, known_answer=False))
    rows = rows[rows["conditional_binding_lower_bound_bits"].notna()]
    n_layers = rows.groupby(_CURVE)["layer"].transform("nunique") if len(rows) else rows["layer"]
    rows = rows[n_layers > 1].copy() if len(rows) else rows.copy()
    last = rows["layer"] == "final"
    rows["x"] = pd.to_numeric(rows["layer"].where(~last, rows["n_layers"] + 1)).astype(float)
    return rows.sort_values([*_CURVE, "x"], kind="stable")


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table and the models' order."""
    return read_binding(inputs)


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(_rows(table)):
        return "No model was measured at more than one layer."
    return None


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw beta* by layer.

    Parameters
    ----------
    table
        `binding_information`.
    models
        Order of the models, the configuration's.

    Returns
    -------
    Figure
        A panel per dataset and token input (rows) and probe family (columns). Solid lines: the
        lower bound over H(O|F) with its 95 % interval as a band; dashed: the paper's estimate.
        Means over probe seeds.
    """
    rows = _rows(table)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    families = family_order(rows["family"])
    lines = [
        (dataset, token)
        for dataset in sorted(rows["dataset"].unique())
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    ]
    figure = new_figure(0.9 + 1.75 * len(lines))
    grid = figure.subplots(len(lines), len(families), sharex=True, sharey=True, squeeze=False)
    several = rows["dataset"].nunique() > 1
    for i, (dataset, token) in enumerate(lines):
        for axes, family in zip(grid[i], families, strict=True):
            part = rows[
                (rows["dataset"] == dataset)
                & (rows["tokens"] == token)
                & (rows["family"] == family)
            ]
            for (model, _), curve in part.groupby(["model", "probe"], sort=False):
                _curve(axes, curve, colour[str(model)], marker[str(model)])
            axes.axhline(0, color="#666666", linewidth=0.7)
            if i == 0:
                axes.set_title(family_shown(family).name)
        assumed = rests_on_one(rows[rows["dataset"] == dataset])
        name = marked(dataset, assumed)
        head = (
            f"{name}\n{tokens_shown(token).name}"
            if several
            else marked(tokens_shown(token).name, assumed)
        )
        grid[i, 0].set_ylabel(f"{head}\n$\\beta^*$, %")
    if grid[0, 0].get_ylim()[1] >= _SHOW_WHOLE_FROM:
        for axes in grid.flat:
            entropy = marked("H(O|F)", rests_on_one(rows))
            reference_line(axes, PERCENT, entropy if axes in grid[:, -1] else "")
    _layer_ticks(grid[-1], rows)
    entries = [handle(n, color=colour[n], marker=marker[n]) for n in names]
    entries.append(handle("lower bound, 95 % interval", color=INK))
    entries.append(handle("paper's estimate", color=INK, linestyle=(0, (3, 1.5)), linewidth=1))
    if (rows["layer"] == "final").any():
        entries.append(
            handle("after the last norm", color=INK, marker="o", markerfacecolor="white",
                   linestyle="none")
        )  # fmt: skip
    legend_below(figure, [*entries, *assumed_entry(rows)])
    return figure


def _curve(axes: Axes, curve: pd.DataFrame, colour: str, marker: str) -> None:
    scale = PERCENT / curve["h_object_given_feature_bits"].to_numpy(float)
    x = curve["x"].to_numpy(float)

    def share(name: str) -> np.ndarray:
        return np.asarray(curve[name].to_numpy(float) * scale)

    bound = "conditional_binding_lower_bound_bits"
    axes.fill_between(
        x, share(f"{bound}_low"), share(f"{bound}_high"), facecolor=colour, alpha=0.2, lw=0,
        **hatched(rests_on_one(curve), colour),
    )  # fmt: skip
    axes.plot(x, share(bound), color=colour, marker=marker, markersize=3.5)
    final = (curve["layer"] == "final").to_numpy()
    axes.plot(
        x[final], share(bound)[final], color=colour, marker=marker, markersize=4.5,
        markerfacecolor="white", linestyle="none",
    )  # fmt: skip
    paper = share("conditional_binding_bits")
    axes.plot(x, paper, color=colour, linestyle=(0, (3, 1.5)), linewidth=1)


def _layer_ticks(bottom: Sequence[Axes], rows: pd.DataFrame) -> None:
    deepest = int(rows.loc[rows["layer"] != "final", "x"].max())
    step = max(1, -(-deepest // 8))
    for axes in bottom:
        axes.set_xticks(range(0, deepest + 1, step))
        axes.set_xlabel("layer")
