"""Scenes of the official CLEVR v1.0 release (Johnson et al., arXiv 1612.06890; CC BY 4.0)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bindscope.config.observed import ClevrSource
from bindscope.config.solids import VOCABULARY
from bindscope.errors import InputError
from bindscope.sources.base import Scene, SourceFiles

_TOP = "CLEVR_v1.0/"  # the one folder in the archive
_SCENES = re.compile(r'"scenes"\s*:\s*\[')


class ClevrReader:
    """Reads scenes with a given number of objects, in the order of CLEVR's scene files.

    Parameters
    ----------
    source
        The configuration's section, with a `path`.
    split_column
        Where not None, a scene's split is CLEVR's own part (`train` or `val`).
    """

    def __init__(self, source: ClevrSource, split_column: str | None = None) -> None:
        assert source.path is not None
        self.source, self.by_part = source, split_column is not None
        self.images = source.path
        self._files = SourceFiles(source.path)

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """CLEVR's features and values."""
        return VOCABULARY

    def scenes(self) -> Iterable[Scene]:
        """Read the scene files of all parts.

        Raises
        ------
        InputError
            If a scene file is missing, cut off or not CLEVR's, or has no scene of that size.
        """
        found = [scene for part in self.source.parts for scene in self._part(part)]
        if not found:
            raise InputError(
                self.images, f"no scene has {self.source.n_objects} objects",
                "CLEVR's have 3 to 10: change `source.n_objects`",
            )  # fmt: skip
        return found

    def _part(self, part: str) -> Iterator[Scene]:
        name = f"scenes/CLEVR_{part}_scenes.json"
        top = "" if self._files.exists(name) else _TOP
        path = self._files.path(top + name)
        if not self._files.exists(top + name):
            raise InputError(
                self.images, f"holds no {name}",
                "give the folder or archive of CLEVR v1.0 with `scenes` and `images`",
            )  # fmt: skip
        text = self._files.read(top + name).decode("utf-8")
        for number, scene in enumerate(_entries(text, path)):
            where = f"{path}, scene {number}"
            try:
                objects = scene["objects"]
                if len(objects) == self.source.n_objects:
                    values = tuple({g: str(o[g]) for g in VOCABULARY} for o in objects)
                    image = f"{top}images/{part}/{scene['image_filename']}"
                    yield Scene(image, values, where, split=part if self.by_part else None)
            except (KeyError, TypeError) as error:
                raise InputError(
                    where, f"is no scene of CLEVR (no {error})", "give CLEVR's own scene files"
                ) from error


def _entries(text: str, path: str) -> Iterator[Any]:
    """Parse the list `scenes` entry by entry: the whole of it would take gigabytes."""
    start = _SCENES.search(text)
    if start is None:
        raise InputError(path, "has no list `scenes`", "give CLEVR's own scene files")
    decoder, place = json.JSONDecoder(), start.end()
    while True:
        while text[place : place + 1] in (" ", "\n", "\t", "\r", ","):
            place += 1
        if text[place : place + 1] == "]":
            return
        try:
            entry, place = decoder.raw_decode(text, place)
        except ValueError as error:
            raise InputError(
                path, f"ends or breaks at character {place:,} ({error})",
                "it was cut off: copy or unpack it again",
            ) from error  # fmt: skip
        yield entry


__all__ = ["ClevrReader"]
