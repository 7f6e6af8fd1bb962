"""Photos of COCO 2017 with panoptic annotations (arXiv 1405.0312, 1801.00868; CC BY 4.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bindscope.config.segmented import CocoPanopticSource
from bindscope.core.errors import InputError
from bindscope.sources.base import Scene, Segments, Skipped
from bindscope.sources.json_list import entries
from bindscope.sources.parts import PartsReader

_OWN = "give COCO's own panoptic annotations (panoptic_annotations_trainval2017.zip)"
_AGAIN = "it was cut off: unpack it again"
_HELD_OUT = "val2017"


@dataclass(frozen=True)
class _Category:
    name: str
    stuff: bool


class CocoPanopticReader(PartsReader[CocoPanopticSource]):
    """Reads the photos of COCO's own parts, in the order of their annotations.

    A segment is an object, and its category its class. Crowds (`iscrowd`) are several objects in
    one segment: they stay unlabelled. `val2017` is the part that is held out.
    """

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """The names of the categories, in the order of the first part's annotations."""
        return {"class": [category.name for category in self._categories.values()]}

    @cached_property
    def _categories(self) -> Mapping[int, _Category]:
        categories = {}
        for where, entry in self._entries(self.source.parts[0], "categories"):
            number, name, is_thing = _read(where, entry, "id", "name", "isthing")
            categories[int(number)] = _Category(str(name), not is_thing)
        return categories

    def scenes(self) -> Iterator[Scene]:
        """Read the annotations of all parts.

        InputError if a file is missing, cut off or not COCO's, or an annotation does not fit the
        rest.
        """
        self.skipped.clear()
        for part in self.source.parts:
            images = dict(
                _read(where, entry, "id", "file_name")
                for where, entry in self._entries(part, "images")
            )
            for where, entry in self._entries(part, "annotations"):
                number, mask, segments = _read(
                    where, entry, "image_id", "file_name", "segments_info"
                )
                if number not in images:
                    raise InputError(where, f"there is no image with the id {number}", _OWN)
                scene = self._scene(part, images[number], mask, segments, where)
                if scene is not None:
                    yield scene

    def _scene(
        self, part: str, file: str, mask: str, segments: Sequence[Any], where: str
    ) -> Scene | None:
        image = f"{part}/{file}"
        file_of_mask = f"annotations/panoptic_{part}/{mask}"
        objects, ids, stuff = [], [], []
        for segment in segments:
            number, category, crowd = _read(where, segment, "id", "category_id", "iscrowd")
            if crowd:
                continue
            if category not in self._categories:
                raise InputError(where, f"there is no category with the id {category}", _OWN)
            objects.append({"class": self._categories[category].name})
            ids.append(int(number))
            stuff.append(self._categories[category].stuff)
        if not objects:
            self.skipped.append(Skipped(image, "no object is labelled"))
            return None
        return Scene(
            image,
            tuple(objects),
            where,
            split=self._split(image, part == _HELD_OUT),
            segments=Segments(file_of_mask, "red_green_blue", tuple(ids), tuple(stuff)),
            upright=False,
        )

    def _entries(self, part: str, key: str) -> Iterator[tuple[str, Any]]:
        name = f"annotations/panoptic_{part}.json"
        with self._files.text(name) as file:
            path = self._files.path(name)
            yield from entries(file, path, key=key, remedy=_OWN, damaged=_AGAIN)


def _read(where: str, entry: Any, *keys: str) -> tuple[Any, ...]:
    """Return some values of an entry of the annotations."""
    try:
        return tuple(entry[key] for key in keys)
    except (KeyError, TypeError) as error:
        raise InputError(where, f"is no entry of panoptic annotations (no {error})", _OWN) from None
