"""Write config/schema.json and config/README.md: ``make docs``.

To do after a change of the configuration models or of a preset; a test fails until that is done.
"""

from __future__ import annotations

from pathlib import Path

from bindscope.config.documentation import json_schema, readme
from bindscope.core.files import write_atomic


def generated(folder: Path) -> dict[Path, str]:
    """Return the generated files of the project's config folder and what they should hold."""
    return {folder / "schema.json": json_schema(), folder / "README.md": readme(folder / "presets")}


def main() -> None:
    """Write both files into config/."""
    for path, text in generated(Path("config")).items():
        write_atomic(path, text)


if __name__ == "__main__":
    main()
