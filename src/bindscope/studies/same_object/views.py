"""Parts of the study's tables that figures and the report read: curves, best layers, means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.statistics.means import half_width
from bindscope.studies.same_object.quantities import CORRELATIONS, MEAN_HEAD, NO_MODEL, QUANTITIES
from bindscope.tables.schema import TableSchema
from bindscope.tables.write import read_table

SCORES = ("accuracy", "balanced_accuracy", "auc", "auc_within", "loss_bits")


def read_grouped(inputs: Inputs, schema: TableSchema, role: str = "table") -> dict[str, Any]:
    """Read what the figures about a table take; `role` is that of the table among the inputs.

    Returns: `table`, with the `group` of each model (models that differ in their seed alone are
    one), and `models`: names of groups, and of models that are in none, as configured.
    """
    table = read_table(inputs.paths(role)[0], schema)
    groups, models = inputs.content["model_groups"], inputs.content["models"]
    home = home_of(groups)
    names = list(dict.fromkeys(home.get(model, model) for model in models))
    return {"table": with_groups(table, groups), "models": names}


def home_of(groups: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the group's name of every model that is in one."""
    return {model: str(group["name"]) for group in groups for model in group["models"]}


def with_groups(table: pd.DataFrame, groups: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Add the column `group`; of a model that is in none, its name."""
    return table.assign(group=table["model"].replace(home_of(groups)))


def fitted(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of probes that read tokens, with `x`, the layer's place.

    Truncated forms (`rank` above 0) have a figure of their own and are left out.
    """
    return with_layer_places(table[table["rank"] == 0])


def with_layer_places(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same rows, those of truncated forms included."""
    rows = table[table["model"] != NO_MODEL].copy()
    last = rows["layer"] == "final"
    rows["x"] = pd.to_numeric(rows["layer"].mask(last, "0")).astype(float)
    if "n_layers" in rows:
        rows["x"] = rows["x"].mask(last, rows["n_layers"].astype(float) + 1)
    return rows


def of_positions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of what reads positions alone, one per dataset and grid."""
    rows = table[table["family"] == "position"]  # baselines have no model either
    return rows.groupby(["dataset", "grid"], sort=False)[list(SCORES)].mean().reset_index()


def over_models(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Average rows over probe seeds, then over the models of a group.

    `keys`: columns that stay apart, `group` among them. Returns these and the means
    of the numbers. The ends of an interval are those of the t interval over models where there are
    several, else the means of the ends, if known.
    """
    numbers = [str(name) for name in rows.select_dtypes("number").columns if name not in keys]
    each = rows.groupby([*keys, "model"], sort=False, dropna=False)[numbers].mean().reset_index()
    groups = each.groupby(list(keys), sort=False, dropna=False)
    means, counts = groups[numbers].mean(), groups.size()
    deviations = groups[numbers].std()
    for name in SCORES:
        if name in numbers:
            half = pd.Series(half_width(deviations[name], counts), means.index)
            most = np.inf if name == "loss_bits" else 1.0  # no share is beyond all of it
            for end, sign in (("low", -1), ("high", 1)):
                single = means.get(f"{name}_{end}", pd.Series(np.nan, means.index))
                over = (means[name] + sign * half).clip(0.0, most)
                means[f"{name}_{end}"] = single.mask(counts > 1, over)
    return means.reset_index()


def best_layers(rows: pd.DataFrame, family: str = "quadratic") -> pd.DataFrame:
    """Return the layer of each dataset and group where a family of probe is best on validation.

    Columns: `dataset`, `group`, `layer`; the layer with the lowest mean loss on the
    validation split.
    """
    of_family = rows[(rows["family"] == family) & rows["val_loss_bits"].notna()]
    means = of_family.groupby(["dataset", "group", "layer"], sort=False)["val_loss_bits"].mean()
    place = means.groupby(level=["dataset", "group"], sort=False).idxmin()
    places = [dict(zip(("dataset", "group", "layer"), key, strict=True)) for key in place]
    return pd.DataFrame(places, columns=["dataset", "group", "layer"])


def at_best_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return each probe at the layer that validation prefers for it, averaged as `over_models`.

    Returns: a row per dataset, group and probe, with its `layer`.
    """
    rows = fitted(table)
    keys = ["dataset", "group", "grid", "probe", "family", "layer", "x", "n_layers"]
    means = over_models(rows, keys)
    means = means[means["val_loss_bits"].notna()]
    best = means.groupby(["dataset", "group", "probe"], sort=False)["val_loss_bits"].idxmin()
    return means.loc[best].reset_index(drop=True)


def bin_start(label: str) -> float:
    """Return where a bin of a stratum starts: 0 for `up to 1.5`, 1.5 for `1.5 to 3`."""
    words = label.split()
    return 0.0 if label.startswith("up to") else float(words[1 if words[0] == "over" else 0])


MOST_PANELS = 4  # models of a figure about edits; the table has them all


def panels_of(
    table: pd.DataFrame, order: Sequence[str], *, layers: bool = False
) -> list[tuple[str, pd.DataFrame]]:
    """Cut rows about edits into panels: title and rows of each model.

    `table`: with `dataset`, `model`, `group` and `probe`; the first models are kept.
    """
    keys = ["dataset", "model", "probe"]
    groups = [(key, rows) for key, rows in table.groupby(keys, sort=False)]
    place = {name: i for i, name in enumerate(order)}
    groups.sort(key=lambda group: place.get(str(group[1]["group"].iloc[0]), len(place)))
    panels = []
    for (dataset, model, probe), rows in groups[:MOST_PANELS]:
        named = [str(dataset)] if table["dataset"].nunique() > 1 else []
        named += [str(probe)] if table["probe"].nunique() > 1 else []
        named += [f"layer {rows['layer'].iloc[0]}"] if layers else []
        panels.append((f"{model}\n{', '.join(named)}" if named else str(model), rows))
    return panels


def where_validation_is_best(table: pd.DataFrame) -> pd.DataFrame:
    """Keep of each dataset, model and probe the layer whose probe has the lowest validation loss.

    Of readers that were fitted again the edited probe is kept, and of heads their mean.
    """
    keys = ["dataset", "model", "probe"]
    losses = table[table["quantity"] == "val_loss_bits"]
    best = losses.loc[losses.groupby(keys, sort=False)["value"].idxmin(), [*keys, "layer"]]
    rows = table.merge(best, on=[*keys, "layer"])
    again = rows["quantity"].str.contains("refitted_") & (rows["at"] != "")
    of_heads = rows["quantity"].isin([*CORRELATIONS, "object_share"])
    foreign = (again & (rows["at"] != rows["probe"])) | (of_heads & (rows["at"] != MEAN_HEAD))
    return rows[~foreign]


GEOMETRY_KEYS = ["dataset", "group", "probe", "layer", "x", "quantity", "at"]
SERIES = ["dataset", "group", "probe"]
ENDS = ["low", "high"]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Average the numbers over the models of a group.

    Columns: `GEOMETRY_KEYS`, with `x`, the place of the layer (`final` behind the last
    one), `value` and its interval: over models where there are several, else that of the row.
    """
    number = pd.to_numeric(table["layer"].mask(table["layer"] == "final")).astype(float)
    rows = table.assign(x=number.fillna(1 + number.max()).fillna(0))
    groups = rows[rows["value"].notna()].groupby(GEOMETRY_KEYS, sort=False)
    means, counts = groups[["value", *ENDS]].mean(), groups.size()
    half = pd.Series(half_width(groups["value"].std(), counts), means.index)
    units = [QUANTITIES[name].unit for name in means.index.get_level_values("quantity")]
    share = pd.Series([unit.startswith(("share", "probability")) for unit in units], means.index)
    for end, sign in zip(ENDS, (-1, 1), strict=True):
        over = means["value"] + sign * half
        over = over.mask(share, over.clip(0.0, 1.0))
        means[end] = means[end].mask(counts > 1, over)
    return means.reset_index()


def series(rows: pd.DataFrame, models: list[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a name and the rows of every dataset, group and probe, in the order of `models`."""
    varying = [name for name in ("dataset", "probe") if rows[name].nunique() > 1]
    order = {name: i for i, name in enumerate(models)}
    keys = rows[SERIES].drop_duplicates()
    keys = keys.assign(place=keys["group"].map(order)).sort_values(["dataset", "probe", "place"])
    for key in keys[SERIES].itertuples(index=False):
        chosen = (rows[SERIES] == list(key)).all(axis=1)
        yield (
            ", ".join([str(key.group), *(str(getattr(key, name)) for name in varying)]),
            rows[chosen],
        )


def curve(rows: pd.DataFrame, quantity: str, at: str | None = None) -> pd.DataFrame:
    """Return a quantity of one series by layer; a mean over all `at` where none is named."""
    of_quantity = rows[rows["quantity"] == quantity]
    of_quantity = of_quantity if at is None else of_quantity[of_quantity["at"] == at]
    means = of_quantity.groupby(["layer", "x"], sort=False)[["value", *ENDS]].mean()
    return means.reset_index().sort_values("x")


def without_loss(edits: pd.DataFrame) -> dict[str, list[str]]:
    """Return why models have no loss of their own: reason -> models."""
    none = edits[(edits["quantity"] == "pretraining_loss") & (edits["reason"] != "")]
    reasons = none.groupby("reason")["model"].unique()
    return {str(reason): list(models) for reason, models in reasons.items()}
