"""Rows of the binding table that figures, claims and the report read, and their names and orders.

What is quoted are rows `probe = best` (`quote`). The best of several probes is more than one of
them gives: where one training seed was fitted with more probes than the others of its group, its
best row is chosen again from those that all have; and where no probe was fitted to all, the models
are no group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Literal

import pandas as pd

from bindscope.models.baselines import BASELINES
from bindscope.studies.binding_information.best import BEST, best_rows
from bindscope.studies.binding_information.columns import TOKENS
from bindscope.studies.binding_information.names import PAPERS, show_model
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    ESTIMATES,
    FEATURES,
    PAIRING,
    PARTS,
)
from bindscope.studies.binding_information.registry import known_families
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA, family_of
from bindscope.tables import quoted
from bindscope.tables.flags import has_flag
from bindscope.tables.groups import GroupMappings, complete_groups, group_names
from bindscope.tables.quantities import Quantity
from bindscope.tables.quoted import Quoted, TableRow, name_order, over_models
from bindscope.tables.rules import layer_number
from bindscope.tables.schema import frame_of

PLACE: Final = ["dataset", "model", "layer", "tokens"]
FIT: Final = [*PLACE, "probe", "control"]  # less its seeds
LABELS: Final = (
    "family",
    "fitted",
    "model_kind",
    "n_layers",
    "assumed_prior",
    "is_control",
)
SMALLEST_BITS: Final = 1e-6  # of an entropy that there is something to find of


# --- Which rows ---------------------------------------------------------------------------------


def measured(
    table: pd.DataFrame,
    kind: Literal["model", "known-answer", "baseline"] = "model",
    *,
    best: bool = False,
) -> pd.DataFrame:
    """Return the rows that hold numbers and are no control, of one kind of models.

    `best`: the rows `probe = best`, or those of the fits that they are made of. Added are the
    probe's `family` and whether the row rests on an `assumed_prior`; of a table without them also
    the `group` of its model (`tables.groups`), and whether that is a positive control.
    """
    keep = (table["status"] != "failed") & (table["control"] == "none")
    keep &= (table["probe"] == BEST) == best
    kinds = table["model_kind"].where(table["model_kind"].isin(["known-answer", "baseline"]))
    rows = table[keep & (kinds.fillna("model") == kind)].copy()
    rows["family"] = [
        protocol_family(family_of(options), protocol)
        for options, protocol in zip(rows["options"], rows["protocol"], strict=True)
    ]
    rows["assumed_prior"] = rows["dataset"].isin(assumed_prior(table))
    if "group" not in rows:
        rows["group"], rows["group_size"] = rows["model"], 1
    if "is_control" not in rows:
        rows["is_control"] = False
    return rows.reset_index(drop=True)


def assumed_prior(table: pd.DataFrame) -> set[str]:
    """Return the datasets whose entropies are estimates, so that no difference is a bound."""
    return set(table.loc[has_flag(table, "assumed_prior"), "dataset"])


def last_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the deepest layer of each (dataset, model, tokens): the last block's, else `final`."""
    depth = pd.to_numeric(rows["layer"].replace("final", "-1")).astype(int)
    deepest = depth.groupby([rows["dataset"], rows["model"], rows["tokens"]]).transform("max")
    return rows[depth == deepest].reset_index(drop=True)


def best_of_shared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows `probe = best` of `measured`, comparable within groups.

    `fitted` has the families that each was chosen from, joined by `;`.
    """
    best, fits = measured(table, best=True), measured(table)
    fits = fits[fits["protocol"] != "paper"]
    place = ["dataset", "layer", "tokens", "group"]
    by_model = dict(list(fits.groupby([*place, "model"])))
    probes: dict[Any, list[set[str]]] = {}
    for (*where, _), rows in by_model.items():
        probes.setdefault(tuple(where), []).append(set(rows["probe"]))
    parts = [best.iloc[:0].assign(fitted="")]
    for key, rows in best.groupby([*place, "model"], sort=False):
        if key not in by_model:
            parts.append(rows.assign(fitted=rows["family"]))
            continue
        chosen, sets = by_model[key], probes[key[:-1]]
        shared = set.intersection(*sets)
        if not shared and len(sets) > 1:
            rows = rows.assign(group=rows["model"], group_size=1)
        elif shared < set(chosen["probe"]):
            chosen = chosen[chosen["probe"].isin(shared)]
            rows = _choose_again(chosen, rows)
        parts.append(rows.assign(fitted=";".join(family_order(chosen["family"]))))
    return pd.concat(parts, ignore_index=True)


def _choose_again(fits: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a model's rows `probe = best` of some of its fits, in place of those of all."""
    numbers = fits[BINDING_SCHEMA.names].astype(object)
    records: list[Any] = numbers.where(numbers.notna(), None).to_dict("records")
    reasons = dict.fromkeys(fits["dataset"])
    chosen = frame_of(best_rows(records, [{}] * len(records), reasons), BINDING_SCHEMA)
    of_model = rows[["group", "group_size", "is_control"]].iloc[0]
    return measured(chosen.assign(**of_model), best=True)


