"""What a table is: its columns, its key and its rules, all of which it must obey to be written.

The declarations are the one source of the Arrow types, of docs/tables.md and of what a reference
compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from bindscope.core.errors import StoreError, snakemake_command
from bindscope.core.interfaces import Inputs
from bindscope.core.registries import resolve, studies
from bindscope.tables.rows import rows_of

ColumnType = Literal["string", "int64", "float64"]
Null = Literal["never", "reason", "allowed"]
Reference = Literal["", "same", "exact", "close"]
RowRule = tuple[str, Callable[[pd.DataFrame], "pd.Series[bool]"]]

SLUG = r"^[a-z0-9][a-z0-9-]{0,31}$"
_KEY = r"^[0-9a-f]{8,64}(:[0-9a-f]{8,64})?$"


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name, kind
        Name and Arrow type.
    unit
        Unit in words ("bits per scene"); empty for labels.
    meaning, source
        What the number is, and which step or equation it comes from.
    null
        `never`, `reason` (only when the row's `reason` says why) or `allowed`.
    low, high
        Smallest and largest value allowed.
    values, pattern
        Values, or the regular expression, that a label must match.
    reference
        How it is compared with a reference: `same` text or number, `exact` up to rounding,
        `close` within a tolerance; empty: not compared. See `bindscope.tables.compare`.
    """

    name: str
    kind: ColumnType
    unit: str
    meaning: str
    source: str
    null: Null = "never"
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    pattern: str = ""
    reference: Reference = ""


def label(
    name: str,
    meaning: str,
    source: str,
    *,
    values: tuple[str, ...] = (),
    pattern: str = "",
    null: Null = "never",
    reference: Reference = "",
) -> Column:
    """Return a column of text, all of it one of `values`, or like a regular expression."""
    return Column(name, "string", "", meaning, source, null, None, None, values, pattern, reference)


def count(
    name: str,
    unit: str,
    meaning: str,
    source: str,
    *,
    null: Null = "never",
    reference: Reference = "",
) -> Column:
    """Return a column of whole numbers from 0."""
    return Column(name, "int64", unit, meaning, source, null, 0, reference=reference)


def bits(
    name: str,
    meaning: str,
    source: str,
    *,
    null: Null = "reason",
    low: float | None = None,
    reference: Reference = "",
) -> Column:
    """Return a column of bits per scene."""
    unit = "bits per scene"
    return Column(name, "float64", unit, meaning, source, null, low, reference=reference)


def share(
    name: str,
    unit: str,
    meaning: str,
    source: str,
    *,
    null: Null = "reason",
    low: float | None = 0.0,
    high: float | None = 1.0,
    reference: Reference = "",
) -> Column:
    """Return a column of shares of something (`unit`), from 0 to 1 unless told otherwise."""
    return Column(name, "float64", unit, meaning, source, null, low, high, reference=reference)


def joined(column: str, known: Sequence[str]) -> RowRule:
    """Return the rule that a column holds known words, sorted and once each, joined by `;`."""

    def good(words: str) -> bool:
        listed = words.split(";") if words else []
        return listed == sorted(set(listed)) and set(listed) <= set(known)

    sentence = f"{column} are known, sorted and named once"
    return sentence, lambda frame: frame[column].map(good).astype(bool)


DATASET = label("dataset", "Name of the dataset.", "config `datasets[].name`", pattern=SLUG)
MODEL = label("model", "Name of the model.", "config `models[].name`", pattern=SLUG)
KEYS = (
    label(
        "spec_key",
        "SHA-256 of what the job depends on: its configuration and the keys of its inputs; the "
        "first 8 digits stand in the row file's name.",
        "`bindscope.core.keys`",
        pattern=_KEY,
    ),
    label(
        "code_key",
        "Hash of the code that ran, and of that with the code of its inputs.",
        "`bindscope.core.keys`",
        pattern=_KEY,
    ),
)


@dataclass(frozen=True)
class TableSchema:
    """A table: its columns in order, its key and its rules.

    Attributes
    ----------
    name, version
        Written into the Parquet file as `bindscope.schema = <name>/<version>`; the version rises
        whenever a column changes.
    description
        What a row is, in a sentence or two.
    columns
        The columns, in the order they are written.
    key
        The columns that together name a row.
    rules
        (what must hold, in words; function from a table to one truth value per row).
    order
        How rows are ordered by columns of the key whose own order is not meant: column ->
        function from its values to others that sort.
    """

    name: str
    version: int
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rules: tuple[RowRule, ...] = ()
    order: Mapping[str, Callable[[pd.Series[Any]], pd.Series[Any]]] = field(default_factory=dict)

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


