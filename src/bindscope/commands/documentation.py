"""Write config/schema.json and config/README.md: ``make docs``.

To do after a change of the configuration models, of what depends on a key, or of a preset; a test
fails until that is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bindscope.commands.effects import Effects, example, in_words, recomputed
from bindscope.config.documentation import json_schema, readme
from bindscope.config.structure import keys
from bindscope.core.files import write_atomic


def generated(folder: Path, effects: Effects) -> dict[Path, str]:
    """Return the generated files of a config folder and what they should hold.

    Parameters
    ----------
    folder
        The project's ``config``.
    effects
        What a change of each key recomputes, see `bindscope.commands.effects.recomputed`.
    """

    def made_anew(sections: Sequence[str], key: str) -> str:
        found = [effects[section, key] for section in sections if (section, key) in effects]
        return in_words(frozenset().union(*found)) if found else "-"

    return {
        folder / "schema.json": json_schema(),
        folder / "README.md": readme(folder / "presets", made_anew),
    }


def not_tried(effects: Effects) -> list[str]:
    """Name the keys for which no valid change was found, as `Class.key`."""
    known = {(section, key) for _, section, key in keys()}
    return sorted(f"{section}.{key}" for section, key in known - set(effects))


def main() -> None:
    """Write both files into config/."""
    effects = recomputed(example())
    for path, text in generated(Path("config"), effects).items():
        write_atomic(path, text)
    missing = not_tried(effects)
    print(f"{len(missing)} keys cannot be changed alone: {', '.join(missing)}")


if __name__ == "__main__":
    main()
