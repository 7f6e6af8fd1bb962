"""Model groups: models that differ in their training seed alone, in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

GroupMappings = Iterable[Mapping[str, Any]]


def home_of(groups: GroupMappings) -> dict[str, str]:
    """Return the group's name of every model that is in one."""
    return {model: str(group["name"]) for group in groups for model in group["models"]}


def with_groups(table: pd.DataFrame, groups: GroupMappings) -> pd.DataFrame:
    """Add `group`, of a model that is in none its name, and `group_size`, of models."""
    groups = list(groups)
    sizes = {str(group["name"]): len(group["models"]) for group in groups}
    names = table["model"].replace(home_of(groups))
    return table.assign(group=names, group_size=names.map(sizes).fillna(1).astype(int))


def complete_groups(rows: pd.DataFrame, place: Sequence[str]) -> pd.DataFrame:
    """Let a group's name stand for all of its models only; others have their own as `group`.

    A group is complete at a place (columns) where each of its models was read, all at the same
    layers. `rows` are those of `with_groups`.
    """
    by = [*place, "group"]
    cells = rows.drop_duplicates([*by, "model", "layer"]).groupby(by, sort=False, dropna=False)
    counts = cells["layer"].agg(n_cells="size", n_layers="nunique").reset_index()
    both = rows[[*by, "group_size"]].merge(counts, "left", by)
    complete = (both["n_cells"] == both["group_size"] * both["n_layers"]).to_numpy()
    return rows.assign(group=rows["group"].where(complete, rows["model"]))


def group_names(models: Iterable[str], groups: GroupMappings) -> list[str]:
    """Return names of models in order, that of a group before its first one."""
    home = home_of(groups)
    return list(dict.fromkeys(n for model in models for n in (home.get(model, model), model)))
