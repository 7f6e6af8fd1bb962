"""The tables of embeddings, from the rows of their jobs."""

from __future__ import annotations

from bindscope.studies.concepts.analyses_schemas import (
    COMPLEXITY_SCHEMA,
    EDITING_SCHEMA,
    GEOMETRY_SCHEMA,
)
from bindscope.tables.schema import RowTable

CONCEPT_GEOMETRY = RowTable(GEOMETRY_SCHEMA, "rows")
CONCEPT_EDITING = RowTable(EDITING_SCHEMA, "rows")
BINDING_COMPLEXITY = RowTable(COMPLEXITY_SCHEMA, "rows")
