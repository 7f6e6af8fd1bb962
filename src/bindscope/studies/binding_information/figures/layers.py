"""F2: beta* by layer for each model and probe family (spec 1, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colours import INK
from bindscope.figures.style import (
    handle,
    legend_below,
    looks,
    lowest_panels,
    new_figure,
    reference_line,
    styled,
    zero_line,
)
from bindscope.studies.binding_information.figures.assumed import (
    assumed_entry,
    marked,
    rests_on_one,
)
from bindscope.studies.binding_information.figures.curves import (
    BOUND,
    Look,
    bound_curve,
    curve_entries,
    paper_curve,
    percent,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_shown, tokens_shown
from bindscope.studies.binding_information.views import (
    dataset_tokens,
    family_order,
    layer_places,
    measured,
    name_order,
    over_seeds,
    read_alike,
)

_CURVE = ["dataset", "model", "tokens", "probe"]
_COLUMNS = 4
_SHOW_WHOLE_FROM = 50.0  # per cent; below, the line at 100 would press the curves together


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of curves with at least two layers, with `x`: the layer's place."""
    rows = over_seeds(read_alike(measured(table, known_answer=False)))
    rows = rows[rows[BOUND].notna()]
    n_layers = rows.groupby(_CURVE)["layer"].transform("nunique") if len(rows) else rows["layer"]
    rows = rows[n_layers > 1] if len(rows) else rows
    return rows.assign(x=layer_places(rows)).sort_values([*_CURVE, "x"], kind="stable")


read = read_binding


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(_rows(table)) else "No model was measured at more than one layer."


@styled
def draw(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Draw beta* by layer.

    Parameters
    ----------
    table, models
        As `read_binding` returns them.

    Returns
    -------
    Figure
        A panel per dataset, token input and probe family. Solid lines: the
        lower bound over H(O|F) with its 95 % interval as a band; dashed: the paper's estimate.
        Means over probe seeds.
    """
    rows = _rows(table)
    look = looks(name_order(rows["model"], models))
    panels = [
        (dataset, token, family)
        for dataset, token in dataset_tokens(rows)
        for family in family_order(_of(rows, dataset, token)["family"])
    ]
    columns = min(_COLUMNS, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = new_figure(0.9 + 1.9 * n_rows)
    grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
    several = rows["dataset"].nunique() > 1
    for axes, (dataset, token, family) in zip(grid.flat, panels, strict=False):
        part = _of(rows, dataset, token)
        part = part[part["family"] == family]
        for (model, _), curve in part.groupby(["model", "probe"], sort=False):
            _curve(axes, curve, look[str(model)])
        zero_line(axes)
        name = f"{tokens_shown(token).name}, {family_shown(family).name}"
        head = f"{dataset}\n{name}" if several else name
        axes.set_title(marked(head, rests_on_one(part)), fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("β*, % of H(O|F)")
    if grid[0, 0].get_ylim()[1] >= _SHOW_WHOLE_FROM:
        for axes in list(grid.flat)[: len(panels)]:
            entropy = marked("H(O|F)", rests_on_one(rows))
            reference_line(axes, 100.0, entropy if axes in grid[:, -1] else "")
    _layer_ticks(lowest_panels(grid, len(panels)), rows)
    entries = curve_entries(look, rows)
    if (rows["layer"] == "final").any():
        open_mark = {"marker": "o", "markerfacecolor": "white", "linestyle": "none"}
        entries.append(handle("after the last norm", color=INK, **open_mark))
    legend_below(figure, [*entries, *assumed_entry(rows)])
    return figure


def _of(rows: pd.DataFrame, dataset: str, token: str) -> pd.DataFrame:
    return rows[(rows["dataset"] == dataset) & (rows["tokens"] == token)]


def _curve(axes: Axes, curve: pd.DataFrame, look: Look) -> None:
    scale = percent(curve)
    bound_curve(axes, curve, scale, {**look, "markersize": 3.5})
    final = (curve["layer"] == "final").to_numpy()
    shares = curve[BOUND].to_numpy(float) * scale
    axes.plot(
        curve["x"].to_numpy(float)[final], shares[final], **look, markersize=4.5,
        markerfacecolor="white", linestyle="none",
    )  # fmt: skip
    paper_curve(axes, curve, scale, look)


def _layer_ticks(bottom: Sequence[Axes], rows: pd.DataFrame) -> None:
    deepest = int(rows.loc[rows["layer"] != "final", "x"].max())
    step = max(1, -(-deepest // 8))
    for axes in bottom:
        axes.set_xticks(range(0, deepest + 1, step))
        axes.set_xlabel("layer")
