"""Schemas of the tables: columns, keys, and the rules that a table must obey to be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from bindscope.core.errors import StoreError, snakemake_command
from bindscope.studies.binding_information import rules
from bindscope.studies.binding_information.rules import Rule
from bindscope.tables.columns import (
    ATTENTION_COLUMNS,
    BINDING_COLUMNS,
    PRIOR_COLUMNS,
    STATISTICS_COLUMNS,
    Column,
)


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
    # Each can only be asked about a table that passed those before it.
    broken = (
        _wrong_columns(frame, schema)
        or _wrong_values(frame, schema)
        or _broken_rules(frame, schema)
    )
    if broken:
        raise StoreError(
            where,
            f"table {schema.stamp} breaks its schema: {' | '.join(broken)}",
            "rows of another version of the code? rerun the fits that the message names "
            f"({snakemake_command('--forcerun <row file>')}); otherwise report this as a bug",
        )
    return frame


def pandas_type(column: Column) -> str:
    """Return the pandas type of a column: `str`, `Int64` where null is allowed, else its kind."""
    if column.kind == "int64" and column.null != "never":
        return "Int64"
    return "str" if column.kind == "string" else column.kind


def _wrong_columns(frame: pd.DataFrame, schema: TableSchema) -> list[str]:
    """Say which columns are missing, unknown, of another type or out of order."""
    there = list(frame.columns)
    broken = [f"column {name}: missing" for name in schema.names if name not in there]
    broken += [f"column {name}: not in the schema" for name in there if name not in schema.names]
    broken += [f"column {name}: twice" for name in frame.columns[frame.columns.duplicated()]]
    if not broken and there != schema.names:
        moved = next(a for a, b in zip(there, schema.names, strict=False) if a != b)
        broken.append(f"column {moved}: not in the schema's order")
    for column in schema.columns:
        expected = pd.api.types.pandas_dtype(pandas_type(column))
        # No type: it is missing, or stands twice.
        found = getattr(frame.get(column.name), "dtype", expected)
        if found != expected:
            broken.append(f"column {column.name}: holds {found} instead of {expected}")
    return broken


def _wrong_values(frame: pd.DataFrame, schema: TableSchema) -> list[str]:
    """Say which columns hold a value that they must not, in which rows."""
    return [
        f"column {column.name}: {words}{_rows(frame, schema, ~held)}"
        for column in schema.columns
        for words, held in _checks(column, frame[column.name])
        if not held.all()
    ]


def _broken_rules(frame: pd.DataFrame, schema: TableSchema) -> list[str]:
    """Say which rules are broken, by which rows; the key is one of them."""
    twice = frame.duplicated(list(schema.key), keep=False)
    broken = [f"one row per {schema.key}{_rows(frame, schema, twice)}"] if twice.any() else []
    for words, rule in schema.rules:
        held = rule(frame).fillna(True).astype(bool)
        if not held.all():
            broken.append(f"{words}{_rows(frame, schema, ~held)}")
    return broken


def _checks(column: Column, values: pd.Series[Any]) -> Iterator[tuple[str, pd.Series[bool]]]:
    """Yield what must hold of a column, in words and by row; of a null, only that it may be."""
    null = values.isna()
    if column.null == "never":
        yield "must not be null", ~null
    if column.kind == "float64":
        yield "finite", rules.finite(values)
    if column.low is not None:
        yield f"at least {column.low:g}", (values >= column.low) | null
    if column.high is not None:
        yield f"at most {column.high:g}", (values <= column.high) | null
    if column.values:
        yield f"one of {', '.join(column.values)}", values.isin(column.values) | null
    if column.pattern:
        yield f"like {column.pattern}", values.str.match(column.pattern) | null


def _rows(frame: pd.DataFrame, schema: TableSchema, wrong: pd.Series[bool]) -> str:
    """Name the first rows (three) of those that are wrong, by their key."""
    found = frame.loc[wrong, list(schema.key)]
    keys = [" ".join(map(str, row)) for row in found.head(3).itertuples(index=False)]
    return f" [{'; '.join(keys)}{'; ...' if len(found) > 3 else ''}]"


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
