"""Parts of the study's tables that figures and the report read."""

from __future__ import annotations

import pandas as pd

from bindscope.statistics.means import half_width

RUN = ["encoder", "kind", "space", "n_space", "query_pool", "coverage"]


def recognised(
    table: pd.DataFrame,
    *,
    target: str = "object",
    split: str = "held_out",
    n_objects: int = 2,
    stratum: str = "all",
    candidates: str = "full",
) -> pd.DataFrame:
    """Return what was recognised of one kind of scenes after the last step, a row per run."""
    wanted = {
        "target": target, "split": split, "n_objects": n_objects, "stratum": stratum,
        "candidates": candidates, "selected": "final",
    }  # fmt: skip
    kept = pd.Series(True, index=table.index)
    for name, value in wanted.items():
        kept &= table[name] == value
    return table[kept]


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds of `accuracy` with t intervals, which are empty for one seed."""
    grouped = rows.groupby(RUN, sort=False)
    means = grouped.agg(
        accuracy=("accuracy", "mean"), deviation=("accuracy", "std"), n=("accuracy", "size"),
        floor=("bag_of_concepts_floor", "mean"), chance=("chance", "mean"),
    ).reset_index()  # fmt: skip
    half = half_width(means["deviation"], means["n"])
    ends = {"accuracy_low": means["accuracy"] - half, "accuracy_high": means["accuracy"] + half}
    clipped = {name: end.clip(0.0, 1.0) for name, end in ends.items()}
    return means.assign(**clipped).sort_values([*RUN[:1], "n_space", "query_pool", "coverage"])
