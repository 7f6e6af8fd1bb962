"""What can be read beside what is used, and each model's numbers of two studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.figures.colors import GREY, PALETTE
from bindscope.figures.facets import Look, facets, stacked, wrapped
from bindscope.figures.figure import figure, some, table_of
from bindscope.figures.style import handle, looks, reference_line, zero_line
from bindscope.studies.together.claims import CHANGED, READABLE, correlation, groups_of, judged
from bindscope.studies.together.tables import CONNECTED, IMAGES, PAIRING_USE_SCHEMA, SCHEMA
from bindscope.studies.together.views import BITS, LEAD, over_groups, points
from bindscope.tables.rows import ENDS


@figure(table_of(SCHEMA))
def together(table: pd.DataFrame) -> Figure:
    """Each model's bits of what goes with what in [CLS] against IsSameObject of its patches.

    A point per model, and the mean of each group with its intervals; a panel per dataset.
    """
    model_points = some(points(table), "No model has a number of both studies.")
    look = looks(list(dict.fromkeys(model_points["group"])))
    verdicts = {judgment.effect.where: judgment for judgment in judged(model_points)}
    grid = wrapped(verdicts, 2, (1.0, 2.9))
    for dataset, axes in grid.panels.items():
        _points(axes, model_points[model_points["dataset"] == dataset], look)
        judgment = verdicts[dataset]
        title = f"rank correlation {correlation(judgment)}, {groups_of(judgment)}"
        axes.set_title(f"{dataset}: {title}: {judgment.verdict}", pad=14)
    grid.label(y="IsSameObject: ahead of\npositions alone, points")
    grid.label("pairing decoded from [CLS], at least, bits per scene")
    marks = {name: {**style, "linestyle": "none"} for name, style in look.items()}
    single = handle("one model", marker="o", color=GREY, linestyle="none", markersize=2.5)
    return grid.legend(marks, single, per_row=4)


def _points(axes: Axes, part: pd.DataFrame, look: Mapping[str, Look]) -> None:
    """Draw models small, groups large, and what no model can be beyond."""
    small: dict[str, Any] = {"linestyle": "none", "markersize": 2.5, "alpha": 0.6}
    large: dict[str, Any] = {"linestyle": "none", "markersize": 6.5, "markeredgecolor": "white"}
    for _, row in part.iterrows():
        axes.plot(row[BITS], 100 * row[LEAD], **look[str(row["group"])], **small)
    for _, row in over_groups(part).iterrows():
        style = look[str(row["group"])]
        x = [float(row[f"{BITS}{end}"]) for end in ENDS]
        y = [100 * float(row[f"{LEAD}{end}"]) for end in ENDS]
        axes.plot(x[1:], [y[0], y[0]], color=style["color"], linewidth=1)
        axes.plot([x[0], x[0]], y[1:], color=style["color"], linewidth=1)
        axes.plot(x[0], y[0], **style, **large)
    zero_line(axes)
    zero_line(axes, vertical=True)
    reference_line(axes, part["pairing_entropy_bits"].iloc[0], "entropy", vertical=True)
    # The rival is one for all models, so that what is above it is too.
    rival = (part["same_object_accuracy"] - part[LEAD]).mean()
    reference_line(axes, 100 * (1 - rival), "all\npairs")


# How much can be read, and what is used from a layer on, and at it alone: legend, column, look.
_LINES: Final[dict[str, tuple[str, Look]]] = {
    "decoded, at least": ("share", {"color": PALETTE[0], "marker": "o"}),
    "used from this layer on, by text or question": (
        "anew_from",
        {"color": PALETTE[1], "marker": "s"},
    ),
    "used from this layer on, by the question": (
        "frozen_from",
        {"color": PALETTE[2], "marker": "^"},
    ),
    "used at this layer, by the question": (
        "frozen_at",
        {"color": PALETTE[2], "marker": "^", "linestyle": "none", "markerfacecolor": "none"},
    ),
}


def _mark(layer: int, depth: int) -> str:
    """Name a layer in few letters; `tables.place_of` does it in full."""
    return {IMAGES: "tower", depth: "end"}.get(layer, str(layer - CONNECTED))


@figure(table_of(PAIRING_USE_SCHEMA))
def pairing_use(table: pd.DataFrame) -> Figure:
    """Layer by layer of a toy: how much of what goes with what can be read, and what is used.

    A panel per toy, task and suite; bits as a share of all that there is.
    """
    some(table, "No layer of a toy was both read and asked.")
    names = table["model"] + " (toy)"
    for key in ("dataset", "suite", "task"):
        if table[key].nunique() > 1:
            names = names + "\n" + table[key]
    rows = table.assign(panel=names).sort_values("layer")
    rows["x"] = rows.groupby("panel").cumcount()
    for end in ENDS:
        rows[f"share{end}"] = rows[f"patches_pairing_bits{end}"] / rows["pairing_entropy_bits"]
    grid = wrapped(dict.fromkeys(names), 3, (0.9, 2.2), sharey=True)
    for axes in grid.panels.values():
        for height in (READABLE, CHANGED):
            axes.axhline(100 * height, color=GREY, linewidth=0.6, linestyle=":")
    look = {}
    for i, (words, (column, style)) in enumerate(_LINES.items()):
        if rows[column].notna().any() or i == 0:
            look[words] = style
        tidy = stacked(rows, {words: column})
        tidy["x"] += 0.08 * i
        facets(tidy, {words: style}, grid, "panel", scale=100, bars=0.9, linewidth=1, markersize=4)
    for panel, axes in grid.panels.items():
        layers = rows.loc[rows["panel"] == panel, ["layer", "depth"]].astype(int)
        axes.set_xticks(range(len(layers)), [_mark(*pair) for pair in layers.to_numpy().tolist()])
        axes.set_xlabel("tower; input of decoder layer; output of the last (end)", fontsize=7.5)
        axes.set_ylim(-8, 108)
        axes.set_title(panel)
    grid.label(y="% of H(O|M), or of answers", fontsize=7.5)
    return grid.legend(look, per_row=2)
