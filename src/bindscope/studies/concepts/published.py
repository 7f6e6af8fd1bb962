"""The paper's numbers (resources/published/concepts.csv), and where ours may stand beside them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.figures.figure import table_of
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.tables.published import read_published
from bindscope.tables.rows import rows_with

# From `analysis_kind` on they say which of our rows have the same quantity, by the names of data
# sets and models in `config/presets/concepts_published`.
COLUMNS = [
    "paper",
    "source",
    "dataset",
    "model",
    "condition",
    "quantity",
    "value",
    "unit",
    "note",
    "analysis_kind",
    "preset_dataset",
    "preset_embedding",
    "vectors",
    "variant",
    "measure",
    "coverage",
]


def read_with_published(inputs: Inputs) -> dict[str, Any]:
    """Read the `table` that a figure shows, and the paper's numbers, `published`."""
    numbers = read_published(inputs.resources["concepts"], COLUMNS, ("value", "coverage"))
    return {**table_of(CONCEPTS_SCHEMA)(inputs), "published": numbers}


def beside(rows: pd.DataFrame, published: pd.DataFrame | None) -> pd.DataFrame:
    """Return the paper's numbers of embeddings and analyses among rows, with the rows' `name`.

    They agree where data set, model and vectors have the paper's names and everything was split
    and fitted by its protocol; an empty `variant` is of any. Numbers without a data set stand
    beside all of them.
    """
    if published is None:
        return pd.DataFrame(columns=["name", *COLUMNS])
    keys, names = ["analysis_kind", "preset_embedding", "vectors"], ["our_dataset", "name"]
    ours = rows_with(rows, split_by="scenes", protocol="paper")
    ours = ours.rename(columns={"dataset": "our_dataset", "embedding": "preset_embedding"})
    both = published.merge(ours[[*keys, *names]].drop_duplicates(), on=keys)
    anywhere = both["preset_dataset"] == ""
    return both[anywhere | (both["preset_dataset"] == both["our_dataset"])]
