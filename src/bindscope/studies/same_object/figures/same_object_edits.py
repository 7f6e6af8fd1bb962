"""Edits of what a probe reads, and their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import AMBER, BLUE, GREEN, GREY, INK, PINK
from bindscope.figures.style import (
    handle,
    legend_below,
    new_figure,
    note_above,
    styled,
)
from bindscope.studies.same_object.effects.tables import ABLATION_SCHEMA, RETRAINED_SCHEMA
from bindscope.studies.same_object.views import (
    panels_of,
    read_shown,
    where_validation_is_best,
)

_SUBSPACES = {
    "beyond": ("probe, outside class and position", BLUE, "o"),
    "probe": ("all that the probe reads", INK, "X"),
    "random": ("random directions", GREY, "s"),
    "matched": ("random ones of as much variance", GREEN, "v"),
    "variance": ("directions of most variance, moved as far", AMBER, "^"),
    "mean": ("towards the mean token, moved as far", PINK, "D"),
}
_LOSS = "pretraining_loss_change"  # of other units and sizes from one objective to the next
_MEASURES = (
    ("auc_within", "AUC within images,\nsame layer, %", 100.0),
    ("later_auc_within", "AUC within images,\nlater layer, %", 100.0),
    ("object_share", "attention on the\nsame object, %", 100.0),
    ("divergence_bits", "attention's\ndivergence, bits", 1.0),
    (_LOSS, "own loss, bits more\nthan without an edit", 1.0),
)
_AGAIN: Final[dict[str, Any]] = {
    "color": INK,
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": "none",
}
_MAJORITY: Final[dict[str, Any]] = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.0}


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the tables."""
    found = {**read_shown(inputs, ABLATION_SCHEMA), "retrained": None}
    if inputs.of("retrained"):
        found["retrained"] = read_shown(inputs, RETRAINED_SCHEMA, "retrained")["table"]
    return found


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    return None if len(table) else "Nothing was edited."


@styled
def draw(
    table: pd.DataFrame,
    models: Sequence[str] = (),
    retrained: pd.DataFrame | None = None,
) -> Figure:
    """Draw every measure under every edit, a column of panels per model.

    Parameters
    ----------
    table, models, retrained
        As `read` returns them.
    """
    shown = _with_retrained(where_validation_is_best(table), retrained)
    panels = panels_of(shown, models, layers=True)
    measures = [m for m in _MEASURES if shown[m[0]].notna().any()]
    conditions = _conditions(shown)
    figure = new_figure(1.3 + 1.35 * len(measures))
    grid = figure.subplots(len(measures), len(panels), squeeze=False, sharex=True)
    for row, (name, _, _) in zip(grid, measures, strict=True):
        for axes in row[1:] if name != _LOSS else ():
            axes.sharey(row[0])
            axes.tick_params(labelleft=False)
    for i, (title, rows) in enumerate(panels):
        grid[0, i].set_title(title, fontsize=8)
        for axes, (name, _, scale) in zip(grid[:, i], measures, strict=True):
            _panel(axes, rows, name, scale, conditions)
        _named(grid[-1, i], conditions)
    for axes, (_, words, _) in zip(grid[:, 0], measures, strict=True):
        axes.set_ylabel(words, fontsize=7.5)
    used = [_SUBSPACES[name] for name in _SUBSPACES if (shown["subspace"] == name).any()]
    entries = [handle(name, color=c, marker=m, linestyle="none") for name, c, m in used]
    if "again_auc_within" in shown:
        entries.append(handle("hollow: probe fitted again", **_AGAIN, linestyle="none"))
    entries.append(handle("guess; without an edit", **_MAJORITY))
    legend_below(figure, entries, 3)
    if notes := _notes(shown):
        note_above(figure, " ".join(notes))
    return figure


def _with_retrained(shown: pd.DataFrame, retrained: pd.DataFrame | None) -> pd.DataFrame:
    """Add the areas of the edited probe after it was fitted again, here and later."""
    if retrained is None:
        return shown
    keys = ["dataset", "model", "probe", "layer", "edit", "strength", "subspace", "grid"]
    own = retrained[retrained["reader"] == retrained["probe"]]
    here = own["read_layer"] == own["layer"]
    for name, rows in (("again_auc_within", own[here]), ("again_later_auc_within", own[~here])):
        columns = {f"auc_within{end}": f"{name}{end}" for end in ("", "_low", "_high")}
        shown = shown.merge(rows[[*keys, *columns]].rename(columns=columns), "left", keys)
    return shown


def _notes(shown: pd.DataFrame) -> list[str]:
    """Return what is to be said of losses: where there is none, whose heads are not their own."""
    without = sorted(set(shown["pretraining_reason"]) - {""})
    notes = [f"No pretraining loss of some models: {'; '.join(without)}."] if without else []
    again = shown[shown["pretraining_heads"] == "refitted"].drop_duplicates("model")
    if len(again):
        each = [
            f"{row.model} {row.refitted_loss_bits:.2f} ({row.trained_loss_bits:.2f})"
            for row in again.itertuples()
        ]
        notes.append(
            "Own loss with heads that were fitted again; bits on validation, in brackets at the "
            f"end of training: {', '.join(each)}."
        )
    return notes


def _conditions(table: pd.DataFrame) -> list[tuple[str, float]]:
    """Return edits with their strengths, in order."""
    pairs = table[["edit", "strength"]].drop_duplicates().itertuples(index=False)
    order = ("none", "shuffle", "inject", "remove", "weights")
    return sorted(((str(e), float(s)) for e, s in pairs), key=lambda c: (order.index(c[0]), c[1]))


def _words(edit: str, strength: float) -> str:
    if edit == "shuffle":
        return f"shuffle {strength:.0%}"
    if edit == "inject":
        return f"inject \N{GREEK SMALL LETTER ALPHA} = {1 - strength:.2g}"
    return {"none": "original", "weights": "out of weights"}.get(edit, "remove")


def _named(axes: Axes, conditions: Sequence[tuple[str, float]]) -> None:
    axes.set_xticks(
        range(len(conditions)), [_words(*c) for c in conditions], rotation=60, fontsize=7,
        ha="right", rotation_mode="anchor",
    )  # fmt: skip


def _panel(
    axes: Axes, rows: pd.DataFrame, name: str, scale: float, conditions: list[tuple[str, float]]
) -> None:
    """Draw a measure of one model under all edits."""
    plain = scale * rows.loc[rows["edit"] == "none", name]
    plain = plain.fillna(0.0) if name == _LOSS else plain
    for value in plain.dropna():
        axes.axhline(value, **_MAJORITY)
    if name.endswith("auc_within"):
        axes.axhline(scale / 2, **_MAJORITY)
    axes.plot([0] * len(plain), plain, color=INK, marker="o", markersize=4)
    again = f"again_{name}"
    if again in rows:
        axes.plot(0.25, scale * rows.loc[rows["edit"] == "none", again].iloc[0], **_AGAIN)
    for i, (subspace, (_, colour, marker)) in enumerate(_SUBSPACES.items()):
        for _, row in rows[rows["subspace"] == subspace].iterrows():
            x = conditions.index((row["edit"], row["strength"])) + 0.14 * (i - 2.5)
            for column, filled in ((name, colour), (again, "none")):
                if column in rows:
                    ends = [scale * float(row[f"{column}{end}"]) for end in ("_low", "_high")]
                    axes.plot([x, x], ends, color=colour, linewidth=1)
                    axes.plot(
                        x, scale * float(row[column]), color=colour, marker=marker,
                        markerfacecolor=filled, markersize=3.5,
                    )  # fmt: skip
