"""A user's own questions about photos, with the boxes of what they are about.

A file of JSON lines, one record a line; images are named relative to the file::

    {"image": "photos/kitchen.jpg",
     "context": "The red mug holds a key. The blue bowl holds a coin.",
     "things": [{"box": [10, 20, 60, 80], "mention": "red mug", "item": "key"},
                {"box": [90, 25, 150, 85], "mention": "blue bowl", "item": "coin"}],
     "questions": [{"text": " What does the mug hold? A", "role": 0}]}

Things stand in the order in which the text mentions them, which is their role. `mention` and `item`
are texts that stand once in the context, or [first, past-the-last] character. In memory
(`parse_record`) images may be arrays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError

from bindscope.core.errors import InputError
from bindscope.studies.binding_id.tasks.prompts import IMAGE
from bindscope.studies.binding_id.tasks.scenes import Group, Prompt

FORM = "see the example at the top of bindscope/studies/binding_id/tasks/records.py"
TEXTS: dict[Group, str] = {"color": "mention", "item": "item"}


@dataclass(frozen=True, eq=False)
class PhotoRecord:
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


def read_records(path: Path | str) -> list[PhotoRecord]:
    """Read and check a file of records.

    InputError: names the file, the line and the remedy: if a line is no record, an image cannot be
    read, a box is not within its image, or a text does not stand once in its context.
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


class _Thing(BaseModel):
    """A thing as it is given."""

    mention: Any
    item: Any
    box: Any = None


class _Question(BaseModel):
    """A question as it is given."""

    text: StrictStr
    role: StrictInt


class _Entry(BaseModel):
    """A record as it is given."""

    image: Any
    context: StrictStr
    things: list[_Thing] = Field(min_length=2)
    questions: list[_Question] = Field(min_length=1)


def parse_record(content: Any, where: str, folder: Path | str = "") -> PhotoRecord:
    """Check a record in memory: a mapping as in a file, whose `image` may be an array or of Pillow.

    `where` names it in errors, which are those of `read_records`; images are relative to `folder`.
    """
    try:
        entry = _Entry.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"])
        raise InputError(f"{where}, {path[1:]}", problem["msg"], FORM) from None
    image, size = _image(where, entry.image, Path(folder))
    before = "" if IMAGE in entry.context else f"{IMAGE}\n"
    boxes, spans = [], {}
    for role, thing in enumerate(entry.things):
        at = f"{where}, things[{role}]"
        boxes.append(_box(at, thing.box, size))
        for group, key in TEXTS.items():
            start, end = _span(at, key, getattr(thing, key), entry.context)
            spans[group, role] = (start + len(before), end + len(before))
    context, roles = before + entry.context, range(len(entry.things))
    items = tuple(context[slice(*spans["item", role])] for role in roles)
    _check_spans(where, spans, items)
    for number, question in enumerate(entry.questions):
        if question.role not in roles:
            raise InputError(
                f"{where}, questions[{number}]",
                f"`role` is {question.role}, and there are {len(roles)} things",
                "count things from 0",
            )
    prompt = Prompt(context, tuple(question.text for question in entry.questions), spans)
    about = tuple(question.role for question in entry.questions)
    return PhotoRecord(where, image, size, prompt, np.array(boxes, np.int64), about, items)


def _image(
    where: str, image: Any, folder: Path
) -> tuple[Path | NDArray[np.uint8], tuple[int, int]]:
    """Return the image of a record, or its file, and its size as it is shown."""
    if isinstance(image, Image.Image):
        image = np.array(ImageOps.exif_transpose(image).convert("RGB"), np.uint8)
    if isinstance(image, str | Path):
        return folder / image, _size(where, folder / image)
    array = np.asarray(image)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise InputError(
            f"{where}, image",
            f"it is {array.shape} of {array.dtype}",
            "name a file, or give uint8 (height, width, 3)",
        )
    return array, (array.shape[1], array.shape[0])


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


def _box(where: str, box: Any, size: tuple[int, int]) -> list[int]:
    """Return the box of a thing."""
    values, (width, height) = np.asarray(box, object).tolist(), size
    if not isinstance(values, list) or [type(value) for value in values] != [int] * 4:
        raise InputError(
            where,
            "there is no `box`" if values is None else f"`box` is {values}",
            "give left, top, right and bottom in whole pixels, the last two exclusive",
        )
    left, top, right, bottom = values
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise InputError(
            where,
            f"`box` {values} is empty or not within the image, which is {width} x {height} pixels",
            "give left < right and top < bottom in pixels of the image as it is shown",
        )
    return values


def _span(where: str, key: str, value: Any, context: str) -> tuple[int, int]:
    """Return where a text stands in the context."""
    if isinstance(value, str) and value:
        if (times := context.count(value)) != 1:
            raise InputError(
                f"{where}, {key}",
                f"{value!r} stands {times} times in the context",
                "give a text that stands there once, or [first, past-the-last] character",
            )
        return context.index(value), context.index(value) + len(value)
    if isinstance(value, list) and [type(at) for at in value] == [int, int]:
        start, end = value
        if 0 <= start < end <= len(context):
            return start, end
    raise InputError(
        where,
        f"`{key}` is {value!r}",
        f"give a text, or first and past-the-last character within the {len(context)} of `context`",
    )


def _check_spans(
    where: str, spans: Mapping[tuple[Group, int], tuple[int, int]], items: Sequence[str]
) -> None:
    """Refuse texts that overlap, things out of order, and equal items."""
    problem = ""
    ordered, starts = sorted(spans.values()), [spans["color", r][0] for r in range(len(items))]
    if any(first[1] > second[0] for first, second in pairwise(ordered)):
        problem, remedy = "mentions and items overlap in the context", "give each its own"
    elif starts != sorted(starts):
        problem = "`things` are in another order than the context mentions them"
        remedy = "list them in the order of mention, and number `role` by it"
    elif len(set(items)) < len(items):
        problem, remedy = f"two things have the same item ({', '.join(items)})", "give each its own"
    if problem:
        raise InputError(where, problem, remedy)