# --- Means, and what may be quoted --------------------------------------------------------------


def named_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Let models of a group that is not complete at a place stand for themselves."""
    return complete_groups(rows, ["dataset", "tokens", "probe", "control"])


def each_model(rows: pd.DataFrame) -> pd.DataFrame:
    """Average rows of `named_groups` over probe seeds."""
    return quoted.each_model(rows, FIT, LABELS)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Average rows of `measured` over probe seeds, then over the models of a group.

    A row per fit, where `model` may be a group; see `tables.quoted.over_models`.
    """
    return over_models(each_model(named_groups(rows)), FIT, ESTIMATES, LABELS)


def quote(
    table: pd.DataFrame,
    models: Sequence[str] = (),
    *,
    last: bool = True,
) -> Quoted:
    """Choose what may be quoted of models, in the order of `models`: of the best probe.

    The last layer of each model, or without `last` all layers.
    """
    rows = best_of_shared(table)
    rows = named_groups(last_layers(rows) if last and len(rows) else rows)
    chosen = Quoted.choose(rows, ESTIMATES, PLACE, needed=BEYOND, labels=LABELS)
    return chosen.ordered(
        dataset=sorted(chosen.names("dataset")),
        tokens=token_order(chosen.names("tokens")),
        model=name_order(chosen.names("model"), models),
        layer=list(pd.Series(chosen.names("layer"), dtype=str).sort_values(key=layer_number)),
    )


def parts_of(row: TableRow) -> tuple[Quantity, ...]:
    """Return the parts that a dataset's rows have; counts and pairing are one where not counted."""
    counted = pd.notna(row.get(COUNTS.entropy)) and pd.notna(row.get(PAIRING.value))
    return PARTS if counted else (FEATURES, BEYOND)


def headline_part(row: TableRow) -> Quantity:
    """Return the part that a dataset's headline is about: the last of its parts."""
    return parts_of(row)[-1]


def strongest_baselines(table: pd.DataFrame, dataset: str, quantity: Quantity) -> dict[str, float]:
    """Return a number of baselines by name: the largest without places, and with them."""
    rows = measured(table, "baseline", best=True)
    rows = rows[(rows["dataset"] == dataset) & rows[quantity.value].notna()]
    strongest = {}
    for discards_place in (True, False):
        names = [name for name, b in BASELINES.items() if b.discards_place == discards_place]
        means = rows[rows["model"].isin(names)].groupby("model")[quantity.value].mean()
        if len(means):
            strongest[str(means.idxmax())] = float(means.max())
    return strongest


# --- Names and orders ---------------------------------------------------------------------------


def order_models(
    models: Sequence[str], groups: GroupMappings, controls: Collection[str]
) -> list[str]:
    """Return names of models and of their groups, as configured, positive controls last."""
    last = group_names((name for name in models if name in controls), groups)
    return [*group_names((name for name in models if name not in controls), groups), *last]


def model_labels(rows: pd.DataFrame, models: Sequence[str]) -> dict[str, str]:
    """Return how the models or groups of some rows are shown, by name, in the order of `models`."""
    is_control = dict(zip(rows["model"], rows["is_control"], strict=True))
    return {n: show_model(n, bool(is_control[n])) for n in name_order(rows["model"], models)}


def protocol_family(family: str | None, protocol: str) -> str:
    """Return a family's name; fits by the paper's protocol are shown as a family of their own."""
    return f"{family}{PAPERS}" if protocol == "paper" else str(family)


def layer_places(rows: pd.DataFrame) -> pd.Series[float]:
    """Return where each row's layer stands on an axis; `final` is a step after the last block."""
    final = rows["layer"] == "final"
    return pd.to_numeric(rows["layer"].where(~final, rows["n_layers"] + 1)).astype(float)


def family_order(families: Iterable[str]) -> list[str]:
    """Order families: linear, quadratic, ..., attention; the paper's protocol, then new ones."""
    known = known_families()
    return name_order(families, [*known, *(f"{family}{PAPERS}" for family in known)])


def token_order(tokens: Iterable[str]) -> list[str]:
    """Order token inputs: cls, mean, cls_mean, patches."""
    return name_order(tokens, TOKENS)


def dataset_tokens(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the dataset and token input of each panel, or row of panels, in order."""
    return [
        (dataset, token)
        for dataset in sorted(rows["dataset"].unique())
        for token in token_order(rows.loc[rows["dataset"] == dataset, "tokens"])
    ]
