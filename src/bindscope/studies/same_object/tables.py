"""The study's tables, from the rows of its fits."""

from __future__ import annotations

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.same_object.leads import rows_with_leads
from bindscope.studies.same_object.schemas import SAME_OBJECT_SCHEMA, STRATA_SCHEMA
from bindscope.tables.schema import RowTable, table_of


class SameObjectTable:
    """How well probes of pairs tell whether two patches are of one object."""

    schema = SAME_OBJECT_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table of the rows of the `fits`; as content come `n_layers`, by model."""
        depths, intervals = inputs.content["n_layers"], inputs.content["intervals"]
        rows = rows_with_leads(
            inputs.of("fits"), depths, intervals["bootstrap_samples"], intervals["bootstrap_seed"]
        )
        return table_of(rows, self.schema)


SAME_OBJECT = SameObjectTable()
STRATA = RowTable(STRATA_SCHEMA, "fits", "strata")
