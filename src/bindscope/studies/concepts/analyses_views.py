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
    """Return means over seeds after the last step, with t intervals; the floor beside them.

    Of models and planted encoders; `approximated_duals` has controlled dual encoders.
    """
    own = _foretold(table[table["vectors"] != "dual"], measure, stratum, split)
    return _means(own, [*EMBEDDING, "approximator", "kind", "coverage"])


def approximated_duals(
    table: pd.DataFrame, measure: str, stratum: str = "all", split: str = "test"
) -> pd.DataFrame:
    """Return the same of dual encoders, by what they were trained on, at the largest coverage.

    Means over the approximator's seeds come first: t intervals are over seeds of the training.
    """
    own = _foretold(table[table["vectors"] == "dual"], measure, stratum, split)
    own = own[own["coverage"] == own["coverage"].max()]
    keys = [*EMBEDDING, "approximator", "kind", "trained_coverage"]
    columns = ["value", "bag_of_concepts_floor", "chance", "n_scenes"]
    runs = own.groupby([*keys, "trained_seed"], sort=False)[columns].mean().reset_index()
    return _means(runs, keys, None if measure.startswith("r2") else 0.0)


def _foretold(table: pd.DataFrame, measure: str, stratum: str, split: str) -> pd.DataFrame:
    own = rows_with(table, measure=measure, stratum=stratum, split=split, selected="final")
    return own[own["n_scenes"] > 0]


def _means(rows: pd.DataFrame, keys: list[str], lowest: float | None = 0.0) -> pd.DataFrame:
    means = rows.groupby(keys, sort=False).agg(
        value=("value", "mean"), deviation=("value", "std"), n=("value", "size"),
        floor=("bag_of_concepts_floor", "mean"), chance=("chance", "mean"),
        n_scenes=("n_scenes", "min"),
    ).reset_index()  # fmt: skip
    half = half_width(means["deviation"], means["n"])
    ends = {"value_low": means["value"] - half, "value_high": means["value"] + half}
    clipped = {name: np.clip(end, lowest, 1.0) for name, end in ends.items()}
    return means.assign(**clipped)


def saved_bits(table: pd.DataFrame) -> pd.DataFrame:
    """Return the bits that approximators save, as means over seeds, a row per embedding."""
    own = rows_with(table, measure="saved_bits")
    keys = [*EMBEDDING, "approximator", "trained_coverage"]
    means = own.groupby(keys, sort=False, dropna=False).agg(
        saved=("value", "mean"), deviation=("value", "std"), n=("value", "size"),
        bits=("bits", "mean"), bits_without=("bits_without", "mean"),
    ).reset_index()  # fmt: skip
    half = half_width(means["deviation"], means["n"])
    return means.assign(saved_low=means["saved"] - half, saved_high=means["saved"] + half)
