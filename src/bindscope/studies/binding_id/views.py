"""Parts of the tables that figures and the report read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from bindscope.tables.rows import rows_with

MODEL = ["suite", "task", "model", "origin"]
KINDS = {
    "oracle": "oracle",
    "toy": "toy",
    "interchange_toy": "toy, made to bind",
    "local": "from a folder",
}  # said beside every name


def summaries(table: pd.DataFrame, experiment: str = "") -> pd.DataFrame:
    """Return the rows of whole conditions, of one experiment or of all."""
    rows = rows_with(table, query="all", candidate="expected")
    return rows_with(rows, experiment=experiment) if experiment else rows


def combined(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of mean differences, of one group or more, and of their random vectors."""
    return rows[rows["how"].isin(["none", "added", "random"])]


def blinded(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of hidden groups of the experiment `heads`, without its control."""
    return rows_with(table, experiment="heads", how="hidden")


def cells(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return the rows of single questions and candidates."""
    rows = rows_with(table, experiment=experiment)
    return rows[rows["query"] != "all"]


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with `kind`, `model_name`, `place` and `name`, both of the latter.

    The model with what kind it is: what is no real model is never shown without saying so. The
    place is the task and the suite, where there are several.
    """
    words = {origin: f" ({word})" for origin, word in KINDS.items()}
    kind = table["origin"].map(lambda origin: words.get(origin, ""))
    model_name = table["model"] + kind
    place = pd.Series("", index=table.index)
    if table["task"].nunique() > 1:
        place = place + "\n" + table["task"]
    if table.groupby(["task", "model"])["suite"].nunique().max() > 1:
        place = place + "\n" + table["suite"]
    return table.assign(
        kind=kind, name=model_name + place, model_name=model_name, place=place.str.lstrip()
    )


def most_measured(
    table: pd.DataFrame, most: int, among: Iterable[tuple[str, str]] | None = None
) -> tuple[pd.DataFrame, str]:
    """Return the tasks of suites that a figure has room for, and say which it does not show.

    Those with most new models come first, `among` some pairs of task and suite. `most` models fit,
    a model on two tasks counted twice; of one task all are there if they can.
    """
    by_task = table.groupby(["task", "suite"], sort=False)["model"]
    pairs: Any = by_task.unique().map(set).to_dict()
    remaining, chosen, covered = (
        list(pairs if among is None else among),
        list[tuple[str, str]](),
        set[str](),
    )
    while remaining:
        key = max(remaining, key=lambda pair: (len(pairs[pair] - covered), len(pairs[pair])))
        remaining.remove(key)
        if not covered or len(pairs[key]) <= most:
            chosen.append(key)
            covered |= pairs[key]
            most -= len(pairs[key])
    tasks = {task for task, _ in chosen}
    missing = {
        f"{task} of {suite}" if task in tasks else task for task, suite in {*pairs} - {*chosen}
    }
    note = f"Not shown, see the table: {', '.join(sorted(missing))}." if missing else ""
    return table[pd.MultiIndex.from_frame(table[["task", "suite"]]).isin(chosen)], note


def few_models(table: pd.DataFrame, most: int) -> tuple[pd.DataFrame, list[str], str]:
    """Return named rows and the names that a figure has room for, and say what it does not show.

    As `most_measured`; of a task with more than `most` models the first are there.
    """
    rows, note = most_measured(table, most)
    rows = named(rows)
    names = in_order(rows["name"])
    if len(names) > most:
        note = f"The first {most} of {len(names)} models; see the table. {note}".strip()
    return rows, names[:most], note


def costly(heads: pd.DataFrame) -> bool:
    """Return whether hiding a group from all heads costs answers, given a model's rows of it."""
    return bool((of_all_layers(heads)["change_high"] < 0).all())


def of_all_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of edits at all layers, and so of all heads."""
    return rows[rows["first_layer"].isna()]


def in_order(values: pd.Series) -> list[str]:
    """Return the values that there are, in the order of their first row."""
    return [str(value) for value in dict.fromkeys(values)]
