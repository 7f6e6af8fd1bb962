"""How many directions tell same from different: accuracy by rank, and the form's spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from safetensors import safe_open

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import handle, legend_below, looks, new_figure, styled
from bindscope.studies.same_object.marks import weights_name
from bindscope.studies.same_object.schemas import SAME_OBJECT_SCHEMA
from bindscope.studies.same_object.views import (
    best_layers,
    fitted,
    over_models,
    read_shown,
    with_layer_places,
)

Spectra = Mapping[tuple[str, str, str], NDArray[np.float32]]
_CURVE = ["dataset", "group"]


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, and the eigenvalues of every quadratic form by dataset, model and layer."""
    spectra = {}
    for given in inputs.of("fits"):
        with safe_open(given.files["weights"], "numpy") as weights:
            for layer in given.names["layers"].split("-"):
                name = f"{weights_name(layer, 0, 0)}.eigenvalues"
                place = (given.names["dataset"], given.names["model"], layer)
                spectra[place] = weights.get_tensor(name)
    return {**read_shown(inputs, SAME_OBJECT_SCHEMA), "spectra": spectra}


def _ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Return truncated forms at the layer that validation prefers for the quadratic probe."""
    best = best_layers(fitted(table))
    rows = with_layer_places(table[table["rank"] > 0])
    rows = rows.merge(best, on=["dataset", "group", "layer"])
    return over_models(rows, [*_CURVE, "layer", "probe", "rank"])


def available(table: pd.DataFrame, **_: object) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if len(_ranks(table)):
        return None
    return "No quadratic probe has `ranks`, so that no truncated form was measured."


@styled
def draw(table: pd.DataFrame, spectra: Spectra, models: Sequence[str] = ()) -> Figure:
    """Draw accuracy by rank with that of full rank, and the sizes of the eigenvalues.

    Parameters
    ----------
    table, spectra, models
        As `read` returns them.
    """
    ranks, rows = _ranks(table), fitted(table)
    best = best_layers(rows)
    full = over_models(
        rows[rows["family"] == "quadratic"].merge(best, on=["dataset", "group", "layer"]),
        [*_CURVE, "layer"],
    )
    shown = list(dict.fromkeys(zip(ranks["dataset"], ranks["group"], strict=True)))
    several = len({dataset for dataset, _ in shown}) > 1
    labels = {place: f"{place[1]}, {place[0]}" if several else place[1] for place in shown}
    look = looks(list(labels.values()))
    figure = new_figure(2.9)
    left, right = figure.subplots(1, 2)
    for (dataset, group), label in labels.items():
        curve = ranks[(ranks["dataset"] == dataset) & (ranks["group"] == group)]
        curve = curve.sort_values("rank")
        left.plot(curve["rank"], 100 * curve["accuracy"], **look[label], markersize=3.5)
        here = full[(full["dataset"] == dataset) & (full["group"] == group)]
        left.axhline(
            100 * here["accuracy"].mean(), color=look[label]["color"], linestyle=(0, (4, 2)),
            linewidth=0.9,
        )  # fmt: skip
        member = rows[(rows["dataset"] == dataset) & (rows["group"] == group)]["model"].iloc[0]
        values = spectra.get((dataset, member, str(here["layer"].iloc[0])))
        if values is not None:
            sizes = np.abs(values)
            right.plot(np.arange(1, len(sizes) + 1), sizes, color=look[label]["color"])
            negative = values < 0
            right.plot(
                np.flatnonzero(negative) + 1, sizes[negative], "x", color=look[label]["color"],
                markersize=3,
            )  # fmt: skip
    left.set_xscale("log", base=2)
    left.set_xlabel("rank of the form")
    left.set_ylabel("accuracy, %")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xlabel("eigenvalue, by size")
    right.set_ylabel("|eigenvalue|")
    entries = [handle(label, **look[label], markersize=4) for label in labels.values()]
    entries.append(handle("full rank", color="#444444", linestyle=(0, (4, 2)), linewidth=0.9))
    entries.append(handle("negative", color="#444444", marker="x", linestyle="none", markersize=4))
    legend_below(figure, entries, 5)
    return figure
