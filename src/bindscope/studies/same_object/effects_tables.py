"""The tables about edits and attention, from the rows of their jobs."""

from __future__ import annotations

from bindscope.studies.same_object.effects_schemas import (
    ABLATION_SCHEMA,
    ATTENTION_SCHEMA,
    RETRAINED_SCHEMA,
)
from bindscope.tables.schema import RowTable

ABLATION = RowTable(ABLATION_SCHEMA, "effects")
ATTENTION = RowTable(ATTENTION_SCHEMA, "effects", "attention")
RETRAINED = RowTable(RETRAINED_SCHEMA, "effects", "retrained")
