"""What headlines, the report and README quote of the table: rows `probe = best`, and no other.

A row with a flag that says that its fit did not end well, or that it exceeds a known truth, is not
quoted; that there is no row that could be, and which flag it was, is said instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pandas as pd

from bindscope.studies.binding_information.flags import unusable
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    FEATURES,
    PAIRING,
    PARTS,
    Quantity,
)
from bindscope.studies.binding_information.shared_probes import best_of_shared
from bindscope.studies.binding_information.views import (
    each_model,
    last_layers,
    name_order,
    named_groups,
    over_models,
    token_order,
)

PLACE: Final = ["dataset", "model", "layer", "tokens"]

Record = Mapping[Any, Any]


SMALLEST_BITS: Final = 1e-6  # of an entropy that there is something to find of


class Quotes(NamedTuple):
    """What may be quoted, and what may not.

    `rows` are one per (dataset, model or group, layer, tokens), as `views.over_seeds` returns them,
    `single` the models that these are means of, by the names that are shown; `refused` has `PLACE`,
    `flags` (text) and `n_models`: models of the group without a row to quote.
    """

    rows: pd.DataFrame
    single: pd.DataFrame
    refused: pd.DataFrame


def quotes(table: pd.DataFrame, models: Sequence[str] = (), *, last: bool = True) -> Quotes:
    """Choose what may be quoted of models that are no known-answer encoders, in order of `models`.

    The last layer of each model, or without `last` all layers. `fitted` has the families of the
    probes that a row was chosen from, joined by `;`.
    """
    rows = best_of_shared(table)
    rows = named_groups(last_layers(rows) if last and len(rows) else rows)
    flags = rows["flags"].map(unusable)
    usable = (flags.map(len) == 0) & rows[BEYOND.bound].notna()
    single = each_model(rows[usable])
    return Quotes(
        _in_order(over_models(single), models),
        single.assign(model=single["shown"]),
        _in_order(_refused(rows.assign(refused=flags), single), models),
    )


def parts_of(row: Record) -> tuple[Quantity, ...]:
    """Return the parts that a dataset's rows have; counts and pairing are one where not counted."""
    counted = pd.notna(row.get(COUNTS.entropy)) and pd.notna(row.get(PAIRING.bound))
    return PARTS if counted else (FEATURES, BEYOND)


def headline_part(row: Record) -> Quantity:
    """Return the part that a dataset's headline is about: the last of its parts."""
    return parts_of(row)[-1]


def _refused(rows: pd.DataFrame, single: pd.DataFrame) -> pd.DataFrame:
    """List per place the models without a usable row, and the flags of what they have."""
    usable = pd.MultiIndex.from_frame(single[PLACE])
    unusable = rows[~pd.MultiIndex.from_frame(rows[PLACE]).isin(usable)]
    refusals = []
    places = unusable.groupby(["dataset", "group", "layer", "tokens"], sort=False)
    for place, part in places:
        flags = sorted({flag for flags in part["refused"] for flag in flags})
        refusals.append((*place, " and ".join(flags) or "incomplete", part["model"].nunique()))
    return pd.DataFrame(refusals, columns=[*PLACE, "flags", "n_models"])


def _in_order(rows: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Sort by dataset, token input, model in the given order, and layer."""
    tokens, names = token_order(rows["tokens"]), name_order(rows["model"], models)
    depth = pd.to_numeric(rows["layer"].replace("final", "inf")).astype(float)
    ranks = {
        "_dataset": rows["dataset"], "_tokens": rows["tokens"].map(tokens.index),
        "_model": rows["model"].map(names.index), "_layer": depth,
    }  # fmt: skip
    ordered = rows.assign(**ranks).sort_values(list(ranks), kind="stable")
    return ordered.drop(columns=list(ranks)).reset_index(drop=True)
