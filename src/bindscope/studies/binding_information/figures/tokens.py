"""F1: what [CLS], the mean of the patches, and the patches hold (spec 1, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import GREY
from bindscope.figures.style import (
    PAPER_MARK,
    handle,
    lowest_panels,
    new_figure,
    note_above,
    reference_line,
    styled,
    values_along_x,
    zero_line,
)
from bindscope.studies.binding_information.figures.assumed import marked, rests_on_one
from bindscope.studies.binding_information.figures.bars import bar_legend, bound_bar
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.names import family_tick, tokens_shown
from bindscope.studies.binding_information.published import beside, read_papers_table, table_note
from bindscope.studies.binding_information.views import (
    family_order,
    last_layers,
    measured,
    name_order,
    over_seeds,
    token_order,
)

COLUMNS = 3
_BAR = 0.8


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    rows = over_seeds(last_layers(measured(table, known_answer=False)))
    return rows[rows["binding_bits"].notna() | rows["binding_lower_bound_bits"].notna()]


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, the models' order and the paper's numbers."""
    return {**read_binding(inputs), "published": read_papers_table(inputs)}


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return (
        None if len(_rows(table)) else "No model other than the known-answer encoders was measured."
    )


@styled
def draw(
    table: pd.DataFrame, published: pd.DataFrame | None = None, models: Sequence[str] = ()
) -> Figure:
    """Draw B_O in bits by model (panels), probe (rows) and token input (bars), last layer.

    Parameters
    ----------
    table, models
        As `read_binding` returns them.
    published
        The paper's numbers; drawn only where dataset, model, tokens and probe agree, otherwise
        quoted in words.

    Returns
    -------
    Figure
        Bars: the lower bound with its 95 % interval; diamonds: the paper's estimate; crosses: the
        paper's estimate of a probe with z = 0; stars: the paper's number.
    """
    rows = _rows(table)
    marks = beside(table, published) if published is not None else pd.DataFrame()
    panels = [
        (dataset, model)
        for dataset in sorted(rows["dataset"].unique())
        for model in name_order(rows.loc[rows["dataset"] == dataset, "model"], models)
    ]
    n_probes = rows.groupby(["dataset", "model"])["probe"].nunique()
    n_columns = min(COLUMNS, len(panels))
    lines = [panels[i : i + n_columns] for i in range(0, len(panels), n_columns)]
    most = [max(int(n_probes[panel]) for panel in line) for line in lines]
    heights = [0.75 + 0.34 * n for n in most]
    figure = new_figure(1.0 + sum(heights))
    grid = figure.subplots(
        len(lines), n_columns, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    several = rows["dataset"].nunique() > 1
    for i, (axes, (dataset, model)) in enumerate(zip(grid.flat, panels, strict=False)):
        part = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
        ticks = _ticks(part)
        _panel(axes, part, list(ticks))
        _paper_marks(axes, marks, dataset, model, part, list(ticks))
        axes.set_title(f"{model}\n{dataset}" if several else model, pad=14)
        entropy = marked("H(O)", rests_on_one(part))
        reference_line(axes, part["h_object_bits"].iloc[0], entropy, vertical=True)
        axes.set_yticks(range(len(ticks)), list(ticks.values()))
        axes.set_ylim(most[i // n_columns] - 0.4, -0.6)
    for axes in lowest_panels(grid, len(panels)):
        axes.set_xlabel("B_O, bits per scene")
    further = []
    if rows["null_loss_object_bits"].notna().any():
        further = [handle("same, probe without input", marker="x", color=GREY, linestyle="none")]
    inputs = map(tokens_shown, token_order(rows["tokens"]))
    bar_legend(figure, rows, inputs, further, marks)
    if published is not None:
        note_above(figure, table_note(published, marks, "binding_bits"))
    return figure


def _ticks(part: pd.DataFrame) -> dict[str, str]:
    """Return each probe's name under its row: its family's, or its own where several share that."""
    family_of = dict(zip(part["probe"], part["family"], strict=True))
    families = list(family_of.values())
    names = [
        sorted(probe for probe, of in family_of.items() if of == family)
        for family in family_order(families)
    ]
    return {
        probe: family_tick(family_of[probe]) if len(same) == 1 else probe
        for same in names
        for probe in same
    }


def _slots(part: pd.DataFrame, probe: str) -> dict[str, float]:
    """Offset of each token input's bar within its probe's row."""
    tokens = token_order(part.loc[part["probe"] == probe, "tokens"])
    height = _BAR / max(2, len(tokens))
    return {token: (i - (len(tokens) - 1) / 2) * height for i, token in enumerate(tokens)}


def _panel(axes: Axes, part: pd.DataFrame, probes: Sequence[str]) -> None:
    values_along_x(axes)
    zero_line(axes, vertical=True)
    for i, probe in enumerate(probes):
        slots = _slots(part, probe)
        row: Any
        for row in part[part["probe"] == probe].itertuples():
            y, height = i + slots[row.tokens], 0.9 * _BAR / max(2, len(slots))
            bound_bar(axes, row, y, height, tokens_shown(row.tokens).colour, "binding")
            without_input = row.h_object_bits - row.null_loss_object_bits
            axes.plot(without_input, y, "x", color=GREY, markersize=4, zorder=3)


def _paper_marks(
    axes: Axes,
    marks: pd.DataFrame,
    dataset: str,
    model: str,
    part: pd.DataFrame,
    probes: Sequence[str],
) -> None:
    if not len(marks):
        return
    here = marks[
        (marks["our_dataset"] == dataset)
        & (marks["our_model"] == model)
        & (marks["quantity"] == "binding_bits")
    ]
    row: Any
    for row in here.itertuples():
        y = probes.index(row.our_probe) + _slots(part, row.our_probe)[row.tokens]
        axes.plot(row.value, y, **PAPER_MARK)
