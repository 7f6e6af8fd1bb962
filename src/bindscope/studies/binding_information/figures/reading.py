"""What all figures about the study's table read."""

from __future__ import annotations

from typing import Any

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.tables.write import read_table


def read_binding(inputs: Inputs) -> dict[str, Any]:
    """Read what `draw` of every figure about the table takes.

    Returns
    -------
    table
        `binding_information`.
    models
        Names of the models in the configuration's order.
    """
    table = read_table(inputs.paths("table")[0], BINDING_SCHEMA)
    return {"table": table, "models": inputs.content["models"]}
