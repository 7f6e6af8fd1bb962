"""Photos of ADE20K's full release (Zhou et al., IJCV 2019, arXiv 1608.05442)."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bindscope.config.segmented import Ade20kSource
from bindscope.core.errors import InputError
from bindscope.core.progress import Progress
from bindscope.sources.ade20k_index import Index, IndexedImage, read_index
from bindscope.sources.base import Scene, Segments, Skipped, SourceFiles, is_listed
from bindscope.sources.label_files import ADE20K_BENCHMARK, ADE20K_INDEX
from bindscope.sources.masks import read_pixels
from bindscope.sources.parts import PartsReader

log = logging.getLogger(__name__)

OTHER = "other"
# Positions in the full index among the images of a part. The release has no list of its own.
KNOWN_BAD = {
    "training": (
        7689,
        8904,
        8905,
        20433,
        20543,
        21029,
        22979,
        23011,
        23048,
        24103,
        24794,
    ),
    "validation": (20,),
}
FULL = {"training": 25574, "validation": 2000}  # images of a part in the full index
BAD_REASON = "the released code of arXiv 2510.24709 leaves it out as corrupted; not checked here"
_TV_SET = "television;set;tv;tv;set;idiot;box;boob;tube;telly;goggle;box"
# Names of the index that are one of the 150 classes under another name.
_RENAMED = {
    "door": "door;double;door",
    "double;door": "door;double;door",
    f"television;receiver;television;{_TV_SET}": f"television;television;receiver;{_TV_SET}",
    "screen;crt;screen": "crt;screen",
}
_CODE_BITS = 13  # of a class code, which is at most 25 * 256 + 255


@dataclass(frozen=True)
class Classes:
    """What class codes of masks mean: names of the group `class`, and which are stuff.

    `of_code` leads from a code to the position in `names`; -1 for objects that are ignored.
    """

    names: tuple[str, ...]
    of_code: tuple[int, ...]
    stuff: tuple[bool, ...]


class Ade20kReader(PartsReader[Ade20kSource]):
    """Reads the photos of ADE20K's own parts, in the order of the index.

    In a mask ``<image>_seg.png`` R // 10 * 256 + G is the class, from 1 on in the index's
    `objectnames`, and B tells the objects of an image apart. Masks of parts are not read.
    `validation` is the part that is held out.
    """

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """The 150 classes and, if it is kept, `other`; or all names of the index."""
        return {"class": self._classes.names}

    @cached_property
    def _index(self) -> Index:
        return read_index(self._files, ADE20K_INDEX)

    @cached_property
    def _classes(self) -> Classes:
        benchmark = read_benchmark(self._files, ADE20K_BENCHMARK)
        return classes_of(self._index.names, benchmark, self.source)

    def scenes(self) -> Iterator[Scene]:
        """Read index and masks; InputError for a file that is not the release's."""
        self.skipped.clear()
        entries = [entry for entry in self._index.images if entry.part in self.source.parts]
        progress, before = Progress(len(entries), "masks"), Counter[str]()
        sizes = Counter(entry.part for entry in entries)
        known_bad = {part: KNOWN_BAD[part] for part in sizes if sizes[part] == FULL[part]}
        for part in sorted({*sizes} - {*known_bad}):
            log.info("%s is not the full index: no image is left out by its position", part)
        for entry in entries:
            position = before[entry.part]
            before[entry.part] += 1
            progress.advance()
            where = f"{entry.part} image {position}"
            if is_listed(entry.file, self.source.skip):
                self.skipped.append(Skipped(entry.file, "source.skip"))
                continue
            if position in known_bad.get(entry.part, ()):
                self.skipped.append(Skipped(entry.file, BAD_REASON))
                continue
            try:
                pixels = read_pixels(self._files, mask_of(entry.file), where)
            except InputError as error:
                if self.source.bad_images == "stop":
                    raise
                self.skipped.append(Skipped(entry.file, f"mask: {error.problem}"))
                continue
            if scene := self._scene(entry, where, pixels):
                yield scene
            else:
                self.skipped.append(Skipped(entry.file, "no object is labelled"))

    def _scene(
        self, image: IndexedImage, where: str, pixels: npt.NDArray[np.integer]
    ) -> Scene | None:
        """Return the objects of an image by its mask; None if there is none."""
        mask = mask_of(image.file)
        codes = object_codes(pixels)
        largest, known = max(codes.values(), default=0), len(self._index.names)
        if largest > known:
            raise InputError(
                f"{self._files.path(mask)} ({where})",
                f"has the class {largest}, and the index {known} names",
                "mask and index are not of the same release: bring both of it",
            )
        classes = self._classes
        ids = tuple(number for number, code in codes.items() if classes.of_code[code] >= 0)
        if not ids:
            return None
        return Scene(
            image.file,
            tuple({"class": classes.names[classes.of_code[codes[number]]]} for number in ids),
            where,
            split=self._split(image.file, image.part == "validation"),
            segments=Segments(
                mask, "blue", ids, tuple(classes.stuff[codes[number]] for number in ids)
            ),
            upright=False,
        )


