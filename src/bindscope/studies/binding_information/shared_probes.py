"""Rows of the best probe, for means over a group: of the probes that all of its models have.

The best of several probes is more than one of them gives. So where one training seed was fitted
with more probes than the others, its best row is chosen again from those that all have; and where
no probe was fitted to all, the models are no group.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.views import family_order, measured
from bindscope.tables.schema import frame_of

_PLACE = ["dataset", "layer", "tokens"]
_MODEL = ["group", "group_size", "is_control"]
_COLUMNS = [column.name for column in BINDING_SCHEMA.columns]


def best_of_shared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows `probe = best` of `views.measured`, comparable within groups.

    `fitted` has the families that each was chosen from, joined by `;`.
    """
    best = measured(table, known_answer=False, best=True)
    fits = measured(table, known_answer=False)
    fits = fits[fits["protocol"] != "paper"]
    parts = [best.iloc[:0].assign(fitted="")]
    for (*place, _), members in best.groupby([*_PLACE, "group"], sort=False):
        here = fits[(fits[_PLACE] == place).all(axis=1)]
        probes = {
            name: set(rows["probe"]) for name, rows in here.groupby("model")
            if name in set(members["model"])
        }  # fmt: skip
        shared = set.intersection(*probes.values()) if probes else set()
        if not shared and len(probes) > 1:
            members = members.assign(group=members["model"], group_size=1)
        for name, rows in members.groupby("model", sort=False):
            each = probes.get(name, set())
            used = here[(here["model"] == name) & here["probe"].isin(shared or each)]
            families = family_order(used["family"]) or [rows["family"].iloc[0]]
            rows = _choose_again(used, rows) if shared and each - shared else rows
            parts.append(rows.assign(fitted=";".join(families)))
    return pd.concat(parts, ignore_index=True)


def _choose_again(fits: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a model's rows `probe = best` of some of its fits, in place of those of all."""
    records = [_record(row) for row in fits[_COLUMNS].to_dict("records")]
    reasons = dict.fromkeys(fits["dataset"])
    chosen = frame_of(best_rows(records, [{}] * len(records), reasons), BINDING_SCHEMA)
    of_model = {name: rows[name].iloc[0] for name in _MODEL}
    return measured(chosen.assign(**of_model), known_answer=False, best=True)


def _record(row: dict[Any, Any]) -> dict[str, Any]:
    """Return a row as fits write it: None where there is no number."""
    return {name: None if pd.isna(value) else value for name, value in row.items()}
