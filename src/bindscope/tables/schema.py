"""Schemas of the tables: columns, keys, and the rules that a table must obey to be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pandera.pandas as pandera
import pyarrow as pa

from bindscope.errors import StoreError, snakemake_command
from bindscope.tables import rules
from bindscope.tables.columns import (
    ATTENTION_COLUMNS,
    BINDING_COLUMNS,
    PRIOR_COLUMNS,
    STATISTICS_COLUMNS,
    Column,
)
from bindscope.tables.rules import Rule


@dataclass(frozen=True)
class TableSchema:
    """A table: its columns in order, its key and its rules.

    Attributes
    ----------
    name, version
        Written into the Parquet file as `bindscope.schema = <name>/<version>`; the version rises
        whenever a column changes.
    columns
        The columns, in the order they are written.
    key
        The columns that together name a row.
    rules
        (what must hold, in words; function from a table to one truth value per row).
    """

    name: str
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    @property
    def stamp(self) -> str:
        """Name and version, as written into Parquet files."""
        return f"{self.name}/{self.version}"

    def arrow(self) -> pa.Schema:
        """Return the Arrow schema with the stamp as metadata."""
        fields = [
            pa.field(column.name, getattr(pa, column.kind)(), nullable=column.null != "never")
            for column in self.columns
        ]
        return pa.schema(fields, metadata={"bindscope.schema": self.stamp})

    def pandera(self) -> pandera.DataFrameSchema:
        """Return the pandera schema: strict, ordered, unique by key, with every rule."""
        return pandera.DataFrameSchema(
            {column.name: _pandera_column(column) for column in self.columns},
            name=self.stamp,
            strict=True,
            ordered=True,
            checks=[
                pandera.Check(_unique(self.key), name="key", error=f"one row per {self.key}"),
                *(pandera.Check(rule, name=words, error=words) for words, rule in self.rules),
            ],
        )


def frame_of(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pd.DataFrame:
    """Make a table with the schema's columns and types from rows; absent fields are null.

    Raises
    ------
    StoreError
        If a value does not fit its column's type.
    """
    data = {}
    for column in schema.columns:
        values = [row.get(column.name) for row in rows]
        try:
            data[column.name] = pd.Series(values, dtype=pandas_type(column))
        except (TypeError, ValueError) as error:
            odd = sorted({repr(value) for value in values if not isinstance(value, int | float)})
            raise StoreError(
                schema.stamp,
                f"column {column.name} ({column.kind}) cannot hold {', '.join(odd[:3])}: {error}",
                "rerun the jobs that wrote the rows",
            ) from error
    return pd.DataFrame(data, columns=schema.names)


def validate(frame: pd.DataFrame, schema: TableSchema, where: str) -> pd.DataFrame:
    """Check a table against its schema.

    Parameters
    ----------
    frame
        The table.
    schema
        Its schema.
    where
        The file that is at fault if a rule is broken.

    Returns
    -------
    DataFrame
        The same table with a fresh index.

    Raises
    ------
    StoreError
        Listing each broken rule with the first rows that break it.
    """
    frame = frame.reset_index(drop=True)
    try:
        return schema.pandera().validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise StoreError(
            where,
            f"table {schema.stamp} breaks its schema: {_failures(frame, schema, error)}",
            "rows of another version of the code? rerun the fits that the message names "
            f"({snakemake_command('--forcerun <row file>')}); otherwise report this as a bug",
        ) from error


def pandas_type(column: Column) -> str:
    """Return the pandas type of a column: `str`, `Int64` where null is allowed, else its kind."""
    if column.kind == "int64" and column.null != "never":
        return "Int64"
    return "str" if column.kind == "string" else column.kind


def _pandera_column(column: Column) -> pandera.Column:
    checks = []
    if column.kind == "float64":
        checks.append(pandera.Check(rules.finite, name="finite", error="finite or null"))
    if column.low is not None:
        checks.append(pandera.Check.ge(column.low))
    if column.high is not None:
        checks.append(pandera.Check.le(column.high))
    if column.values:
        checks.append(pandera.Check.isin(list(column.values)))
    if column.pattern:
        checks.append(pandera.Check.str_matches(column.pattern))
    return pandera.Column(pandas_type(column), checks, nullable=column.null != "never")


def _unique(key: tuple[str, ...]) -> Callable[[pd.DataFrame], pd.Series[bool]]:
    return lambda frame: ~frame.duplicated(list(key), keep=False)


def _failures(frame: pd.DataFrame, schema: TableSchema, error: pandera.errors.SchemaErrors) -> str:
    """Say which rules are broken, by which rows (three per rule)."""
    cases = error.failure_cases
    parts = []
    for (column, check), group in cases.groupby(["column", "check"], sort=False, dropna=False):
        place = "" if column in (None, schema.stamp) else f"column {column}: "
        indices = sorted({int(i) for i in group["index"].dropna()})
        keys = [
            " ".join(str(frame.at[i, name]) for name in schema.key if name in frame)
            for i in indices[:3]
        ]
        cause = "" if indices else f" ({', '.join(map(str, group['failure_case'].head(3)))})"
        rows = f" [{'; '.join(keys)}{'; ...' if len(indices) > 3 else ''}]" if keys else ""
        parts.append(f"{place}{check}{cause}{rows}")
    return " | ".join(parts)


BINDING_INFORMATION = TableSchema(
    name="binding_information",
    version=1,
    columns=BINDING_COLUMNS,
    key=("dataset", "model", "layer", "tokens", "probe", "control", "seed"),
    rules=rules.BINDING_RULES,
)

ATTENTION = TableSchema(
    name="attention",
    version=1,
    columns=ATTENTION_COLUMNS,
    key=("dataset", "model", "layer", "probe", "seed"),
    rules=rules.ATTENTION_RULES,
)

PRIORS = TableSchema(
    name="priors",
    version=2,
    columns=PRIOR_COLUMNS,
    key=("dataset", "split"),
    rules=rules.PRIOR_RULES,
)

SCENE_STATISTICS = TableSchema(
    name="scene_statistics",
    version=1,
    columns=STATISTICS_COLUMNS,
    key=("dataset", "split"),
)
