"""Rows of the best probe, for means over a group: of the probes that all of its models have.

The best of several probes is more than one of them gives. So where one training seed was fitted
with more probes than the others, its best row is chosen again from those that all have; and where
no probe was fitted to all, the models are no group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd

from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.binding_information.views import family_order, measured
from bindscope.tables.schema import frame_of

Names = tuple[str, ...]
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
    by_model = {_names(key): rows for key, rows in fits.groupby([*_PLACE, "group", "model"])}
    probes: dict[Names, dict[str, set[str]]] = {}
    for (*where, model), rows in by_model.items():
        probes.setdefault(tuple(where), {})[model] = set(rows["probe"])
    shared = {place: set.intersection(*sets.values()) for place, sets in probes.items()}
    parts = [best.iloc[:0].assign(fitted="")]
    for key, rows in best.groupby([*_PLACE, "group", "model"], sort=False):
        names = _names(key)
        if names not in by_model:
            parts.append(rows.assign(fitted=rows["family"]))
            continue
        chosen, place, model = by_model[names], names[:-1], names[-1]
        if not shared[place] and len(probes[place]) > 1:
            rows = rows.assign(group=model, group_size=1)
        elif shared[place] < probes[place][model]:
            chosen = chosen[chosen["probe"].isin(shared[place])]
            rows = _choose_again(chosen, rows)
        parts.append(rows.assign(fitted=";".join(family_order(chosen["family"]))))
    return pd.concat(parts, ignore_index=True)


def _names(key: Iterable[Hashable]) -> Names:
    return tuple(map(str, key))


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
