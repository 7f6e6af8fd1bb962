"""Write config/schema.json, config/README.md and parts of two pages of docs/: ``make docs``.

To do after a change of the configuration models or of a preset; a test fails until that is done.
"""

from __future__ import annotations

from pathlib import Path

from bindscope.config.documentation import json_schema, presets_table, readme
from bindscope.core.files import write_atomic
from bindscope.tables.describe import all_tables

TABLES = Path("docs/tables.md")
PRESETS = Path("docs/presets.md")


def generated(folder: Path) -> dict[Path, str]:
    """Return the generated files and what they should hold.

    Parameters
    ----------
    folder
        The project's config folder.
    """
    return {
        folder / "schema.json": json_schema(),
        folder / "README.md": readme(),
        TABLES: _with_tail(TABLES, all_tables()),
        PRESETS: _with_tail(PRESETS, presets_table(folder / "presets")),
    }


def _with_tail(page: Path, tail: str) -> str:
    """Return the hand-written part of a page with another generated part after it."""
    heading = tail.partition("\n")[0]
    head, _, _ = page.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    return f"{head}\n{tail}"


def main() -> None:
    """Write the files into config/ and docs/."""
    for path, text in generated(Path("config")).items():
        write_atomic(path, text)


if __name__ == "__main__":
    main()
