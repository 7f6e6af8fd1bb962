"""What the report says about the length of tokens."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import Chapter, Column, Finding, Section, page_table
from bindscope.tables.numbers import number

COLUMNS = (
    Column("dataset", "dataset", "label"),
    Column("model", "model", "label"),
    Column("layer", "layer", "label"),
    Column("length", "length", "number", "mean Euclidean length over test scenes"),
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Name the longest token, and list all of them."""
    table = tables["lengths"]
    longest = table.loc[table["length"].idxmax()]
    sentence = f"The longest [CLS] token of {longest['model']} is {number(longest['length'])} long."
    listed = page_table("Lengths", COLUMNS, table)
    return Chapter(
        findings=(Finding(sentence),),
        sections=(Section("lengths", "All lengths", tables=(listed,)),),
    )
