"""A user's own questions about photos, with the boxes of what they are about.

A file of JSON lines, one record a line; images are named relative to the file::

    {"image": "photos/kitchen.jpg",
     "context": "The red mug holds a key. The blue bowl holds a coin.",
     "things": [{"box": [10, 20, 60, 80], "mention": "red mug", "item": "key"},
                {"box": [90, 25, 150, 85], "mention": "blue bowl", "item": "coin"}],
     "questions": [{"text": " What does the mug hold? A", "role": 0}]}

Things stand in the order in which the text mentions them, which is their role. `mention` and `item`
are texts that stand once in the context, or [first, past-the-last] character. In place of `box` a
`mask` serves, an image whose pixels are 0 where the thing is not. In memory (`parse_record`) images
and masks may be arrays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.prompts import IMAGE
from bindscope.studies.binding_id.tasks.scenes import Group, Prompt

FORM = "see the example at the top of bindscope/studies/binding_id/tasks/records.py"
TEXTS: dict[Group, str] = {"color": "mention", "item": "item"}


@dataclass(frozen=True, eq=False)
class Record:
    """Questions about one image: its file, or uint8 (height, width, 3).

    `size` is width and height in pixels as it is shown (turned as its EXIF data say). Where the
    context names no place for the image, it comes first; spans of `color` are what mentions the
    thing. Boxes are int64 (k, 4): left, top, right and bottom, ends exclusive. `roles` says which
    thing each question is about; the answer is that thing's item.
    """

    where: str
    image: Path | NDArray[np.uint8]
    size: tuple[int, int]
    prompt: Prompt
    boxes: NDArray[np.int64]
    roles: tuple[int, ...]
    items: tuple[str, ...]

    def picture(self) -> NDArray[np.uint8]:
        """Return the image, uint8 (height, width, 3); InputError if it cannot be decoded."""
        if isinstance(self.image, np.ndarray):
            return self.image
        try:
            with Image.open(self.image) as file:
                return np.array(ImageOps.exif_transpose(file).convert("RGB"), np.uint8)
        except (OSError, SyntaxError) as error:
            raise _unread(self.image, error) from error


def read_records(path: Path | str) -> list[Record]:
    """Read and check a file of records.

    Raises
    ------
    InputError
        Names the file, the line and the remedy: if a line is no record, an image cannot be read, a
        box is not within its image, or a text does not stand once in its context.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            str(file), f"cannot be read ({error})", "give a file of JSON lines"
        ) from error
    records = [
        parse_record(_parsed(line, f"{file}:{number}"), f"{file}:{number}", file.parent)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not records:
        raise InputError(str(file), "holds no record", FORM)
    return records


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(where, f"is no whole JSON ({error.msg})", FORM) from None


def parse_record(content: Any, where: str, folder: Path | str = "") -> Record:
    """Check a record in memory: a mapping as in a file, whose `image` may be an array or of Pillow.

    `where` names it in errors, which are those of `read_records`; images are relative to `folder`.
    """
    image, size = _image(where, content, Path(folder))
    context = _value(where, content, "context", str)
    things = _objects(where, content, "things")
    if len(things) < 2:
        raise InputError(where, f"`things` holds {len(things)} of them", "give two or more")
    before = "" if IMAGE in context else f"{IMAGE}\n"
    boxes, spans = [], {}
    for role, thing in enumerate(things):
        at = f"{where}, things[{role}]"
        boxes.append(_box(at, thing, size, Path(folder)))
        for group, key in TEXTS.items():
            start, end = _span(at, thing, key, context)
            spans[group, role] = (start + len(before), end + len(before))
    prompt_context = before + context
    _check_spans(where, prompt_context, spans, len(things))
    items = tuple(prompt_context[slice(*spans["item", role])] for role in range(len(things)))
    texts, roles = _questions(where, content, len(things))
    prompt = Prompt(prompt_context, texts, spans)
    return Record(where, image, size, prompt, np.array(boxes, np.int64), roles, items)


def _questions(
    where: str, content: Mapping[str, Any], things: int
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the texts of the questions, and whom they are about."""
    texts, roles = [], []
    for number, question in enumerate(_objects(where, content, "questions")):
        at = f"{where}, questions[{number}]"
        texts.append(_value(at, question, "text", str))
        role = _value(at, question, "role", int)
        if not 0 <= role < things:
            raise InputError(
                at, f"`role` is {role}, and there are {things} things", "count things from 0"
            )
        roles.append(role)
    if not texts:
        raise InputError(where, "`questions` is empty", "ask about one thing at least")
    return tuple(texts), tuple(roles)


def _value(where: str, content: Any, key: str, kind: type) -> Any:
    """Return a value of a JSON object that must be there and of a type."""
    value = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {str: "a text", int: "a whole number", list: "a list"}[kind]
        raise InputError(where, f"`{key}` is missing or not {expected}", FORM)
    return value


def _objects(where: str, content: Any, key: str) -> list[Mapping[str, Any]]:
    values = _value(where, content, key, list)
    if not all(isinstance(value, Mapping) for value in values):
        raise InputError(where, f"`{key}` must hold objects in braces", FORM)
    return list(values)


def _image(
    where: str, content: Any, folder: Path
) -> tuple[Path | NDArray[np.uint8], tuple[int, int]]:
    """Return the image of a record, or its file, and its size as it is shown."""
    image = content.get("image") if isinstance(content, Mapping) else None
    if isinstance(image, Image.Image):
        image = np.array(ImageOps.exif_transpose(image).convert("RGB"), np.uint8)
    if isinstance(image, np.ndarray):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise InputError(
                where, f"`image` is {image.shape} of {image.dtype}", "give uint8 (height, width, 3)"
            )
        return image, (image.shape[1], image.shape[0])
    if isinstance(image, Path):
        content = {**content, "image": str(image)}
    file = folder / _value(where, content, "image", str)
    return file, _size(where, file)


def _size(where: str, image: Path) -> tuple[int, int]:
    """Return width and height of an image, as it is shown."""
    try:
        with Image.open(image) as file:
            width, height = file.size
            turned = file.getexif().get(0x0112, 1) >= 5  # orientations that lie on a side
    except FileNotFoundError:
        raise InputError(
            where, f"there is no image {image}", "name images relative to the file of records"
        ) from None
    except (OSError, SyntaxError) as error:
        raise _unread(f"{where}, {image}", error) from error
    return (height, width) if turned else (width, height)


def _unread(where: Path | str, error: Exception) -> InputError:
    why = "no known format" if isinstance(error, UnidentifiedImageError) else str(error)
    return InputError(str(where), f"is no image that can be read ({why})", "save it anew as PNG")


def _box(where: str, thing: Mapping[str, Any], size: tuple[int, int], folder: Path) -> list[int]:
    """Return the box of a thing: its own, or that around its mask."""
    if "mask" in thing:
        return _around(where, thing["mask"], size, folder)
    if "box" not in thing:
        raise InputError(
            where, "there is no `box` and no `mask`",
            "give `box`: left, top, right and bottom in pixels, the last two exclusive",
        )  # fmt: skip
    values = np.asarray(thing["box"], object).tolist()
    values = _value(where, {"box": values}, "box", list)
    whole = [isinstance(value, int) and not isinstance(value, bool) for value in values]
    if len(values) != 4 or not all(whole):
        raise InputError(
            where, f"`box` is {values}", "give left, top, right and bottom in whole pixels"
        )
    left, top, right, bottom = values
    width, height = size
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise InputError(
            where,
            f"`box` {values} is empty or not within the image, which is {width} x {height} pixels",
            "give left < right and top < bottom in pixels of the image as it is shown",
        )
    return list(values)


def _around(where: str, mask: Any, size: tuple[int, int], folder: Path) -> list[int]:
    """Return the smallest box around the pixels of a mask."""
    if isinstance(mask, str | Path):
        try:
            with Image.open(folder / mask) as file:
                mask = np.array(file)
        except (OSError, SyntaxError) as error:
            raise _unread(f"{where}, {folder / mask}", error) from error
    pixels = np.asarray(mask) != 0
    if pixels.shape != size[::-1] or not pixels.any():
        raise InputError(
            where,
            f"`mask` is empty or {pixels.shape}, and the image {size[1]} x {size[0]} pixels",
            "give a mask of the image's height and width, not 0 where the thing is",
        )
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


def _span(where: str, thing: Mapping[str, Any], key: str, context: str) -> tuple[int, int]:
    """Return where a text stands in the context."""
    value = thing.get(key)
    if isinstance(value, str) and value:
        times = context.count(value)
        if times == 1:
            start = context.index(value)
            return start, start + len(value)
        raise InputError(
            f"{where}, {key}",
            f"{value!r} stands {times} times in the context",
            "give a text that stands there once, or [first, past-the-last] character",
        )
    if isinstance(value, list) and len(value) == 2 and all(type(at) is int for at in value):
        start, end = value
        if 0 <= start < end <= len(context):
            return start, end
    raise InputError(
        where,
        f"`{key}` is {value!r}",
        f"give a text, or first and past-the-last character within the {len(context)} of `context`",
    )


def _check_spans(
    where: str, context: str, spans: Mapping[tuple[Group, int], tuple[int, int]], things: int
) -> None:
    """Refuse texts that overlap, things out of order, and equal items."""
    ordered = sorted(spans.values())
    if any(first[1] > second[0] for first, second in pairwise(ordered)):
        raise InputError(
            where, "mentions and items overlap in the context", "give each its own characters"
        )
    starts = [spans["color", role][0] for role in range(things)]
    if starts != sorted(starts):
        raise InputError(
            where,
            "`things` are in another order than the context mentions them",
            "list them in the order of mention, and number `role` by it",
        )
    items = [context[slice(*spans["item", role])] for role in range(things)]
    if len(set(items)) < things:
        raise InputError(
            where, f"two things have the same item ({', '.join(items)})", "give each its own"
        )
