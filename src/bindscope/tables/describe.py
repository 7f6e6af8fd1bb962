"""docs/tables.md: every column with its unit, meaning and source, from the declarations."""

from __future__ import annotations

import sys

from bindscope.tables.schema import (
    ATTENTION,
    BINDING_INFORMATION,
    PRIORS,
    SCENE_STATISTICS,
    TableSchema,
)

_NULLS = {"never": "no", "reason": "with a reason", "allowed": "yes"}
_TITLES = {
    "binding_information": "One row per dataset, model, layer, token input, probe, control and "
    "probe seed. Every number is measured on the test split.",
    "attention": "One row per attention probe on patch tokens: where its queries look. Made only "
    "where there is such a probe.",
    "priors": "One row per dataset and split: entropies of the codes, no model involved.",
    "scene_statistics": "One row per dataset of solids and split: what is hidden in its scenes. "
    "The table exists where a configuration draws such scenes.",
}


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
    lines = [f"## `{schema.name}` (version {schema.version})", "", _TITLES[schema.name], ""]
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
    """Describe every table."""
    shown = (BINDING_INFORMATION, PRIORS, SCENE_STATISTICS, ATTENTION)
    return "\n".join(markdown(schema) for schema in shown)


if __name__ == "__main__":
    sys.stdout.write(all_tables())
