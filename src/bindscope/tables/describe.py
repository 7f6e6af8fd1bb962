"""docs/tables.md: every column with its unit and meaning, from the declarations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from bindscope.tables.schema import Column, TableSchema, declared

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
        A heading, a sentence, a table of columns, and the rules.
    """
    lines = [f"## `{schema.name}`", "", schema.description, ""]
    lines += [f"Key: {_names(schema.key)}.", ""]
    common = [column.name for column in schema.columns if _text(column) in shared]
    if common:
        lines += [f"[Shared columns](#shared-columns): {_names(common)}.", ""]
    lines += _rows(column for column in schema.columns if _text(column) not in shared)
    if schema.rules:
        lines += ["", "Rules that every row obeys:", ""]
    lines += [f"- {words}" for words, _ in schema.rules]
    return "\n".join(lines) + "\n"


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


def _rows(columns: Iterable[Column]) -> list[str]:
    """Return a Markdown table; the ends of an interval share the row of what they are ends of."""
    lines = ["| column | unit | meaning |", "|---|---|---|"]
    listed = list(columns)
    names = {column.name for column in listed}
    for column in listed:
        base = column.name.removesuffix("_low").removesuffix("_high")
        if base != column.name and base in names:
            continue
        ends = [f"`{end}`" for end in _ENDS if column.name + end in names]
        meaning = column.meaning
        if column.values:
            meaning += f" One of {_names(column.values)}."
        cells = [", ".join([f"`{column.name}`", *ends]), column.unit or "-", meaning]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines if len(lines) > 2 else []


if __name__ == "__main__":
    sys.stdout.write(all_tables())
