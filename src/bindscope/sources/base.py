"""The interface of readers of scenes, and access to the files of a source."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, TextIO
from zipfile import BadZipFile, ZipFile

from bindscope.config.observed import AnySource, PythonSource
from bindscope.core.errors import InputError, first_line
from bindscope.core.interfaces import Reader
from bindscope.core.registries import READERS, resolve

Box = tuple[float, float, float, float]
# Folders and zip archives that a file's name starts from; the first that has it counts.
Roots = str | Sequence[str]
# How a pixel of a mask becomes a number: B (ADE20K's instances), R + 256 G + 65536 B (COCO's), or
# its gray value or palette index, of colored pixels R + 256 G + 65536 B.
CHANNELS = ("blue", "red_green_blue", "index")
LARGEST_BYTES = 1 << 28  # of a file that is read whole: an image, a mask
LEAVE_OUT = "leave the image out (`source.skip`, or `source.bad_images: skip`)"
_SHOWN = 200  # characters of a name in a message
_LARGEST_RATIO = 100  # of a larger member of an archive to its compressed size; JSON has 5 to 30
# What a damaged file or archive raises while it is read.
DAMAGED = (
    OSError,
    KeyError,
    BadZipFile,
    EOFError,
    UnicodeDecodeError,
    zlib.error,
    LZMAError,
    csv.Error,
)


@dataclass(frozen=True)
class Segments:
    """The file that says which pixels belong to which object, as wide and high as the image.

    `channels`, one of `CHANNELS`, says how a pixel becomes a number; pixels with any other number
    than an object's of `ids` are unlabelled. `stuff`: sky or grass, not a thing.
    """

    file: str
    channels: str
    ids: tuple[int, ...]
    stuff: tuple[bool, ...]


@dataclass(frozen=True)
class Skipped:
    """An image that a reader left out on purpose, and why."""

    image: str
    reason: str


@dataclass(frozen=True)
class Scene:
    """One image and what is on it; no two scenes have the same image below the reader's `images`.

    Attributes
    ----------
    objects
        The value of every group, by the group's name, for each object.
    where
        What to call the scene's place in a message (``objects.csv, rows 2 to 4``).
    boxes
        Left, top, right and bottom edge of each object in the image's pixels; None if unknown.
    split
        `train`, `val` or `test` where the source says so.
    segments
        Which pixels are whose; None if unknown.
    slots
        The slot of each object; None: the first object is in slot 0, the next in slot 1.
    upright
        Whether boxes and segments are of the image as its EXIF tag turns it; else of its pixels as
        they are stored, and the tag is ignored.
    size
        Width and height of the image that boxes are of, where the source says so.
    """

    image: str
    objects: tuple[Mapping[str, str], ...]
    where: str
    boxes: tuple[Box, ...] | None = None
    split: str | None = None
    segments: Segments | None = None
    slots: tuple[int, ...] | None = None
    upright: bool = True
    size: tuple[int, int] | None = None


def build_reader(source: AnySource, split_column: str | None) -> Reader:
    """Make the reader of a `source` section.

    `split_column` is the name of the column that says which split a scene is in, where the
    dataset's split rule is `column`, else None.
    """
    name = source.reader if isinstance(source, PythonSource) else READERS[source.kind]
    reader: Reader = resolve(name)(source, split_column)
    return reader


def is_listed(image: str, skip: Sequence[str]) -> bool:
    """Whether `source.skip` lists an image, by its name or its file name without folder."""
    return image in skip or image.rpartition("/")[2] in skip


def check_segments(segments: Segments, n_objects: int, where: str) -> None:
    """Refuse segments that do not list every object once: InputError."""
    problem = None
    if segments.channels not in CHANNELS:
        problem = f"channels {segments.channels!r} are none of {', '.join(CHANNELS)}"
    elif not len(segments.ids) == len(segments.stuff) == n_objects:
        problem = (
            f"{len(segments.ids)} numbers and {len(segments.stuff)} marks of stuff for "
            f"{n_objects} objects"
        )
    elif len(set(segments.ids)) < n_objects:
        problem = f"{_repeated(segments.ids)} is the number of two objects"
    if problem:
        raise InputError(where, problem, "give every object a number and a mark of its own")


def _repeated(ids: Sequence[int]) -> int:
    return next(number for i, number in enumerate(ids) if number in ids[:i])


class SourceFiles:
    """The files of a source: below folders or in zip archives that are whole, or InputError."""

    def __init__(self, roots: Path | Roots) -> None:
        several = [roots] if isinstance(roots, str | Path) else roots
        self._places = [_Place(Path(root).expanduser()) for root in several]

    def _place(self, name: str) -> _Place:
        """Return the first place that has a file; where none has it the first of all."""
        check_name(name, name[:_SHOWN])
        return next((place for place in self._places if place.exists(name)), self._places[0])

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return self._place(name).exists(name)

    def state(self, name: str) -> tuple[int, int]:
        """Size and time of change of a file, of an archive those of the archive."""
        place = self._place(name)
        about = (place.root if place.root.is_file() else place.root / name).stat()
        return about.st_size, about.st_mtime_ns

    def path(self, name: str) -> str:
        """What to call a file in a message."""
        root = self._place(name).root
        return str(root / name) if len(name) <= _SHOWN else f"{root}/{name[:_SHOWN]}..."

    def read(self, name: str) -> bytes:
        """Return a file's content.

        InputError if it cannot be read, is too large to be an image, the archive's checksum of it
        is not met, or the name leads out of the folder.
        """
        with self.open(name) as file:
            content = file.read(LARGEST_BYTES + 1)
            if len(content) > LARGEST_BYTES:
                raise InputError(
                    self.path(name),
                    f"is larger than {LARGEST_BYTES >> 20} MiB",
                    f"make the image smaller, or {LEAVE_OUT}",
                )
            return content

    @contextmanager
    def text(self, name: str) -> Iterator[TextIO]:
        """Open a file as UTF-8 text; the errors are those of `read`."""
        with self.open(name) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
            yield text

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file; the errors are those of `read`."""
        place = self._place(name)
        try:
            with place.open(name) as file:
                yield file
        except DAMAGED as error:
            raise InputError(
                self.path(name),
                f"cannot be read ({first_line(error)})",
                f"replace the file, or {LEAVE_OUT}",
            ) from error


