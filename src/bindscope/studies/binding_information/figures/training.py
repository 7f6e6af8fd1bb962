"""F9: training curves of the controlled models and of the probes (spec 1, section 5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bindscope.core.interfaces import Given, Inputs
from bindscope.figures.colours import INK
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.binding_information.names import family_tick, tokens_shown
from bindscope.studies.binding_information.rules import family_of
from bindscope.studies.binding_information.views import (
    family_order,
    home_of,
    name_order,
    protocol_family,
    shown_models,
    token_order,
)
from bindscope.tables.rows import read_rows

Rows = Sequence[Mapping[str, Any]]
TARGET_NAMES = {
    "object": "O, the paper's probe",
    "chained": "F, counts, O: chained, anchored",
}
_DASHES = {"mean": (0, (4, 1.5)), "cls_mean": (0, (1, 1))}  # by token input; others are solid


class ProbeHistory(NamedTuple):
    """The history of one fit: rows `{seed, target, step, split, loss_bits}`.

    `model` is the group's name of models that differ in their seed alone.
    """

    model: str
    tokens: str
    family: str
    rows: Rows


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the histories of models and of fits."""
    home = home_of(inputs.content["model_groups"])
    probes = []
    for fit in inputs.of("fits"):
        row = read_rows(fit)[0]
        family = protocol_family(family_of(row["options"]), row["protocol"])
        model = fit.names["model"]
        names = home.get(model, model), fit.names["tokens"]
        probes.append(ProbeHistory(*names, family, _history(fit)))
    models = {given.names["model"]: _history(given) for given in inputs.of("training")}
    order = shown_models(inputs.content["models"], inputs.content["model_groups"])
    return {"models": models, "probes": probes, "order": order, "home": home}


def _history(given: Given) -> Rows:
    rows: Rows = json.loads(Path(given.files["history"]).read_text())
    return rows


def available(
    models: Mapping[str, Rows], probes: Sequence[ProbeHistory], **_: object
) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not any(map(len, models.values())) and not any(len(probe.rows) for probe in probes):
        return "No training history was given."
    return None


@styled
def draw(
    models: Mapping[str, Rows],
    probes: Sequence[ProbeHistory],
    order: Sequence[str] = (),
    home: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """Draw training curves.

    Parameters
    ----------
    models
        Per controlled model its history: `{step, split, loss_bits}`.
    probes
        Histories of fits.
    order
        Names of models and groups in the configuration's order.
    home
        Per model that is in a group the group's name; a group has one colour.

    Returns
    -------
    Figure
        First row: models; thin lines are the training loss, thick ones the validation loss. Below:
        a row per target and a column per probe family that has it, validation loss only, one
        line per model and token input (attention reads patches).
    """
    probes = [probe for probe in probes if probe.rows]
    models = {name: rows for name, rows in models.items() if rows}
    trained = [home.get(name, name) for name in models]
    names = name_order([*trained, *(probe.model for probe in probes)], order)
    colour = {name: look["color"] for name, look in looks(names).items()}
    families = family_order([probe.family for probe in probes])
    targets = [t for t in TARGET_NAMES if any(_of(p, t).size for p in probes)]
    n_rows = bool(models) + len(targets)
    figure = new_figure(0.9 + 1.75 * n_rows)
    parts = figure.subfigures(n_rows, 1, squeeze=False)[:, 0]
    if models:
        _models(parts[0].subplots(), models, {n: colour[home.get(n, n)] for n in models})
    untitled = set(families)
    for part, target in zip(parts[bool(models) :], targets, strict=True):
        drawn = [probe for probe in probes if _of(probe, target).size]
        shown = [family for family in families if family in {probe.family for probe in drawn}]
        row = dict(zip(families, part.subplots(1, len(families), sharey=True, squeeze=False)[0],
                       strict=True))  # fmt: skip
        for probe in drawn:
            _probe(row[probe.family], probe, target, colour[probe.model])
        for family, axes in row.items():
            _dress(axes, family_tick(family) if family in untitled else "", family in shown)
        untitled -= set(shown)
        first = row[shown[0]]
        first.tick_params(labelleft=True)
        first.set_ylabel(f"{TARGET_NAMES[target]}\nloss, bits per scene", fontsize=7.5)
    entries = [handle(name, color=colour[name]) for name in names]
    for token in token_order(probe.tokens for probe in probes if probe.tokens != "patches"):
        dashes = _DASHES.get(token, "-")
        entries.append(handle(tokens_shown(token).name, color=INK, linestyle=dashes, linewidth=1))
    legend_below(figure, entries, 6)
    return figure


def _dress(axes: Axes, title: str, drawn: bool) -> None:
    """Name a panel and its axis; one without lines is not shown."""
    if not drawn:
        axes.set_axis_off()
        return
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))


def _of(probe: ProbeHistory, target: str) -> pd.DataFrame:
    """Return one target's validation rows."""
    rows = pd.DataFrame(list(probe.rows))
    return rows[(rows["target"] == target) & (rows["split"] == "val")]


def _models(axes: Axes, models: Mapping[str, Rows], colour: Mapping[str, str]) -> None:
    for name, rows in models.items():
        frame = pd.DataFrame(list(rows))
        for split, width, alpha in (("train", 0.7, 0.6), ("val", 1.7, 1.0)):
            curve = frame[frame["split"] == split]
            axes.plot(
                curve["step"], curve["loss_bits"], color=colour[name], linewidth=width, alpha=alpha
            )
    axes.set_title("models: training loss (thin) and validation loss (thick)")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylabel("loss of the objective,\nbits per scene", fontsize=7.5)
    axes.set_ylim(bottom=0)


def _probe(axes: Axes, probe: ProbeHistory, target: str, colour: str) -> None:
    dashes = _DASHES.get(probe.tokens, "-")
    for _, curve in _of(probe, target).groupby("seed", sort=True):
        axes.plot(curve["step"], curve["loss_bits"], color=colour, linestyle=dashes, linewidth=1.0)
