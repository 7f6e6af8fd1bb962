"""Parts of the tables that figures and the report read."""

from __future__ import annotations

from typing import Any

import pandas as pd

MODEL = ["suite", "task", "model", "origin"]
KINDS = {"oracle": "oracle", "toy": "toy", "local": "from a folder"}  # said beside every name


def rows_with(table: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Return the rows that have a value in each of some columns."""
    kept = pd.Series(True, index=table.index)
    for name, value in wanted.items():
        kept &= table[name] == value
    return table[kept]


def summaries(table: pd.DataFrame, experiment: str = "") -> pd.DataFrame:
    """Return the rows of whole conditions, of one experiment or of all."""
    rows = rows_with(table, query="all")
    return rows_with(rows, experiment=experiment) if experiment else rows


def cells(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return the rows of single questions and candidates."""
    rows = rows_with(table, experiment=experiment)
    return rows[rows["query"] != "all"]


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with `name`: the model, what kind it is, and the task where there are several.

    What is no real model is never shown without saying so.
    """
    kind = table["origin"].map(KINDS)
    name = table["model"] + kind.map(lambda word: f" ({word})", na_action="ignore").fillna("")
    if table["task"].nunique() > 1:
        name = name + "\n" + table["task"]
    if table.groupby(["task", "model"])["suite"].nunique().max() > 1:
        name = name + "\n" + table["suite"]
    return table.assign(name=name)


def own_items(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return how many answers are as before, whatever is expected: a row per model and condition.

    This is the accuracy of arXiv 2310.17191's Table 1, with respect to the original pairing: the
    mean over things of the share of rows that answer with the thing's own item.
    """
    rows = cells(table, experiment)
    own = rows[rows["query"].str[1:] == rows["candidate"].str[1:]]
    keys = [*MODEL, "condition"]
    return own.groupby(keys, sort=False).agg(share=("share", "mean")).reset_index()


def in_order(values: pd.Series) -> list[str]:
    """Return the values that there are, in the order of their first row."""
    return [str(value) for value in dict.fromkeys(values)]


def roles_in_order(names: pd.Series) -> list[str]:
    """Return names like O1' that there are: those of the base first, by role."""
    return sorted(set(names), key=lambda name: (name.endswith("'"), len(name), name))