class _Place:
    """A folder, or an archive."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if not root.exists():
            raise InputError(
                str(root),
                "there is no such folder or archive",
                "correct `source.path`, or `source.images` where that says where images are",
            )
        self._archive = open_archive(root) if root.is_file() else None

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self._archive.namelist()) if self._archive else frozenset()

    def exists(self, name: str) -> bool:
        if self._archive:
            return name in self._members
        try:
            return (self.root / name).is_file()
        except OSError:  # a name that no file can have, or a folder that may not be read
            return False

    def open(self, name: str) -> IO[bytes]:
        if self._archive:
            return open_member(self._archive, name)
        return (self.root / name).open("rb")


def check_name(name: str, where: str) -> None:
    """Refuse a name that leads out of the folder which names start from, with InputError."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(
            where,
            f"{name[:_SHOWN]!r} leads out of the folder that names start from",
            "name the file from there, without `..`; `source.images` says where names start",
        )


def open_archive(path: Path) -> ZipFile:
    """Open a zip archive; InputError if it is damaged, or something else."""
    try:
        return ZipFile(path)
    except FileNotFoundError:
        raise
    except (BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
        raise InputError(
            str(path),
            f"is no whole zip archive ({first_line(error)})",
            "it was cut off or is something else: copy or download it again",
        ) from error


def open_member(archive: ZipFile, name: str) -> IO[bytes]:
    """Open a file of an archive.

    KeyError or BadZipFile if it is not there, encrypted, packed in an unknown way, or expands too
    far.
    """
    about = archive.getinfo(name)
    if about.file_size > max(LARGEST_BYTES, _LARGEST_RATIO * about.compress_size):
        raise BadZipFile(
            f"{about.compress_size:,} bytes would become {about.file_size:,}: no data does that"
        )
    try:
        return archive.open(name)
    except RuntimeError as error:  # also NotImplementedError
        raise BadZipFile(str(error)) from error
