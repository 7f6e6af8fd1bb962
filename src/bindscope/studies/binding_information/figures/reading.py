"""What several of the study's figures read."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.published import TREND_COLUMNS, read_published
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.tables.write import read_table


def read_binding(inputs: Inputs) -> dict[str, Any]:
    """Read the study's `table`, and the `models` in the configuration's order."""
    table = read_table(inputs.paths("table")[0], BINDING_SCHEMA)
    return {"table": table, "models": inputs.content["models"]}


def read_papers_table(inputs: Inputs) -> pd.DataFrame:
    """Read the paper's main table."""
    return read_published(inputs.resources["binding_information"])


def read_trends(inputs: Inputs) -> pd.DataFrame:
    """Read what the paper reports of its further studies."""
    return read_published(inputs.resources["trends"], TREND_COLUMNS)
