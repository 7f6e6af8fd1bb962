"""Attention beside the probe, and edits of what the probe reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.colours import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PINK
from bindscope.figures.facets import Look, crossed, facets, stacked
from bindscope.figures.figure import figure, some
from bindscope.figures.style import handle, note_above, zero_line
from bindscope.studies.same_object.effects.tables import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
    RETRAINED_SCHEMA,
)
from bindscope.studies.same_object.marks import MEAN_HEAD
from bindscope.studies.same_object.views import (
    panels_of,
    read_shown,
    where_validation_is_best,
)

_CORRELATIONS: Final[dict[str, tuple[str, Look]]] = {
    "Pearson": ("pearson", {"color": BLUE, "marker": "o"}),
    "Spearman": ("spearman", {"color": GREEN, "marker": "s"}),
    "with the labels, given class, distance, cosine":
        ("beyond_rivals", {"color": ORANGE, "marker": "^"}),
}  # fmt: skip
_HEADS: Final[dict[str, Look]] = {
    "Pearson, single heads": {"color": BLUE, "marker": ".", "linestyle": "none", "alpha": 0.4,
                              "markersize": 4},
}  # fmt: skip
_SHARE: Final[dict[str, Look]] = {"share on the same object": {"color": INK, "marker": "o"}}
_UNIFORM: Final[dict[str, Look]] = {
    "attention to all alike": {"color": GREY, "linestyle": (0, (3, 1.5))}
}


@figure(partial(read_shown, schema=ATTENTION_SCHEMA))
def same_object_attention(table: pd.DataFrame, models: Sequence[str] = ()) -> Figure:
    """Whether attention goes where a probe predicts the same object.

    Correlations and shares on the same object by layer, a column of panels per model.
    """
    some(table[table["pearson"].notna()], "Attention or scores do not vary anywhere.")
    panels = dict(panels_of(table, models))
    rows = pd.concat(rows.assign(panel=title) for title, rows in panels.items())
    rows["x"] = rows["layer"].astype(float)
    heads = rows["head"] != MEAN_HEAD
    correlations = {name: look for name, (_, look) in _CORRELATIONS.items()}
    columns = {name: column for name, (column, _) in _CORRELATIONS.items()}
    grid = crossed(("correlation", "share"), panels, (0, 2.3), sharey="row")
    where = ("row", "panel")
    single, mean = (own.assign(row="correlation") for own in (rows[heads], rows[~heads]))
    facets(stacked(single, dict.fromkeys(_HEADS, "pearson")), _HEADS, grid, where)
    facets(stacked(mean, columns), correlations, grid, where, band=0.15)
    shares = mean.assign(row="share")
    facets(stacked(shares, dict.fromkeys(_SHARE, "object_share")), _SHARE, grid, where,
           band=0.15, scale=100)  # fmt: skip
    facets(stacked(shares, dict.fromkeys(_UNIFORM, "uniform_share")), _UNIFORM, grid, where,
           scale=100)  # fmt: skip
    for (row, title), axes in grid.panels.items():
        if row == "correlation":
            zero_line(axes)
            axes.set_title(title, fontsize=8)
        ticks = mean[mean["panel"] == title].sort_values("x")
        axes.set_xticks(ticks["x"], ticks["layer"])
    grid.label("layer that the probe reads", (
        "correlation of attention and\nprobe over pairs of patches",
        "share of attention on\nthe same object, %",
    ))  # fmt: skip
    return grid.legend({**correlations, **_HEADS, **_SHARE, **_UNIFORM}, per_row=3)


_SUBSPACES = {
    "beyond": ("probe, outside class and position", BLUE, "o"),
    "probe": ("all that the probe reads", INK, "X"),
    "random": ("random directions", GREY, "s"),
    "matched": ("random ones of as much variance", GREEN, "v"),
    "variance": ("directions of most variance, moved as far", AMBER, "^"),
    "mean": ("towards the mean token, moved as far", PINK, "D"),
}
_LOSS = "pretraining_loss_change"  # of other units and sizes from one objective to the next
_MEASURES = {
    "auc_within": ("AUC within images,\nsame layer, %", 100.0),
    "later_auc_within": ("AUC within images,\nlater layer, %", 100.0),
    "object_share": ("attention on the\nsame object, %", 100.0),
    "divergence_bits": ("attention's\ndivergence, bits", 1.0),
    _LOSS: ("own loss, bits more\nthan without an edit", 1.0),
}
_AGAIN: Final[dict[str, Any]] = {
    "color": INK, "marker": "o", "markersize": 4, "markerfacecolor": "none",
}  # fmt: skip
_MAJORITY: Final[dict[str, Any]] = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.0}
Condition = tuple[str, float]


def _read_edits(inputs: Inputs) -> dict[str, Any]:
    """Read the tables."""
    found = {**read_shown(inputs, ABLATION_SCHEMA), "retrained": None}
    if inputs.of("retrained"):
        found["retrained"] = read_shown(inputs, RETRAINED_SCHEMA, "retrained")["table"]
    return found


@figure(_read_edits)
def same_object_edits(
    table: pd.DataFrame,
    models: Sequence[str] = (),
    retrained: pd.DataFrame | None = None,
) -> Figure:
    """Edits of what a probe reads, and their controls: a column of panels per model."""
    best = where_validation_is_best(some(table, "Nothing was edited."))
    shown = _with_retrained(best, retrained)
    panels = dict(panels_of(shown, models, layers=True))
    measures = [name for name in _MEASURES if shown[name].notna().any()]
    conditions = _conditions(shown)
    grid = crossed(measures, panels, (1.3, 1.35), sharex=True)
    for (name, title), axes in grid.panels.items():
        if name != _LOSS and axes not in grid.left:
            axes.sharey(grid.left[measures.index(name)])
            axes.tick_params(labelleft=False)
        _edited(axes, panels[title], name, conditions)
        if name == measures[0]:
            axes.set_title(title, fontsize=8)
    for axes in grid.bottom:
        axes.set_xticks(
            range(len(conditions)), [_words(*one) for one in conditions], rotation=60, fontsize=7,
            ha="right", rotation_mode="anchor",
        )  # fmt: skip
    grid.label(y=[_MEASURES[name][0] for name in measures], fontsize=7.5)
    used = [_SUBSPACES[name] for name in _SUBSPACES if (shown["subspace"] == name).any()]
    entries = {name: {"color": c, "marker": m, "linestyle": "none"} for name, c, m in used}
    if "again_auc_within" in shown:
        entries["hollow: probe fitted again"] = {**_AGAIN, "linestyle": "none"}
    grid.legend(entries, handle("guess; without an edit", **_MAJORITY), per_row=3)
    if notes := _notes(shown):
        note_above(grid.figure, " ".join(notes))
    return grid.figure


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


def _conditions(table: pd.DataFrame) -> list[Condition]:
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


def _edited(axes: Axes, rows: pd.DataFrame, name: str, conditions: list[Condition]) -> None:
    """Draw a measure of one model under all edits."""
    scale, again = _MEASURES[name][1], f"again_{name}"
    plain = scale * rows.loc[rows["edit"] == "none", name]
    plain = plain.fillna(0.0) if name == _LOSS else plain
    for value in plain.dropna():
        axes.axhline(value, **_MAJORITY)
    if name.endswith("auc_within"):
        axes.axhline(scale / 2, **_MAJORITY)
    axes.plot([0] * len(plain), plain, color=INK, marker="o", markersize=4)
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
