"""Scenes of PUG:SPARE: two characters with textures, one left, one right.

Layout as in the code published with arXiv 2605.31503: ``PUG_SPARE.csv``, and the images of each
world in a folder of its name. Files are the user's; nothing is downloaded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence

from bindscope.config.pug_spare import PugSpareSource
from bindscope.core.errors import InputError
from bindscope.scenes.pug_spare_values import TABLE, VALUES
from bindscope.sources.base import Scene, Skipped, SourceFiles

_SLOTS = (  # columns of each slot, by group
    {"character": "character_name", "texture": "character_texture"},
    {"character": "character2_name", "texture": "character2_texture"},
)
_PLACES = ("character_pos", "character2_pos")
_COLUMNS = ("filename", "world_name", *(c for slot in _SLOTS for c in slot.values()), *_PLACES)
NOTHING = "blank"  # of a slot without a character


class PugSpareReader:
    """Reads the scenes of one world in which no character's place is varied; there are no splits.

    Scenes with a place in `character_pos` are other ones (above and below), and scenes with an
    empty slot are not among those of the space: both are left out, and `skipped` says so.
    """

    def __init__(self, source: PugSpareSource, split_column: str | None = None) -> None:
        del split_column
        self.source = source
        self.images = source.path
        self.skipped: list[Skipped] = []
        self._files = SourceFiles(source.path)

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """The release's characters and textures."""
        return VALUES

    def scenes(self) -> Iterable[Scene]:
        """Read the table; InputError if it is missing, lacks a column or has no scene."""
        path = self._files.path(TABLE)
        if not self._files.exists(TABLE):
            raise InputError(
                path,
                "is not there",
                "give the folder or archive with PUG_SPARE.csv and a folder of images per world",
            )
        scenes: list[Scene] = []
        worlds: dict[str, None] = {}
        with self._files.text(TABLE) as file:
            reader = csv.DictReader(file)
            if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
                raise InputError(
                    path, f"has no column {missing[0]!r}", "give the release's own table"
                )
            for row in reader:
                worlds[row["world_name"]] = None
                if row["world_name"] == self.source.world:
                    scenes += self._scene(row, f"{path}, row {reader.line_num}")
        if not scenes:
            raise InputError(
                path,
                f"has no scene of the world {self.source.world!r}",
                f"set `source.world` to one of {', '.join(worlds) or 'those that it names'}",
            )
        return scenes

    def _scene(self, row: Mapping[str, str], where: str) -> list[Scene]:
        """Return a row's scene, or nothing where it is left out."""
        image = f"{row['world_name']}/{row['filename']}"
        if any(row[place] not in (None, "", "nan") for place in _PLACES):
            self.skipped.append(Skipped(image, "a character's place is varied"))
            return []
        objects = tuple({group: row[name] for group, name in slot.items()} for slot in _SLOTS)
        if any(NOTHING in (value.lower() for value in object_.values()) for object_ in objects):
            self.skipped.append(Skipped(image, "a slot is empty"))
            return []
        return [Scene(image, objects, where)]
