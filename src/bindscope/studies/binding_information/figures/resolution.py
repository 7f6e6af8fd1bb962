"""F6: binding against the side of the input image, the same scenes (spec 1, section 5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bindscope.core.interfaces import Inputs
from bindscope.figures.style import styled
from bindscope.studies.binding_information.figures.curves import (
    curve_rows,
    draw_curves,
    with_several,
)
from bindscope.studies.binding_information.figures.reading import read_binding
from bindscope.studies.binding_information.published import read_trends, trend_of

STUDY = "resolution"
Families = Mapping[str, Sequence[str]]
InputPx = Mapping[tuple[str, str], int]


def _rows(table: pd.DataFrame, families: Families, input_px: InputPx) -> pd.DataFrame:
    """Last layers of the families that were measured at two input sizes or more; `x` is the side.

    A model may stand in several families and is in the rows once for each.
    """
    rows = curve_rows(table)
    names = list(zip(rows["dataset"], rows["model"], strict=True))
    rows = rows.assign(x=[float(input_px.get(name, "nan")) for name in names])
    several = rows["dataset"].nunique() > 1
    parts = [
        part.assign(line=f"{family} ({dataset})" if several else family, dataset_line=dataset)
        for family, models in families.items()
        for dataset, part in rows[rows["model"].isin(list(models))].groupby("dataset")
    ]
    found = pd.concat(parts) if parts else rows.iloc[:0].assign(line="", dataset_line="")
    return with_several(found[found["x"].notna()])


def read(inputs: Inputs) -> dict[str, Any]:
    """Read the table, the families, and the side of each model's input off its activations."""
    return {
        "table": read_binding(inputs)["table"],
        "families": {f["name"]: f["models"] for f in inputs.content["families"]},
        "input_px": dict(_sides(inputs)),
        "cells": inputs.content["cells"],
        "trends": read_trends(inputs),
    }


def _sides(inputs: Inputs) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield (dataset, model) and the side of the grid of patches in pixels."""
    for given in inputs.of("indexes"):
        token_map = json.loads(Path(given.path).read_text())["attributes"]["token_map"]
        if token_map:
            names = given.names["dataset"], given.names["model"]
            yield names, token_map["grid"][0] * token_map["patch_px"]


def available(
    table: pd.DataFrame, families: Families, input_px: InputPx, **_: object
) -> str | None:
    """Return why the figure cannot be drawn, or None."""
    if not families:
        return "No entry of families names models that are one family at several input sizes."
    return (
        None
        if len(_rows(table, families, input_px))
        else "No family of models was measured at two input sizes or more."
    )


@styled
def draw(
    table: pd.DataFrame,
    families: Families,
    input_px: InputPx,
    cells: Mapping[str, int],
    trends: pd.DataFrame | None = None,
) -> Figure:
    """Draw beta* and B* against the side of the input image; see `curves.draw_curves`.

    Parameters
    ----------
    table
        As `read_binding` returns it.
    families
        Names of families with their models.
    input_px
        Per (dataset, model) the side of the model's input in pixels, read off its activations.
    cells
        Per dataset the number of possible objects.
    trends
        The paper's numbers (`resources/published/trends.csv`); stars where they are comparable,
        words where not.
    """
    rows = _rows(table, families, input_px)
    marks, note = trend_of(STUDY, trends, table, cells)
    lines = [line for family in families for line in _lines_of(rows, family)]
    label = "side of the input image, pixels"
    return draw_curves(rows, lines, label, note, marks, "axis_value")


def _lines_of(rows: pd.DataFrame, family: str) -> list[str]:
    """Names of a family's curves: one, or one per dataset."""
    names = rows["line"].unique()
    return sorted(n for n in names if n == family or n.startswith(f"{family} ("))