def mask_of(image: str) -> str:
    """Name the mask beside an image."""
    return f"{image.removesuffix('.jpg')}_seg.png"


def object_codes(pixels: npt.NDArray[np.integer]) -> dict[int, int]:
    """Find the objects of a mask as stored, uint8 (H, W, 3): value of B -> class code, ascending.

    The class is that of most pixels of the object, the smaller code where two are as frequent; 0 in
    either channel is "unlabelled".
    """
    red, green, blue = (pixels[..., channel].astype(np.int32) for channel in range(3))
    joint = blue << _CODE_BITS | red // 10 << 8 | green
    counts = np.bincount(joint.ravel(), minlength=256 << _CODE_BITS).reshape(256, -1)
    present = [int(number) for number in np.flatnonzero(np.bincount(blue.ravel())) if number]
    codes = counts[present].argmax(axis=1).tolist()
    return {number: code for number, code in zip(present, codes, strict=True) if code}


def read_benchmark(files: SourceFiles, name: str) -> dict[str, bool]:
    """Read names of the 150 classes, and whether they are stuff; InputError for another file."""
    path = files.path(name)
    if not files.exists(name):
        raise InputError(path, "there is no such file", _BENCHMARK)
    with files.text(name) as file:
        rows = list(csv.DictReader(line.removeprefix("\ufeff") for line in file))
    try:
        is_stuff = {row["Name"]: row["Stuff"] == "1" for row in rows}
        numbers = [row["Idx"] for row in rows]
    except (KeyError, TypeError) as error:
        raise InputError(path, f"has no column {error}", _BENCHMARK) from None
    if numbers != [str(i + 1) for i in range(150)] or len(is_stuff) < 150:
        raise InputError(path, f"has not 150 classes in order, but {len(is_stuff)}", _BENCHMARK)
    return is_stuff


_BENCHMARK = (
    "bring the benchmark's table of classes (columns Idx, Stuff and Name) there; it is data/"
    "object150_info.csv of github.com/CSAILVision/semantic-segmentation-pytorch"
)


def classes_of(
    names: Sequence[str], benchmark: Mapping[str, bool], source: Ade20kSource
) -> Classes:
    """Say what the class codes of the masks mean; the j-th name, from 1 on, has the code j."""
    place = {name: i for i, name in enumerate(benchmark)}
    listed = [benchmark_name(name) for name in names]
    stuff = (False, *(benchmark.get(name, False) for name in listed))
    if source.classes == "all":
        return Classes(tuple(names), (-1, *range(len(names))), stuff)
    keeps_others = source.other_objects == "keep"
    other_class = len(place) if keeps_others else -1
    class_names = (*place, OTHER) if keeps_others else tuple(place)
    return Classes(class_names, (-1, *(place.get(name, other_class) for name in listed)), stuff)


def benchmark_name(name: str) -> str:
    """Write a name of the index as the 150 classes are written: ``wall``, ``building;edifice``."""
    written = name.replace(", ", ";").replace(" ", ";").lower()
    return _RENAMED.get(written, written)
