"""Length by layer, a curve per model."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from bindscope.figures.facets import facets, wrapped
from bindscope.figures.figure import figure, some, table_of
from bindscope.figures.style import looks
from bindscope.studies.toy.tables import LENGTHS


@figure(table_of(LENGTHS.schema))
def lengths(table: pd.DataFrame) -> Figure:
    """Mean length of [CLS] by layer, a panel per dataset and a line per model."""
    rows = some(table, "Nothing was measured.")
    rows = rows.assign(x=rows["layer"].astype(float))
    look = looks(list(dict.fromkeys(rows["model"])))
    grid = wrapped(dict.fromkeys(rows["dataset"]), 3, (0.5, 2.0), sharey=True)
    facets(rows, look, grid, "dataset", y="length", by="model", title=str)
    grid.label("layer", "mean length of [CLS]")
    return grid.legend(look)
