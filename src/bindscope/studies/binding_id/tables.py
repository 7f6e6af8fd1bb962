"""The study's tables, from the rows of its jobs."""

from __future__ import annotations

from bindscope.studies.binding_id.schemas import (
    BINDING_ID_SCHEMA,
    HEADS_SCHEMA,
    MIXTURE_SCHEMA,
    VECTORS_SCHEMA,
)
from bindscope.tables.schema import RowTable

BINDING_ID = RowTable(BINDING_ID_SCHEMA, "rows")
BINDING_ID_MIXTURE = RowTable(MIXTURE_SCHEMA, "rows")
BINDING_ID_VECTORS = RowTable(VECTORS_SCHEMA, "rows", "vectors")
BINDING_ID_HEADS = RowTable(HEADS_SCHEMA, "rows")
