"""What figures, claims, sentences and results of arrays quote of the study's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
from bindscope.studies.same_object.scores import ACCURACY, OF_PROBES
from bindscope.tables.groups import GroupMappings, complete_groups, group_names, with_groups
from bindscope.tables.numbers import with_interval
from bindscope.tables.quoted import Quoted, each_model, over_models
from bindscope.tables.schema import TableSchema
from bindscope.tables.write import read_table

# Columns that tell rows apart, but for probe seeds; the last two are those of strata.
PLACE: Final = (
    "dataset",
    "grid",
    "model",
    "layer",
    "probe",
    "rank",
    "same_class",
    "distance",
)
VALUE_ENDS = {"low": "value_low", "high": "value_high"}  # as figures and page tables name them


# --- Pairs ----------------------------------------------------------------------------------------


def quote(table: pd.DataFrame, groups: GroupMappings = ()) -> Quoted:
    """Choose what is quoted of a table of pairs: means over probe seeds, then over model groups.

    A group's name stands for all of its training seeds, each read at the same layers and on one
    grid, or for none. Fits with flags are shown, too; claims refuse them. Numbers have `x`, the
    layer's place.
    """
    grouped = complete_groups(with_groups(table, groups), ["dataset", "grid", "probe", "rank"])
    rows = grouped.assign(x=_layer_places(table))
    place = [name for name in PLACE if name in table]
    return Quoted.choose(rows, OF_PROBES, place, needed=ACCURACY, labels=("family",), forbidden=())


def _layer_places(table: pd.DataFrame) -> pd.Series[float]:
    """Return where layers are on an axis: `final` behind the last block."""
    numbers = pd.to_numeric(table["layer"], errors="coerce").astype(float)
    last = table["n_layers"].astype(float) if "n_layers" in table else numbers.max()
    return numbers.fillna(last + 1).fillna(0)


def of_tokens(quoted: Quoted) -> Quoted:
    """Return what is quoted of probes that read tokens, less truncated forms."""
    whole = quoted.where(rank=0)
    return whole.take(whole.rows["model"] != NO_MODEL)


def lowest(rows: pd.DataFrame, column: str, place: Sequence[str]) -> pd.DataFrame:
    """Keep the row of each place (columns) with the smallest number."""
    numbers = rows[rows[column].notna()].groupby([*place], sort=False)[column]
    return rows.loc[numbers.idxmin()].reset_index(drop=True)


def at_best_layers(quoted: Quoted) -> pd.DataFrame:
    """Return each probe at the layer that validation prefers for it, a row per model or group."""
    return lowest(of_tokens(quoted).rows, "val_loss_bits", ("dataset", "model", "probe"))


def best_layers(quoted: Quoted, family: str = "quadratic") -> pd.DataFrame:
    """Return each model or group at the layer that validation prefers for a family of probe."""
    rows = of_tokens(quoted).where(family=family).rows
    return lowest(rows, "val_loss_bits", ("dataset", "model"))


def rivals_of(quoted: Quoted, row: Mapping[Any, Any]) -> pd.DataFrame:
    """Return the best probe of each kind that predicts a row's pairs without comparing tokens.

    That is, from positions alone, or from classes, positions and the image, of the same tokens.
    """
    same_pairs = quoted.where(dataset=row["dataset"], grid=row["grid"], rank=0)
    same_tokens = same_pairs.where(model=row["model"], layer=row["layer"])
    rivals = pd.concat(
        [
            same_tokens.where(family="class_position").rows,
            same_pairs.where(family="position").rows,
        ]
    )
    best = rivals.sort_values("accuracy", ascending=False, kind="stable")
    return best.drop_duplicates("family")


def percent_words(row: Mapping[Any, Any], unit: str = "") -> str:
    """Write an accuracy in percent, with its interval where it has one."""
    return with_interval((100 * row[name] for name in ACCURACY.interval), ".1f", unit)


# --- Geometry and edits, a number a row -----------------------------------------------------------


def over_seeds(table: pd.DataFrame, groups: GroupMappings = ()) -> pd.DataFrame:
    """Average the quantities of geometry over the models of a group.

    Columns: `dataset`, `model` (or group), `probe`, `layer` and `x`, its place, `quantity` and
    `at`, `value` with `value_low` and `value_high`.
    """
    rows = complete_groups(with_groups(table, groups), ["dataset", "probe"])
    rows = rows.assign(x=_layer_places(table))
    place = ["dataset", "model", "probe", "layer", "at"]
    means = [
        over_models(each_model(of_one, place), place, [QUANTITIES[str(name)]]).assign(quantity=name)
        for name, of_one in rows[rows["value"].notna()].groupby("quantity", sort=False)
    ]
    return pd.concat(means, ignore_index=True).rename(columns=VALUE_ENDS)


def best_edited(table: pd.DataFrame) -> pd.DataFrame:
    """Keep of each dataset, model and probe the edited layer with the lowest validation loss."""
    place = ["dataset", "model", "probe"]
    best = lowest(table[table["quantity"] == VAL_LOSS.name], "value", place)
    return table.merge(best[[*place, "layer"]])


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


def without_loss(edits: pd.DataFrame) -> dict[str, list[str]]:
    """Return why models have no loss of their own: reason -> models."""
    none = edits[(edits["quantity"] == PRETRAINING_LOSS.name) & (edits["reason"] != "")]
    reasons = none.groupby("reason")["model"].unique()
    return {str(reason): list(models) for reason, models in reasons.items()}


# --- Figures --------------------------------------------------------------------------------------


def read_models(inputs: Inputs) -> list[str]:
    """Return names of groups, and of models that are in none, as configured."""
    return group_names(inputs.content["models"], inputs.content["model_groups"])


def read_quoted(inputs: Inputs, schema: TableSchema, role: str = "table") -> Quoted:
    """Read what is quoted of a table of pairs; `role` is that of the table among the inputs."""
    table = read_table(inputs.paths(role)[0], schema)
    return quote(table, inputs.content["model_groups"])


def panels_of(
    rows: pd.DataFrame, models: Sequence[str], by: Sequence[str], separator: str = "\n"
) -> dict[str, pd.DataFrame]:
    """Cut rows into those of each dataset and model, or group, in the order of models.

    `by`: `model`, `dataset` and perhaps `probe`; a panel is named by the model and by what varies
    of the others.
    """
    place = rows["model"].map({name: i for i, name in enumerate(models)}).fillna(len(models))
    ordered = rows.assign(place=place).sort_values(["dataset", "place"], kind="stable")
    varying = [by[0], *(name for name in by[1:] if rows[name].nunique() > 1)]
    panels = [part for _, part in ordered.groupby([*by], sort=False)]
    return {separator.join(part[varying].iloc[0].astype(str)): part for part in panels}
