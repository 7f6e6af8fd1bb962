"""The study's tables, from the rows of its jobs."""

from __future__ import annotations

from bindscope.studies.concepts.schemas import GENERALIZATION_SCHEMA
from bindscope.tables.schema import RowTable

BINDING_GENERALIZATION = RowTable(GENERALIZATION_SCHEMA, "rows")
