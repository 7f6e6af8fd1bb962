"""Scenes of the official CLEVR v1.0 release (Johnson et al., arXiv 1612.06890; CC BY 4.0)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bindscope.config.observed import ClevrSource
from bindscope.core.errors import InputError
from bindscope.scenes.solids.values import VALUES
from bindscope.sources.base import Scene, SourceFiles
from bindscope.sources.json_list import entries

_TOP = "CLEVR_v1.0/"  # the one folder in the archive
_OWN = "give CLEVR's own scene files"
_AGAIN = "it was cut off: copy or unpack it again"


class ClevrReader:
    """Reads scenes with a given number of objects, in the order of CLEVR's scene files.

    With a `split_column`, a scene's split is CLEVR's own part (`train` or `val`).
    """

    def __init__(self, source: ClevrSource, split_column: str | None = None) -> None:
        assert source.path is not None
        self.source, self.by_part = source, split_column is not None
        self.images = source.path
        self._files = SourceFiles(source.path)

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """CLEVR's features and values."""
        return VALUES

    def scenes(self) -> Iterable[Scene]:
        """Read the scene files of all parts.

        InputError if one is missing, cut off or not CLEVR's, or has no scene of that size.
        """
        scenes = [scene for part in self.source.parts for scene in self._part(part)]
        if not scenes:
            raise InputError(
                self.images,
                f"no scene has {self.source.n_objects} objects",
                "CLEVR's have 3 to 10: change `source.n_objects`",
            )
        return scenes

    def _part(self, part: str) -> Iterator[Scene]:
        name = f"scenes/CLEVR_{part}_scenes.json"
        top = "" if self._files.exists(name) else _TOP
        path = self._files.path(top + name)
        if not self._files.exists(top + name):
            raise InputError(
                self.images,
                f"holds no {name}",
                "give the folder or archive of CLEVR v1.0 with `scenes` and `images`",
            )
        with self._files.text(top + name) as file:
            for where, scene in entries(file, path, key="scenes", remedy=_OWN, damaged=_AGAIN):
                try:
                    objects = scene["objects"]
                    if len(objects) == self.source.n_objects:
                        values = tuple({g: str(o[g]) for g in VALUES} for o in objects)
                        image = f"{top}images/{part}/{scene['image_filename']}"
                        yield Scene(image, values, where, split=part if self.by_part else None)
                except (KeyError, TypeError) as error:
                    raise InputError(where, f"is no scene of CLEVR (no {error})", _OWN) from error
