"""The index of ADE20K's full release, a pickle: read without running what may stand in it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from bindscope.core.errors import InputError, first_line
from bindscope.sources.base import SourceFiles

_OWN = "bring ADE20K's own index_ade20k.pkl (ade20k.csail.mit.edu) there"
_LARGEST = 10_000_000  # entries of a list; the release has 27,574 images


def _reconstruct(kind: Any, shape: Any, code: Any) -> Any:
    """Make the empty array that a pickle fills; one of another shape would claim memory at once."""
    if shape != (0,):
        raise pickle.UnpicklingError(f"it holds an array of shape {str(shape)[:50]}")
    return np.empty(0)


def _ndarray(*_: Any) -> Any:
    raise pickle.UnpicklingError("it makes an array of any size")


# What a pickle of lists, numbers and NumPy arrays names; NumPy gives the function itself.
_ALLOWED = {
    "_reconstruct": _reconstruct,
    "scalar": np.float64(0).__reduce__()[0],
    "ndarray": _ndarray,
    "dtype": np.dtype,
}
# Whatever damaged bytes make of an unpickler, by its documentation.
_UNPICKLING = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ImportError,
    OverflowError,
    MemoryError,
    RecursionError,
)
_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")


@dataclass(frozen=True)
class IndexedImage:
    """An image of the index: its file below the release's folder, and its part."""

    file: str
    part: str


@dataclass(frozen=True)
class Index:
    """What is used of the index; the j-th name, from 1 on, is the class that masks call j."""

    images: tuple[IndexedImage, ...]
    names: tuple[str, ...]


class _OnlyData(pickle.Unpickler):
    """Loads lists, dictionaries, text, numbers and arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what an array is made with."""
        if module in _MODULES and name in _ALLOWED:
            return _ALLOWED[name]
        if (module, name) == ("_codecs", "encode"):  # bytes, in pickles of protocol 2
            return _encode
        raise pickle.UnpicklingError(f"it names {module}.{name}, and holds more than data")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode(encoding)


def read_index(files: SourceFiles, name: str) -> Index:
    """Read the index; InputError if it is damaged, no index, or names anything that is not data."""
    path = files.path(name)
    if not files.exists(name):
        raise InputError(path, "there is no such file", _OWN)
    with files.open(name) as file:
        content = _load(file, path)
    try:
        names, folders, images = (
            _texts(content[key]) for key in ("objectnames", "folder", "filename")
        )
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(path, f"is no index of ADE20K (no {error})", _OWN) from None
    if len(folders) != len(images):
        raise InputError(path, f"has {len(folders)} folders for {len(images)} images", _OWN)
    images_of_index = (
        _image(folder, file, path) for folder, file in zip(folders, images, strict=True)
    )
    return Index(tuple(images_of_index), tuple(names))


def _texts(values: Any) -> list[str]:
    if len(values) > _LARGEST or not all(isinstance(value, str) for value in values):
        raise TypeError("list of texts")
    return [str(value) for value in values]


def _load(file: IO[bytes], path: str) -> Any:
    try:
        return _OnlyData(file).load()
    except _UNPICKLING as error:
        problem = f"is no pickle of data ({first_line(error)})"
        raise InputError(path, problem, _OWN) from error


def _image(folder: str, file: str, path: str) -> IndexedImage:
    """Find an image's part, and its file below the release's folder, whatever that is called."""
    parts: Sequence[str] = folder.strip("/").split("/")
    part = next((name for name in ("training", "validation") if name in parts), None)
    if part is None or "images" not in parts:
        raise InputError(path, f"has an image in {folder!r}, which is no folder of ADE20K", _OWN)
    return IndexedImage("/".join([*parts[parts.index("images") :], file]), part)
