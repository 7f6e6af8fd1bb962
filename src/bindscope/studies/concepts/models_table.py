"""The table of trained encoders: measures of their embeddings beside what they recognise."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.concepts.models_schema import MODELS_SCHEMA, RUN
from bindscope.studies.concepts.schemas import GENERALIZATION_SCHEMA
from bindscope.studies.concepts.views import recognised
from bindscope.tables.rows import rows_of
from bindscope.tables.schema import frame_of, table_of

# Column of `concept_models` -> which rows of the other table, and which of their columns.
_TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "held_out_accuracy": ({}, "accuracy"),
    "bag_of_concepts_floor": ({}, "bag_of_concepts_floor"),
    "held_out_concept_accuracy": ({"target": "concept"}, "accuracy"),
    "trained_accuracy": ({"split": "train", "candidates": "trained"}, "accuracy"),
    **{name: ({}, name) for name in ("kind", "n_space", "flags")},
}


class ModelsTable:
    """What trained encoders hold, beside what they recognise."""

    schema = MODELS_SCHEMA

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Join the rows of measures, `geometry`, to those of recognition, `rows`."""
        found = rows_of(inputs.of("geometry"))
        frame = frame_of(rows_of(inputs.of("rows")), GENERALIZATION_SCHEMA)
        columns = {}
        for name, (wanted, column) in _TAKEN.items():
            columns[name] = recognised(frame, **wanted).set_index(list(RUN))[column]
        beside = pd.DataFrame(columns).to_dict("index")
        joined = [{**row, **beside[tuple(row[name] for name in RUN)]} for row in found]
        return table_of(joined, self.schema)


CONCEPT_MODELS = ModelsTable()
