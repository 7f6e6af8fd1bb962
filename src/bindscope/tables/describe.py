"""The generated part of docs/tables.md: every column with its unit and meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from bindscope.tables.schema import KEYS, Column, TableSchema, declared

_ENDS = ("_low", "_high")


def markdown(schema: TableSchema, shared: Mapping[tuple[str, ...], Column]) -> str:
    """Describe a table as Markdown.

    Parameters
    ----------
    schema
        The table.
    shared
        Columns that are described once for all tables; this one only names them.

    Returns
    -------
    str
        A heading, a description, the key, and a table of columns.
    """
    lines = [f"## `{schema.name}`", "", schema.description, ""]
    lines += [f"Key: {_names(schema.key)}.", ""]
    stated = {*schema.key, *(column.name for column in KEYS)}
    common = [column for column in schema.columns if _text(column) in shared]
    if further := [c.name for c, _ in _with_ends(common) if c.name not in stated]:
        lines += [f"And of the [shared columns](#shared-columns): {_names(further)}.", ""]
    rest = (column for column in schema.columns if _text(column) not in shared)
    return "\n".join([*lines, *_rows(rest, schema.description)]) + "\n"


def all_tables() -> str:
    """Describe the columns that tables share, then the tables of all studies."""
    schemas = list(declared().values())
    shared = shared_columns(schemas)
    lines = ["## Shared columns", "", *_rows(shared.values()), ""]
    return "\n".join([*lines, *(markdown(schema, shared) for schema in schemas)])


def shared_columns(schemas: list[TableSchema]) -> dict[tuple[str, ...], Column]:
    """Return the columns that two tables or more describe in the same words."""
    columns = [column for schema in schemas for column in schema.columns]
    texts = [_text(column) for column in columns]
    return {
        text: column for text, column in zip(texts, columns, strict=True) if texts.count(text) > 1
    }


def _text(column: Column) -> tuple[str, ...]:
    return column.name, column.unit, column.meaning, *column.values


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _with_ends(columns: Iterable[Column]) -> list[tuple[Column, list[str]]]:
    """Return columns with the ends of their intervals, which are not listed on their own."""
    listed = list(columns)
    names = {column.name for column in listed}
    return [
        (column, [end for end in _ENDS if column.name + end in names])
        for column in listed
        if column.name.removesuffix("_low").removesuffix("_high") not in names - {column.name}
    ]


def _rows(columns: Iterable[Column], above: str = "") -> list[str]:
    """Return a Markdown table; values that the text above it explains are not listed again."""
    lines = ["| column | unit | meaning |", "|---|---|---|"]
    for column, ends in _with_ends(columns):
        meaning = column.meaning
        if column.values and f"- `{column.values[0]}`: " not in above:
            meaning += f" One of {_names(column.values)}."
        cells = [", ".join([f"`{column.name}`", *(f"`{end}`" for end in ends)]), column.unit or "-"]
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in [*cells, meaning]) + " |")
    return lines if len(lines) > 2 else []


if __name__ == "__main__":
    sys.stdout.write(all_tables())
