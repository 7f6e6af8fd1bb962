"""Mask files: which pixel belongs to which object, and what is kept of it in a smaller image."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from bindscope.core.errors import InputError, first_line
from bindscope.sources.base import LEAVE_OUT, Segments, SourceFiles

_DRAFT = (32, 32)
ON_ITS_SIDE = (5, 6, 7, 8)  # values of the EXIF tag that swap width and height
_AGAIN = f"replace the file, or {LEAVE_OUT}"
_LISTED = 8  # numbers that a message lists
_GRAY = ("1", "L", "LA", "P", "I", "I;16")  # modes of a mask whose pixels are numbers
_LARGEST_TABLE = 1 << 24  # numbers of three channels
LARGEST_PIXELS = 64_000_000  # of an image or mask: four bytes each, four copies, make 1 GB
# What Pillow raises for a file that is damaged or something else.
UNDECODED = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)

Numbers = npt.NDArray[np.int32]


def _all_three(pixels: npt.NDArray[np.integer]) -> Numbers:
    numbers = pixels[..., 2].astype(np.int32)
    for channel in (1, 0):  # in place: a photograph has millions of pixels
        numbers *= 256
        numbers += pixels[..., channel]
    return numbers


def _index(pixels: npt.NDArray[np.integer]) -> Numbers:
    """Take a mask that was saved in color though all its pixels are gray for one of gray values."""
    if pixels.ndim == 2:
        return pixels.astype(np.int32)
    gray = (pixels[..., :1] == pixels).all()
    return pixels[..., 0].astype(np.int32) if gray else _all_three(pixels)


# How the pixels of a file become numbers, by `sources.base.CHANNELS`.
NUMBERS: dict[str, Callable[[npt.NDArray[np.integer]], Numbers]] = {
    "blue": lambda pixels: pixels[..., 2].astype(np.int32),
    "red_green_blue": _all_three,
    "index": _index,
}


class ImageSize(NamedTuple):
    """Width and height of an image, as its pixels are stored and as its EXIF tag turns it."""

    stored: tuple[int, int]
    upright: tuple[int, int]


def read_pixels(
    files: SourceFiles, name: str, where: str, channels: str = "blue", upright: bool = False
) -> npt.NDArray[np.integer]:
    """Read a mask file: (H, W, 3), or (H, W) where a pixel is a number.

    `channels` is one of `sources.base.CHANNELS`: a mask of another than `index` is an RGB image of
    8 bits. `upright`: it is turned as its own EXIF tag says. InputError if it is missing, does not
    decode, or is of another mode; `where` names the image.
    """
    place = f"{files.path(name)} ({where})"
    if not files.exists(name):
        raise InputError(place, "there is no such mask", f"add the mask, or {LEAVE_OUT}")
    try:
        with Image.open(io.BytesIO(files.read(name))) as opened:
            _refuse_mode(opened, channels, place)
            refuse_pixels(opened, place)
            mask = ImageOps.exif_transpose(opened) if upright else opened
            if mask.mode in ("LA", "RGBA"):
                mask = mask.convert(mask.mode[:-1])
            return np.asarray(mask)
    except UNDECODED as error:
        raise InputError(
            place, f"does not decode as a mask ({first_line(error)})", _AGAIN
        ) from error


def _refuse_mode(mask: Image.Image, channels: str, place: str) -> None:
    if channels != "index":
        if mask.mode != "RGB":
            raise InputError(
                place,
                f"is a mask of mode {mask.mode}, not RGB with 8 bits",
                f"replace it by a mask with numbers in its three channels, or {LEAVE_OUT}",
            )
    elif mask.format in ("JPEG", "MPO"):
        raise InputError(
            place,
            "is a JPEG, which changes the numbers of pixels",
            "save masks as PNG from the program that made them",
        )
    elif mask.mode not in (*_GRAY, "RGB", "RGBA"):
        raise InputError(
            place,
            f"is a mask of mode {mask.mode}, whose pixels are no whole numbers",
            "save masks as PNG of mode L, P, I;16 or RGB",
        )


def image_size(files: SourceFiles, image: str, where: str) -> ImageSize:
    """Return the size of an image that decodes whole; InputError otherwise."""
    place = f"{files.path(image)} ({where})"
    try:
        with Image.open(io.BytesIO(files.read(image))) as opened:
            size = (opened.width, opened.height)
            turned = opened.getexif().get(Base.Orientation) in ON_ITS_SIDE
            refuse_pixels(opened, place)
            opened.draft("RGB", _DRAFT)  # of a JPEG: all bytes are read, few pixels computed
            opened.load()
    except UNDECODED as error:
        raise InputError(
            place, f"does not decode as an image ({first_line(error)})", _AGAIN
        ) from error
    return ImageSize(size, size[::-1] if turned else size)


def refuse_pixels(image: Image.Image, place: str) -> None:
    """Refuse an image of more than `LARGEST_PIXELS` by its head: InputError."""
    if image.width * image.height > LARGEST_PIXELS:
        raise InputError(
            place,
            f"has {image.width} x {image.height} pixels; {LARGEST_PIXELS:,} can be read",
            "make it smaller, and its boxes and mask with it; or leave the image out",
        )


def refuse_other_size(image: tuple[int, int], expected: tuple[int, int], place: str) -> None:
    """Refuse an image of another width and height than its boxes are of, with InputError."""
    if image != expected:
        raise InputError(
            place,
            f"has {image[0]} x {image[1]} pixels as stored, and its boxes are of "
            f"{expected[0]} x {expected[1]}",
            f"take the release's own file, or {LEAVE_OUT}",
        )


def refuse_size(mask: tuple[int, int], image: tuple[int, int], place: str) -> None:
    """Refuse a mask of another width and height than its image, with InputError."""
    if mask == image:
        return
    remedy = f"replace the mask by one of that size, or {LEAVE_OUT}"
    if mask == image[::-1]:
        remedy = (
            "an EXIF tag turns the image: set `source.orientation` to the pixels that masks were "
            f"drawn on, turn the mask, or {LEAVE_OUT}"
        )
    raise InputError(
        place, f"is {mask[0]} x {mask[1]} pixels, and its image {image[0]} x {image[1]}", remedy
    )


def read_numbers(
    files: SourceFiles, segments: Segments, where: str, upright: bool = False
) -> Numbers:
    """Read the number of every pixel of a mask; parameters and errors are those of `read_mask`."""
    pixels = read_pixels(files, segments.file, where, segments.channels, upright)
    return NUMBERS[segments.channels](pixels)


def read_mask(
    files: SourceFiles, segments: Segments, where: str, upright: bool = False
) -> npt.NDArray[np.uint16]:
    """Read which object every pixel is of, uint16 (H, W): j for the j-th object, from 1 on, else 0.

    `upright`: a mask of numbers is turned as its EXIF tag says. Errors are those of `read_pixels`,
    and InputError if the mask has no pixel of one of the objects.
    """
    numbers = read_numbers(files, segments, where, upright)
    return find_objects(numbers, segments, f"{files.path(segments.file)} ({where})")


def find_objects(numbers: Numbers, segments: Segments, place: str) -> npt.NDArray[np.uint16]:
    """Return which object every pixel is of, from its number; InputError if one has no pixel."""
    known = np.array(segments.ids, np.int32)
    ranks = _ranks(numbers, known)
    n_pixels = np.bincount(ranks.ravel(), minlength=len(known) + 1)[1:]
    if not n_pixels.all():
        has = np.unique(numbers)
        lacking = ", ".join(map(str, known[~np.isin(known, has)].tolist()))
        if not lacking:  # a number is given twice, which the check of labels says
            return ranks
        listed = ", ".join(map(str, has[:_LISTED].tolist())) + (", ..." * (len(has) > _LISTED))
        raise InputError(
            place,
            f"has no pixel with the number {lacking}, which the labels give to an object; its "
            f"pixels have {listed}",
            f"make mask and labels agree, or {LEAVE_OUT}",
        )
    return ranks


def _ranks(numbers: Numbers, known: Numbers) -> npt.NDArray[np.uint16]:
    """Return which of the known numbers each is, from 1 on; 0 for none of them.

    By a table of all numbers: of 12 million pixels a search takes ten times as long.
    """
    last = known.max()
    if known.min() < 0 or last >= _LARGEST_TABLE:  # of 32 bits
        order = np.argsort(known)
        at = np.searchsorted(known[order], numbers).clip(max=len(known) - 1)
        return np.where(known[order][at] == numbers, order[at] + 1, 0).astype(np.uint16)
    table = np.zeros(last + 2, np.uint16)
    table[known] = np.arange(1, len(known) + 1)
    return table[np.minimum(numbers.view(np.uint32), np.uint32(last + 1))]  # negative: the last


def shrink(mask: npt.NDArray[np.uint16], height: int, width: int) -> npt.NDArray[np.uint16]:
    """Resize a mask to (height, width): every pixel is that of the nearest one's centre.

    Nothing is interpolated, so that no label appears that the mask does not hold. What is smaller
    than a pixel may disappear.
    """
    rows, columns = _nearest(mask.shape[0], height), _nearest(mask.shape[1], width)
    return mask[rows[:, None], columns]


def _nearest(old: int, new: int) -> npt.NDArray[np.intp]:
    return ((2 * np.arange(new) + 1) * old // (2 * new)).astype(np.intp)
