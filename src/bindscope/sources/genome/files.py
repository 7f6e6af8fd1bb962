"""Visual Genome's release files, read image by image.

`objects.json` and `attributes.json` have 400 to 460 MB of JSON each: one array with an element per
image. They are streamed, as .json or inside the .zip in which they are released, so that memory
holds a few images at a time. The format is that of releases 1.2 and 1.4.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from urllib.parse import urlsplit

from bindscope.core.errors import InputError, first_line
from bindscope.sources.base import DAMAGED, Box, open_archive, open_member
from bindscope.sources.json_list import entries

# Images that one file may be ahead of the other. The release lists them in the same order.
MAX_WAITING = 2000

_RELEASE = "take objects.json, attributes.json and image_data.json of Visual Genome 1.2 or 1.4"
_AGAIN = "it was cut off or changed: download it again"


class Image(NamedTuple):
    """An element of image_data.json: folder, name, pixels, and COCO's number."""

    file: str
    width: int
    height: int
    coco_id: int | None


class Annotated(NamedTuple):
    """One annotated object, in the release's order; its words are not normalised.

    It has at least one name, and a box: left edge, top edge, width, height, in pixels.
    """

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    box: Box


def read_images(path: Path) -> dict[int, Image]:
    """Read image_data.json (or its .zip) into a table by image number; InputError if damaged."""
    images = {}
    for where, record in stream(path):
        number = _field(record, "image_id", int, where)
        url = _field(record, "url", str, where)
        coco = record.get("coco_id")
        if coco is not None and not isinstance(coco, int):
            raise InputError(where, f"coco_id is {coco!r}, neither a number nor null", _RELEASE)
        images[number] = Image(
            "/".join(Path(urlsplit(url).path).parts[-2:]),
            _field(record, "width", int, where),
            _field(record, "height", int, where),
            coco,
        )
    return images


def read_annotations(objects: Path, attributes: Path) -> Iterator[tuple[int, list[Annotated]]]:
    """Read objects with their attributes, image by image, in the order of objects.json.

    Both files are read side by side. An object's attributes are those of its own number and of the
    numbers that the release merged into it. Objects without a name are left out; an image that
    attributes.json lacks has objects without attributes. InputError if a file is damaged, an
    element is not as in the release, or the files list the images in orders so different that more
    than `MAX_WAITING` of them would have to wait in memory.
    """
    described = (_attributes(where, record) for where, record in stream(attributes))
    waiting: dict[int, Mapping[int, tuple[str, ...]]] = {}
    numbers: set[int] | None = None  # of all images; read only if one is not found
    for where, record in stream(objects):
        number = _field(record, "image_id", int, where)
        while number not in waiting and len(waiting) <= MAX_WAITING:
            image = next(described, None)
            if image is None:
                break
            waiting[image[0]] = image[1]
        if number not in waiting and len(waiting) > MAX_WAITING:
            numbers = numbers or {_attributes(*element)[0] for element in stream(attributes)}
            if number in numbers:
                raise InputError(
                    f"{objects} and {attributes}",
                    f"have other orders of images: {number} is not among the {MAX_WAITING} next",
                    "take both files from the same release, or sort their elements by image_id",
                )
        yield number, _objects(where, record, waiting.pop(number, {}))
    for _ in described:  # also its end is to be whole
        pass


def _attributes(where: str, record: Mapping[str, Any]) -> tuple[int, dict[int, tuple[str, ...]]]:
    texts_by_object = {}
    for described in _field(record, "attributes", list, where):
        number = _field(described, "object_id", int, where)
        texts = described.get("attributes") or ()
        texts_by_object[number] = tuple(text for text in texts if isinstance(text, str))
    return _field(record, "image_id", int, where), texts_by_object


def _objects(
    where: str, record: Mapping[str, Any], attributes: Mapping[int, tuple[str, ...]]
) -> list[Annotated]:
    annotated = []
    for thing in _field(record, "objects", list, where):
        names = tuple(n for n in _field(thing, "names", list, where) if isinstance(n, str) and n)
        if not names:
            continue
        numbers = [_field(thing, "object_id", int, where), *(thing.get("merged_object_ids") or ())]
        texts = tuple(text for number in numbers for text in attributes.get(number, ()))
        x, y, w, h = (float(_field(thing, key, (int, float), where)) for key in "xywh")
        annotated.append(Annotated(names, texts, (x, y, w, h)))
    return annotated


def _field(record: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(record, dict) or not isinstance(record.get(key), kind):
        got = record.get(key, "missing") if isinstance(record, dict) else "not in an object"
        raise InputError(where, f"{key!r} is {str(got)[:50]}", _RELEASE)
    return record[key]


def stream(path: Path) -> Iterator[tuple[str, Any]]:
    """Read the elements of a file that is one JSON array, each with what to call it in a message.

    A .json file, or a .zip archive that holds exactly one; InputError if it is missing, is no JSON
    array, or ends too early.
    """
    with _open(path) as file:
        yield from entries(file, str(path), remedy=_RELEASE, damaged=_AGAIN)


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    """Open a JSON file, or the only one in an archive, as text."""
    try:
        if path.suffix != ".zip":
            with path.open(encoding="utf-8") as file:
                yield file
            return
        with open_archive(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".json")]
            if len(names) != 1:
                raise InputError(str(path), f"holds {len(names)} JSON files, not one", _RELEASE)
            with (
                open_member(archive, names[0]) as raw,
                io.TextIOWrapper(raw, encoding="utf-8") as file,
            ):
                yield file
    except FileNotFoundError as error:
        raise InputError(str(path), "does not exist", _RELEASE) from error
    except DAMAGED as error:
        raise InputError(str(path), f"cannot be read ({first_line(error)})", _AGAIN) from error
