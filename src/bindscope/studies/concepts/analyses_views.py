"""Parts of the tables of embeddings that figures and the report read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bindscope.statistics.means import mean_interval

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
    """Return what is predicted of models and planted encoders, with `floor`; see also the next."""
    return _predicted(table[table["vectors"] != "dual"], measure, stratum, split)


def approximated_duals(
    table: pd.DataFrame, measure: str, stratum: str = "all", split: str = "test"
) -> pd.DataFrame:
    """Return means over training runs of dual encoders, at the approximators' largest coverage.

    `value` and `gain` have t intervals over runs where there are several; where there is one, those
    of the run, over objects. `n` says how many.
    """
    own = _predicted(table[table["vectors"] == "dual"], measure, stratum, split)
    own = own[own["coverage"] == own["coverage"].max()]
    keys = [*EMBEDDING, "approximator", "kind", "trained_coverage"]
    lowest = -np.inf if measure.startswith("r2") else 0.0
    found = []
    for names, runs in own.groupby(keys, sort=False):
        row = {**dict(zip(keys, names, strict=True)), "n": len(runs)}
        for name, least in (("value", lowest), ("gain", -1.0)):
            ends = [runs[f"{name}{end}"].iloc[0] for end in ("", "_low", "_high")]
            if len(runs) > 1 and runs[name].notna().all():
                ends = list(mean_interval(runs[name], possible=(least, 1.0)))
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
        means = {name: runs[name].mean() for name in ("floor", "chance")}
        fewest = {name: runs[name].min() for name in ("n_scenes", "n_resampled")}
        found.append({**row, **means, **fewest})
    columns = [*keys, "n", "value", "value_low", "value_high", "gain", "gain_low", "gain_high",
               "floor", "chance", "n_scenes", "n_resampled"]  # fmt: skip
    return pd.DataFrame(found, columns=columns)


def _predicted(table: pd.DataFrame, measure: str, stratum: str, split: str) -> pd.DataFrame:
    own = rows_with(table, measure=measure, stratum=stratum, split=split)
    return own[own["n_scenes"] > 0].rename(columns={"bag_of_concepts_floor": "floor"})
