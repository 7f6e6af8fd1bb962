"""F4: binding against how much of the objects is hidden (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.curves import bound_curve, entries, panels, percent, swept
from bindscope.figures.style import (
    FAMILY_NAMES,
    TOKEN_NAMES,
    colours,
    legend_below,
    markers,
    new_figure,
    styled,
)
from bindscope.tables.views import name_order


def _heights(statistics: pd.DataFrame) -> dict[str, float]:
    """Camera height per dataset, where its test scenes were measured."""
    test = statistics[statistics["split"] == "test"]
    return dict(zip(test["dataset"], test["camera_height"], strict=True))


def available(table: pd.DataFrame, statistics: pd.DataFrame) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not len(swept(table, _heights(statistics))):
        return "No model was measured at two camera heights or more."
    return None


def statement(trends: pd.DataFrame | None) -> str:
    """Say what the paper reports; its text names no model, so no mark is put beside ours."""
    if trends is None:
        return ""
    rows = trends[(trends["study"] == "occlusion") & trends["value"].notna()]
    told = [
        f"{100 * value:.1f} % at {axis} {where}"
        for axis, where, value in rows[["axis", "axis_value", "value"]].to_numpy().tolist()
    ]
    return f"The paper (occlusion_clevr, model not named): beta* {', '.join(told)}." if told else ""


@styled
def draw(
    table: pd.DataFrame,
    statistics: pd.DataFrame,
    trends: pd.DataFrame | None = None,
    models: Sequence[str] = (),
) -> Figure:
    """Draw beta* against the camera's height and against the measured occlusion.

    Parameters
    ----------
    table
        `binding_information`.
    statistics
        `scene_statistics`.
    trends
        The papers' trends, `resources/published/trends.csv`.
    models
        Order of the models, the configuration's.

    Returns
    -------
    Figure
        A row per token input and probe family. Left: against camera height; right: the same
        values against the mean hidden share of an object in the test scenes. Solid: the lower
        bound with its 95 % interval; dashed: the paper's estimate.
    """
    rows = swept(table, _heights(statistics))
    test = statistics[statistics["split"] == "test"].set_index("dataset")
    rows["hidden"] = 100.0 * rows["dataset"].map(test["mean_occlusion"]).astype(float)
    names = name_order(rows["model"], models)
    colour, marker = colours(names), markers(names)
    parts = panels(rows)
    figure = new_figure(1.2 + 1.9 * len(parts))
    grid = figure.subplots(len(parts), 2, sharex="col", sharey="row", squeeze=False)
    for pair, (token, family, part) in zip(grid, parts, strict=True):
        for axes, x in zip(pair, ("x", "hidden"), strict=True):
            for (model, _), curve in part.groupby(["model", "probe"], sort=False):
                ordered = curve.sort_values(x, kind="stable")
                look = (colour[str(model)], marker[str(model)])
                bound_curve(axes, ordered, percent(ordered), *look, x=x)
            axes.axhline(0, color="#666666", linewidth=0.7)
        pair[0].set_ylabel(f"{TOKEN_NAMES[token]}, {FAMILY_NAMES[family]}\n$\\beta^*$, %")
    grid[-1][0].set_xlabel("camera height, scene units")
    grid[-1][1].set_xlabel("hidden share of an object, mean, %")
    legend_below(figure, entries(names, colour, marker), 4)
    figure.suptitle(statement(trends), fontsize=7.5, x=0.01, ha="left", color="#444444")
    return figure
