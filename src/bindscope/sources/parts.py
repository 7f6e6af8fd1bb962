"""The parts that a release has itself, where it has a train and a held-out part and no third."""

from __future__ import annotations

from hashlib import sha1
from typing import Generic, TypeVar

from bindscope.config.segmented import Ade20kSource, CocoPanopticSource
from bindscope.sources.base import Skipped, SourceFiles

MaskedSource = TypeVar("MaskedSource", Ade20kSource, CocoPanopticSource)
_VAL_EVERY = 5


class PartsReader(Generic[MaskedSource]):
    """A reader of photos of such a release.

    With a `split_column` the held-out part is `test` and the other one `train` and `val`.
    """

    def __init__(self, source: MaskedSource, split_column: str | None = None) -> None:
        self.source: MaskedSource = source
        self._by_part = split_column is not None
        self.images = source.path
        self.skipped: list[Skipped] = []
        self._files = SourceFiles(source.path)

    def _split(self, image: str, held_out: bool) -> str | None:
        return split_of(image, held_out) if self._by_part else None


def split_of(image: str, held_out: bool) -> str:
    """Return the split of an image: `test` if it is held out, else `train` or `val`.

    One in five images of the train part is in `val`, by the SHA-1 of its file name: in order of
    their numbers, which go by kinds of scenes, `val` would be of other scenes than `train`.
    """
    if held_out:
        return "test"
    name = image.rpartition("/")[2]
    return "train" if int(sha1(name.encode()).hexdigest(), 16) % _VAL_EVERY else "val"
