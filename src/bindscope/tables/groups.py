"""Groups of models that differ in their training seed alone, in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

Groups = Iterable[Mapping[str, Any]]


def home_of(groups: Groups) -> dict[str, str]:
    """Return the group's name of every model that is in one."""
    return {model: str(group["name"]) for group in groups for model in group["models"]}


def with_groups(table: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Add the column `group`; of a model that is in none, its name."""
    return table.assign(group=table["model"].replace(home_of(groups)))


def group_names(models: Iterable[str], groups: Groups) -> list[str]:
    """Return names of groups, and of models that are in none, in the order of their models."""
    home = home_of(groups)
    return list(dict.fromkeys(home.get(model, model) for model in models))
