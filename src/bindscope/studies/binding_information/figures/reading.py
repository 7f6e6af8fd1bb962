"""What all figures about the study's table read."""

from __future__ import annotations

from typing import Any

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.views import shown_models, with_groups
from bindscope.tables.write import read_table


def read_binding(inputs: Inputs) -> dict[str, Any]:
    """Read what `draw` of every figure about the table takes.

    Returns
    -------
    table
        `binding_information`, and the `group` of each model.
    models
        Names of groups, and of models that are in none, in the configuration's order.
    """
    table = read_table(inputs.paths("table")[0], BINDING_SCHEMA)
    models, groups = inputs.content["models"], inputs.content["model_groups"]
    return {"table": with_groups(table, groups), "models": shown_models(models, groups)}


def read_parts(inputs: Inputs) -> dict[str, Any]:
    """Read what the figures of the three parts take: also the configuration's order of datasets."""
    return {**read_binding(inputs), "datasets": inputs.content["datasets"]}
