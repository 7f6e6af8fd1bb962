"""Parts of the study's tables that figures and the report read: curves, best layers, means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.studies.same_object.quantities import (
    EDITS,
    MEAN_HEAD,
    NO_MODEL,
    PRETRAINING_LOSS,
    QUANTITIES,
    VAL_LOSS,
)
from bindscope.studies.same_object.scores import OF_PROBES
from bindscope.tables import quoted
from bindscope.tables.groups import GroupMappings, complete_groups, group_names, with_groups
from bindscope.tables.quantities import Quantity
from bindscope.tables.schema import TableSchema
from bindscope.tables.write import read_table

VALUE_ENDS = {"low": "value_low", "high": "value_high"}  # as figures and page tables name them


def read_grouped(inputs: Inputs, schema: TableSchema, role: str = "table") -> dict[str, Any]:
    """Read what the figures about a table take; `role` is that of the table among the inputs.

    Returns: `table`, with the `group` of each model (models that differ in their seed alone are
    one), and `models`: names of groups, and of models that are in none, as configured.
    """
    table = read_table(inputs.paths(role)[0], schema)
    groups, models = inputs.content["model_groups"], inputs.content["models"]
    return {"table": in_groups(table, groups), "models": group_names(models, groups)}


def in_groups(table: pd.DataFrame, groups: GroupMappings) -> pd.DataFrame:
    """Add the `group` of each model, its own name where a probe was not fitted to the whole group.

    A group's name stands for all of its training seeds, each read at the same layers.
    """
    place = [name for name in ("dataset", "probe", "rank") if name in table]
    return complete_groups(with_groups(table, groups), place)


def fitted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of probes that read tokens, with `x`, the layer's place.

    Truncated forms (`rank` above 0) have a figure of their own and are left out.
    """
    return with_layer_places(table[table["rank"] == 0])


def with_layer_places(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same rows, those of truncated forms included."""
    rows = table[table["model"] != NO_MODEL].copy()
    number = pd.to_numeric(rows["layer"].mask(rows["layer"] == "final")).astype(float)
    last = rows["n_layers"].astype(float) if "n_layers" in rows else number.max()
    return rows.assign(x=number.fillna(last + 1).fillna(0))


def of_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of what reads positions alone, one per dataset and grid."""
    rows = table[table["family"] == "position"]  # baselines have no model either
    scores = [score.value for score in OF_PROBES]
    return rows.groupby(["dataset", "grid"], sort=False)[scores].mean().reset_index()


def over_models(
    rows: pd.DataFrame, keys: Sequence[str], quantities: Sequence[Quantity] = OF_PROBES
) -> pd.DataFrame:
    """Average rows over probe seeds, then over the models of a group, as `tables.quoted` does.

    `keys`: columns that stay apart; of several models, intervals are over these.
    """
    place = [*keys, "model"]
    return quoted.over_models(quoted.each_model(rows, place), place, quantities)


def best_layers(rows: pd.DataFrame, family: str = "quadratic") -> pd.DataFrame:
    """Return the layer of each dataset and group where a family of probe is best on validation.

    Columns: `dataset`, `group`, `layer`; the layer with the lowest mean loss on the
    validation split.
    """
    of_family = rows[(rows["family"] == family) & rows["val_loss_bits"].notna()]
    keys = ["dataset", "group"]
    means = of_family.groupby([*keys, "layer"], sort=False)["val_loss_bits"].mean().reset_index()
    best = means.groupby(keys, sort=False)["val_loss_bits"].idxmin()
    return means.loc[best, [*keys, "layer"]].reset_index(drop=True)


def at_best_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return each probe at the layer that validation prefers for it, averaged as `over_models`.

    Returns: a row per dataset, group and probe, with its `layer`.
    """
    rows = fitted(table)
    means = over_models(rows, ["dataset", "grid", "probe", "family", "layer"])
    means = means[means["val_loss_bits"].notna()]
    best = means.groupby(["dataset", "group", "probe"], sort=False)["val_loss_bits"].idxmin()
    return means.loc[best].reset_index(drop=True)


def panels_of(
    rows: pd.DataFrame, models: Sequence[str], by: Sequence[str], separator: str = "\n"
) -> dict[str, pd.DataFrame]:
    """Cut rows into those of each dataset and model, or group, in the order of models.

    `by`: `model` or `group`, `dataset` and perhaps `probe`; a panel is named by the first one and
    by what varies of the others.
    """
    place = {name: i for i, name in enumerate(models)}
    order = rows.drop_duplicates(by)
    order = order.assign(place=order["group"].map(place).fillna(len(place)))
    varying = [by[0], *(name for name in by[1:] if rows[name].nunique() > 1)]
    panels = {}
    for key in order.sort_values(["dataset", "place"], kind="stable")[list(by)].values:
        chosen = rows[(rows[list(by)] == key).all(axis=1)]
        panels[separator.join(str(chosen[name].iloc[0]) for name in varying)] = chosen
    return panels


def best_edited(table: pd.DataFrame) -> pd.DataFrame:
    """Keep of each dataset, model and probe the edited layer with the lowest validation loss."""
    keys = ["dataset", "model", "probe"]
    losses = table[table["quantity"] == VAL_LOSS.name]
    best = losses.loc[losses.groupby(keys, sort=False)["value"].idxmin(), [*keys, "layer"]]
    return table.merge(best, on=[*keys, "layer"])


def where_validation_is_best(table: pd.DataFrame) -> pd.DataFrame:
    """Keep of each dataset, model and probe the layer whose probe has the lowest validation loss.

    Of readers that were fitted again the edited probe is kept, and of heads their mean.
    """
    rows = best_edited(table)
    at = rows["quantity"].map({name: quantity.at for name, quantity in EDITS.items()})
    of_another = ((at == "probe") & (rows["at"] != rows["probe"])) | (
        (at == "head") & (rows["at"] != MEAN_HEAD)
    )
    return rows[~of_another]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Average the quantities of geometry over the models of a group, as `over_models`.

    Columns: `dataset`, `group`, `probe`, `layer` and `x`, its place, `quantity` and `at`, `value`
    with `value_low` and `value_high`.
    """
    rows, keys = (
        with_layer_places(table[table["value"].notna()]),
        ["dataset", "probe", "layer", "at"],
    )
    means = [
        over_models(of_one, keys, [QUANTITIES[str(name)]]).assign(quantity=name)
        for name, of_one in rows.groupby("quantity", sort=False)
    ]
    return pd.concat(means, ignore_index=True).rename(columns=VALUE_ENDS)


def without_loss(edits: pd.DataFrame) -> dict[str, list[str]]:
    """Return why models have no loss of their own: reason -> models."""
    none = edits[(edits["quantity"] == PRETRAINING_LOSS.name) & (edits["reason"] != "")]
    reasons = none.groupby("reason")["model"].unique()
    return {str(reason): list(models) for reason, models in reasons.items()}
