"""docs/tables.md: every column with its unit, meaning and source, from the declarations."""

from __future__ import annotations

import sys

from bindscope.tables.schema import TableSchema, declared

_NULLS = {"never": "no", "reason": "with a reason", "allowed": "yes"}


def markdown(schema: TableSchema) -> str:
    """Describe a table as Markdown.

    Parameters
    ----------
    schema
        The table.

    Returns
    -------
    str
        A heading, a sentence, a table of columns, and the rules.
    """
    lines = [f"## `{schema.name}` (version {schema.version})", "", schema.description, ""]
    lines += [f"Key: {', '.join(f'`{name}`' for name in schema.key)}.", ""]
    lines += ["| Column | Type | Unit | Empty? | Meaning | Source |", "|---|---|---|---|---|---|"]
    for column in schema.columns:
        meaning = column.meaning
        if column.values:
            meaning += f" One of {', '.join(f'`{value}`' for value in column.values)}."
        cells = [
            f"`{column.name}`", column.kind, column.unit or "-", _NULLS[column.null], meaning,
            column.source,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if schema.rules:
        lines += ["", "Rules that every row obeys:", ""]
    lines += [f"- {words}" for words, _ in schema.rules]
    return "\n".join(lines) + "\n"


def all_tables() -> str:
    """Describe the tables of all studies."""
    return "\n".join(markdown(schema) for schema in declared().values())


if __name__ == "__main__":
    sys.stdout.write(all_tables())
