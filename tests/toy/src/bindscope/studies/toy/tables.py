"""The toy study's table."""

from __future__ import annotations

from bindscope.tables.schema import DATASET, KEYS, MODEL, Column, RowTable, TableSchema, label

LENGTHS = RowTable(
    TableSchema(
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
    ),
    "lengths",
)
