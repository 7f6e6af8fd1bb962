"""Write config/schema.json, config/README.md and the tables of docs/tables.md: ``make docs``.

To do after a change of the configuration models or of a preset; a test fails until that is done.
"""

from __future__ import annotations

from pathlib import Path

from bindscope.config.documentation import json_schema, readme
from bindscope.core.files import write_atomic
from bindscope.tables.describe import all_tables


def generated(folder: Path) -> dict[Path, str]:
    """Return the generated files of the project's config folder and what they should hold."""
    return {folder / "schema.json": json_schema(), folder / "README.md": readme(folder / "presets")}


def tables_page(page: Path) -> str:
    """Return docs/tables.md with the tables of today under its hand-written head."""
    head, _, _ = page.read_text(encoding="utf-8").partition("## Shared columns\n")
    return head + all_tables()


def main() -> None:
    """Write the files into config/ and docs/."""
    page = Path("docs/tables.md")
    for path, text in {**generated(Path("config")), page: tables_page(page)}.items():
        write_atomic(path, text)


if __name__ == "__main__":
    main()
