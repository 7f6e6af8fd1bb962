"""Parts of the tables of embeddings that figures and the report read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bindscope.statistics.means import half_width

EMBEDDING = ["analysis", "dataset", "embedding", "vectors"]


def rows_with(table: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Return the rows that have a value in each of some columns."""
    kept = pd.Series(True, index=table.index)
    for name, value in wanted.items():
        kept &= table[name] == value
    return table[kept]


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with `name`, by which figures tell embeddings apart."""
    several = table["dataset"].nunique() > 1 or table["analysis"].nunique() > 1
    found = table["embedding"].copy()
    real = table["vectors"] != "planted"
    found[real] += ", " + table["vectors"][real]
    if several:
        found = found + "\n" + table["dataset"]
    return table.assign(name=found)


def edits_by_strength(table: pd.DataFrame) -> pd.DataFrame:
    """Return how edits come out, over concept types in proportion to their edits.

    A row per embedding, estimator, measure, stratum and strength: `value`, `floor`, `n_scenes`.
    """
    keys = [*EMBEDDING, "estimator", "measure", "stratum", "strength"]
    own = table[table["n_scenes"] > 0]
    weighted = own.assign(
        hits=own["value"] * own["n_scenes"],
        floors=own["bag_of_concepts_floor"] * own["n_scenes"],
    )
    summed = weighted.groupby(keys, sort=False)[["hits", "floors", "n_scenes"]].sum(min_count=1)
    found = summed.reset_index()
    floor = found["floors"] / found["n_scenes"]
    value = found["hits"] / found["n_scenes"]
    return found.assign(value=value, floor=floor)


def approximated(
    table: pd.DataFrame, measure: str, stratum: str = "all", split: str = "test"
) -> pd.DataFrame:
    """Return means over seeds after the last step, with t intervals; the floor beside them."""
    own = rows_with(table, measure=measure, stratum=stratum, split=split, selected="final")
    own = own[own["n_scenes"] > 0]
    keys = [*EMBEDDING, "approximator", "kind", "coverage"]
    means = own.groupby(keys, sort=False).agg(
        value=("value", "mean"), deviation=("value", "std"), n=("value", "size"),
        floor=("bag_of_concepts_floor", "mean"), chance=("chance", "mean"),
        n_scenes=("n_scenes", "min"),
    ).reset_index()  # fmt: skip
    half = half_width(means["deviation"], means["n"])
    ends = {"value_low": means["value"] - half, "value_high": means["value"] + half}
    clipped = {name: np.clip(end, 0.0, 1.0) for name, end in ends.items()}
    return means.assign(**clipped)
