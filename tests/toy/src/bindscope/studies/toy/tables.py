"""The toy study's table."""

from __future__ import annotations

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.tables.rows import read_rows
from bindscope.tables.schema import DATASET, KEYS, MODEL, Column, TableSchema, label, table_of


class LengthTable:
    """Lengths of [CLS] tokens."""

    schema = TableSchema(
        name="lengths",
        version=1,
        description="One row per dataset, model and layer.",
        columns=(
            DATASET,
            MODEL,
            label("layer", "Layer that was read.", "config `layers`"),
            Column("length", "float64", "", "Mean Euclidean length.", "`lengths`", low=0.0),
            *KEYS,
        ),
        key=("dataset", "model", "layer"),
    )

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the rows of rule `lengths`."""
        rows = [row for given in inputs.of("lengths") for row in read_rows(given)]
        return table_of(rows, self.schema)


LENGTHS = LengthTable()