def declared() -> dict[str, TableSchema]:
    """Return the schemas of all studies' tables, by name, in the order of the registry."""
    entries = [entry for study in studies().values() for entry in study.tables]
    return {entry.name: resolve(entry.implementation).schema for entry in entries}


def table_of(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pd.DataFrame:
    """Make a table of rows: typed, ordered by its key and valid.

    Raises
    ------
    StoreError
        If a row has a field that is no column, or breaks the schema.
    """
    return validate(ordered(frame_of(rows, schema), schema), schema, schema.name)


@dataclass(frozen=True)
class RowTable:
    """A `core.interfaces.Table` of the rows of one role, as the jobs left them.

    Attributes
    ----------
    schema
        Its schema.
    role, output
        Which products hold its rows, and in which of their files (empty: the first).
    """

    schema: TableSchema
    role: str
    output: str = ""

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Build the table."""
        return table_of(rows_of(inputs.get(self.role), self.output), self.schema)


def frame_of(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pd.DataFrame:
    """Make a table with the schema's columns and types from rows; absent fields are null.

    Raises
    ------
    StoreError
        If a row has a field that is no column, or a value does not fit its column's type.
    """
    for row in rows:
        refuse_other_fields(row, schema)
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


def refuse_other_fields(row: Mapping[str, Any], schema: TableSchema) -> None:
    """Refuse a row with a field that is no column of the table."""
    unknown = sorted(set(row) - set(schema.names))
    if unknown:
        raise StoreError(
            f"row {row_name(row, schema)} of {schema.name}",
            f"fields {', '.join(unknown)} are no columns of {schema.stamp}",
            "rerun the job that wrote the row; a new column belongs in the table's schema",
        )


def row_name(row: Mapping[str, Any], schema: TableSchema) -> str:
    """Name a row by its key."""
    return " ".join(str(row.get(part)) for part in schema.key)


def ordered(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Sort rows by the schema's key, as its `order` says."""
    keys = frame[list(schema.key)].copy()
    for name, values in schema.order.items():
        keys[name] = values(keys[name])
    return frame.loc[keys.sort_values(list(schema.key), kind="stable").index].reset_index(drop=True)


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
        dtype = getattr(frame.get(column.name), "dtype", expected)
        if dtype != expected:
            broken.append(f"column {column.name}: holds {dtype} instead of {expected}")
    return broken


def _wrong_values(frame: pd.DataFrame, schema: TableSchema) -> list[str]:
    """Say which columns hold a value that they must not, in which rows."""
    return [
        f"column {column.name}: {words}{_rows(frame, schema, ~is_valid)}"
        for column in schema.columns
        for words, is_valid in _checks(column, frame[column.name])
        if not is_valid.all()
    ]


def _broken_rules(frame: pd.DataFrame, schema: TableSchema) -> list[str]:
    """Say which rules are broken, by which rows; the key is one of them."""
    twice = frame.duplicated(list(schema.key), keep=False)
    broken = [f"one row per {schema.key}{_rows(frame, schema, twice)}"] if twice.any() else []
    for words, rule in schema.rules:
        is_valid = rule(frame).fillna(True).astype(bool)
        if not is_valid.all():
            broken.append(f"{words}{_rows(frame, schema, ~is_valid)}")
    return broken


def _checks(column: Column, values: pd.Series[Any]) -> Iterator[tuple[str, pd.Series[bool]]]:
    """Yield what must hold of a column, in words and by row; of a null, only that it may be."""
    null = values.isna()
    if column.null == "never":
        yield "must not be null", ~null
    if column.kind == "float64":
        yield "finite", values.abs() != np.inf
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
    wrong_keys = frame.loc[wrong, list(schema.key)]
    keys = [" ".join(map(str, row)) for row in wrong_keys.head(3).itertuples(index=False)]
    return f" [{'; '.join(keys)}{'; ...' if len(wrong_keys) > 3 else ''}]"
