"""The study's tables, from the rows of its jobs."""

from __future__ import annotations

from bindscope.studies.concepts.analyses_schemas import (
    COMPLEXITY_SCHEMA,
    EDITING_SCHEMA,
    GEOMETRY_SCHEMA,
)
from bindscope.studies.concepts.schemas import GENERALIZATION_SCHEMA
from bindscope.tables.schema import RowTable

BINDING_GENERALIZATION = RowTable(GENERALIZATION_SCHEMA, "rows")
CONCEPT_GEOMETRY = RowTable(GEOMETRY_SCHEMA, "rows")
CONCEPT_EDITING = RowTable(EDITING_SCHEMA, "rows")
BINDING_COMPLEXITY = RowTable(COMPLEXITY_SCHEMA, "rows")
