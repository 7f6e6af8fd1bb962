"""Figures of the binding ID paper in log-probabilities (arXiv 2505.22200, Fig. 3 and 5)."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.colors import BLUE, ORANGE
from bindscope.figures.facets import Look, crossed, heat_map, lines, wrapped
from bindscope.figures.figure import figure, some, table_of
from bindscope.figures.style import note_above
from bindscope.studies.binding_id.figures import MAPS, answer_map
from bindscope.studies.binding_id.names import PLURALS, label_role
from bindscope.studies.binding_id.schemas import BINDING_ID_SCHEMA
from bindscope.studies.binding_id.views import cells, few_models
from bindscope.tables.numbers import number
from bindscope.tables.rows import rows_with

MOST_MODELS = 4
_PER_ROW = 5  # maps
# Questions have colors; the answer that belongs to the object has a solid line.
_CURVES: dict[str, Look] = {
    f"asked for {label_role('O', role, 2)}, answer {label_role('I', item, 2)}": {
        "color": (BLUE, ORANGE)[role],
        "linestyle": "-" if role == item else (0, (3, 1.5)),
        "marker": "os"[role],
    }
    for role in (0, 1)
    for item in (0, 1)
}


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_log_probabilities(table: pd.DataFrame) -> Figure:
    """Mean log-probabilities of answers after activations were replaced (paper, Fig. 3).

    Ten maps per model, five in a row: questions by answers, expected cells framed.
    """
    replaced = some(cells(table, "factorizability"), "No activations were replaced.")
    rows, names, note = few_models(replaced, MOST_MODELS)
    present = {*zip(rows["groups"], rows["roles"], strict=True)}
    conditions = [condition for condition in MAPS if condition in present]
    padded = [*conditions, *[None] * (-len(conditions) % _PER_ROW)]
    keys = [condition and (name, *condition) for name in names for condition in padded]
    grid = wrapped(keys, _PER_ROW, (0.6, 1.25))
    for (name, groups, roles), axes in grid.panels.items():
        of_model = rows_with(rows, name=name)
        panel = rows_with(of_model, groups=groups, roles=roles)
        if panel.empty:
            axes.set_axis_off()
            continue
        values, framed = answer_map(panel, "mean_logprob")
        low, high = (float(of_model["mean_logprob"].agg(end)) for end in ("min", "max"))
        heat_map(
            axes,
            values,
            rows=list(values.index),
            columns=list(values.columns),
            numbers=partial(_number, middle=(low + high) / 2),
            number_size=5.5,
            framed=framed,
            vmin=low,
            vmax=high,
        )
        axes.set_title(MAPS[groups, roles].replace("\n", " "), fontsize=7, fontweight="normal")
        if axes in grid.left:
            axes.set_ylabel(name.replace(" (", "\n("), fontsize=7)
    note_above(grid.figure, note)
    return grid.figure


def _number(value: float, middle: float) -> tuple[str, str]:
    return number(value, ".1f"), "white" if value > middle else "black"


@figure(table_of(BINDING_ID_SCHEMA))
def binding_id_position_log_probabilities(table: pd.DataFrame) -> Figure:
    """Mean log-probabilities of answers by how far keys are moved (paper, Fig. 5).

    A row of panels per model and a panel per group: a curve per question and answer. Shifts are
    those of the released code, in tokens, where a suite has them.
    """
    moved = some(cells(table, "positions").dropna(subset=["dose"]), "No keys were moved.")
    rows, names, note = few_models(moved, MOST_MODELS)
    rows = rows.assign(curve="asked for " + rows["query"] + ", answer " + rows["candidate"])
    grid = crossed(names, PLURALS, (0.6, 1.75))
    for (name, group), axes in grid.panels.items():
        panel = rows_with(rows, name=name, groups=group)
        in_tokens = rows_with(panel, variant="tokens")
        panel = panel if in_tokens.empty else in_tokens
        lines(axes, panel, _CURVES, x="dose", y="mean_logprob", by="curve", band=0.15)
        axes.set_title(f"keys of {PLURALS[group]} moved", fontsize=7.5)
        unit = "fraction of the distance" if in_tokens.empty else "tokens"
        axes.set_xlabel(unit, fontsize=7.5)
    labels = [f"{name}\nlog-probability, nats".replace(" (", "\n(") for name in names]
    grid.label(y=labels, fontsize=7)
    note_above(grid.figure, note)
    return grid.legend(_CURVES, per_row=4)
