"""Long JSON lists read entry by entry, so that memory holds one of them at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, TextIO

from bindscope.core.errors import InputError, first_line

_CHUNK = 1 << 20  # characters
_LONGEST = 1 << 24  # characters of one entry, and of white space before the list
_LONGEST_KEY = 1000  # characters of a key, and of white space around its colon


def entries(
    file: TextIO, path: str, *, key: str = "", remedy: str, damaged: str
) -> Iterator[tuple[str, Any]]:
    """Read the entries of a list of objects or lists, each with what to call it in a message.

    The list is the file, or stands under a key of its object; `path` names it. InputError, with the
    remedy `remedy` or `damaged`, if there is no such list, or it ends or breaks before its end.
    """
    decoder, number = JSONDecoder(), 0
    text, at = _start(file, path, key, remedy)
    while True:
        at = _skip(text, at, "," if number else "")
        try:
            if text[at : at + 1] == "]":
                return
            value, end = decoder.raw_decode(text, at)
        except JSONDecodeError as problem:
            more = file.read(_CHUNK)
            if not more or len(text) - at > _LONGEST:
                where = f"{path}, {key or 'element'} {number}"
                raise InputError(where, f"is no whole JSON ({problem.msg})", damaged) from None
            text, at = text[at:] + more, 0
            continue
        except (ValueError, RecursionError) as problem:  # a number of thousands of digits; depth
            where = f"{path}, {key or 'element'} {number}"
            raise InputError(where, f"is no such entry ({first_line(problem)})", remedy) from None
        yield f"{path}, {key or 'element'} {number}", value
        at, number = end, number + 1


def _start(file: TextIO, path: str, key: str, remedy: str) -> tuple[str, int]:
    """Return the first characters of a file, and where in them the first entry is looked for."""
    text = file.read(_CHUNK).lstrip("\ufeff")
    opening = re.compile(rf'"{key}"\s*:\s*\[' if key else r"\s*\[")
    while not (match := opening.search(text) if key else opening.match(text)):
        more = (key or (not text.strip() and len(text) < _LONGEST)) and file.read(_CHUNK)
        if not more:
            problem = f"has no list {key!r}" if key else "does not begin with a JSON array"
            raise InputError(path, problem, remedy)
        # What is before the key is not kept, but the key itself may have begun.
        text = (text[-_LONGEST_KEY:] if key else text) + more
    return text, match.end()


def _skip(text: str, at: int, separator: str) -> int:
    while at < len(text) and (text[at].isspace() or text[at] == separator):
        at += 1
    return at
