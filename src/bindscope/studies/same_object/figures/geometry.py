"""What scores and tokens are like, by layer and across layers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.facets import facets, heat_map, wrapped
from bindscope.figures.figure import figure, some
from bindscope.figures.style import looks
from bindscope.studies.same_object.tables import GEOMETRY_SCHEMA
from bindscope.studies.same_object.views import over_seeds, panels_of, read_grouped

_read = partial(read_grouped, schema=GEOMETRY_SCHEMA)
_SERIES = ("group", "dataset", "probe")


class _Panel(NamedTuple):
    """A panel; its lines are quantities and their `at`."""

    label: str
    lines: tuple[tuple[str, str], ...]
    key: str = ""


_PANELS = {
    "Place": _Panel("R² of row and column", (("position_r2", ""),)),
    "Copies minus originals": _Panel(
        "named right, share",
        (("residual_separability", ""), ("residual_separability_shuffled", ""),
         ("residual_chance", "")),
        "\n(dashed: shuffled; dotted: chance)",
    ),
    "Identical objects": _Panel(
        "decoded probability",
        tuple(("cross_score", at) for at in ("object", "copy", "class", "other")),
        "\n(dashed: copy; dotted: class;\n-.: others)",
    ),
}  # fmt: skip
_DASHES = ((0, (4, 1.5)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))  # of the lines after the first


@figure(_read)
def same_object_geometry(table: pd.DataFrame, models: list[str]) -> Figure:
    """Position decodability, residuals of copies and scores of identical objects, by layer."""
    some(table[table["value"].notna()], "Nothing was measured.")
    rows = over_seeds(table)
    groups = panels_of(rows, models, _SERIES, ", ")
    look = looks([*groups])
    lines = pd.DataFrame(
        [
            (*line, title, i)
            for title, panel in _PANELS.items()
            for i, line in enumerate(panel.lines)
        ],
        columns=["quantity", "at", "panel", "place"],
    )
    tidy = pd.concat(group.assign(line=name) for name, group in groups.items())
    tidy = tidy.merge(lines, on=["quantity", "at"])
    grid = wrapped(_PANELS, len(_PANELS), (0, 3.1))
    first = tidy["place"] == 0
    facets(tidy[first], look, grid, "panel", band=0.15, markersize=3.5)
    for i, dashes in enumerate(_DASHES, start=1):
        facets(tidy[tidy["place"] == i], look, grid, "panel", linestyle=dashes, marker=None)
    ticks = rows.drop_duplicates("layer").sort_values("x")
    for title, axes in grid.panels.items():
        axes.set(title=title, ylabel=_PANELS[title].label, xlabel=f"layer{_PANELS[title].key}")
        axes.set_xticks(ticks["x"], ticks["layer"])
        if not axes.has_data():
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
    return grid.legend({name: {**style, "markersize": 4} for name, style in look.items()},
                       per_row=4)  # fmt: skip


_MOST_MODELS = 4


@figure(_read)
def same_object_cross_layers(table: pd.DataFrame, models: list[str]) -> Figure:
    """Areas within images of the probe of one layer on the tokens of another."""
    every = over_seeds(table)
    rows = every[every["quantity"] == "transfer_auc"]
    some(rows[rows["layer"] != rows["at"]], "No model was read in two layers.")
    transferred = {
        name: points
        for name, points in panels_of(rows, models, _SERIES, ", ").items()
        if (points["layer"] != points["at"]).any()
    }
    names = [*list(transferred)[:_MOST_MODELS], *([""] if len(transferred) < 2 else [])]
    grid = wrapped(names, len(names), (0.4, 2.1))
    for name, axes in grid.panels.items():
        if not name:
            axes.set_axis_off()
            continue
        points = transferred[name]
        layers = points.drop_duplicates("layer").sort_values("x")["layer"].tolist()
        cells = points.pivot_table(index="layer", columns="at", values="value")
        drawn = heat_map(
            axes, cells.reindex(index=layers, columns=layers), rows=layers, columns=layers, size=8,
            cmap="viridis", vmin=0.5, aspect="equal", number_size=6.5,
            numbers=lambda value: (f"{value:.2f}", "black" if value > 0.8 else "white"),
        )  # fmt: skip
        axes.set(ylabel="probe of layer", xlabel="on tokens of layer", title=name)
    grid.figure.colorbar(drawn, ax=[*grid.panels.values()], shrink=0.6, aspect=30,
                         label="area under ROC within images")  # fmt: skip
    return grid.figure
