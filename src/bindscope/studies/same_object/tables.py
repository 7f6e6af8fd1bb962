"""The study's tables, from the rows of its fits."""

from __future__ import annotations

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.same_object.columns import SAME_OBJECT_COLUMNS, STRATA_COLUMNS
from bindscope.tables.rows import rows_of
from bindscope.tables.schema import RowTable, TableSchema, table_of


def layer_number(layers: pd.Series[str]) -> pd.Series[float]:
    """Turn layer names into numbers that sort: `none` comes first, `final` last."""
    words = {"none": "-1", "final": "inf"}
    return pd.to_numeric(layers.replace(words)).astype(float)


_KEY = ("dataset", "model", "layer", "probe", "control", "seed", "grid", "rank")

SAME_OBJECT_SCHEMA = TableSchema(
    name="same_object",
    version=1,
    description="One row per dataset, model, layer, probe of pairs, control and probe seed. Every "
    "number is measured on the frozen pairs of the test split, which all models of a patch grid "
    "share.",
    columns=SAME_OBJECT_COLUMNS,
    key=_KEY,
    order={"layer": layer_number},
)
STRATA_SCHEMA = TableSchema(
    name="same_object_strata",
    version=1,
    description="The scores of `same_object` for parts of the pairs: of one class or of two, by "
    "the distance of the patches and the size of the smaller object.",
    columns=STRATA_COLUMNS,
    key=(*_KEY, "same_class", "distance", "size"),
    order={"layer": layer_number},
)


class SameObjectTable:
    """How well probes of pairs tell whether two patches are of one object."""

    schema = SAME_OBJECT_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the rows of the `fits`; `n_layers` come as content, by model."""
        depths = inputs.content["n_layers"]
        rows = rows_of(inputs.of("fits"))
        return table_of([row | {"n_layers": depths.get(row["model"])} for row in rows], self.schema)


SAME_OBJECT = SameObjectTable()
STRATA = RowTable(STRATA_SCHEMA, "fits", "strata")
