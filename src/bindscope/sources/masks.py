"""Mask files: which pixel belongs to which object, and what is kept of it in a smaller image."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from bindscope.core.errors import InputError, first_line
from bindscope.sources.base import Segments, SourceFiles

_DRAFT = (32, 32)
LARGEST_PIXELS = 64_000_000  # of an image or mask: four bytes each, four copies, make 1 GB
# What Pillow raises for a file that is damaged or something else.
UNDECODED = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)

Pixels = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]


def _all_three(pixels: Pixels) -> Numbers:
    red, green, blue = (pixels[..., channel].astype(np.int32) for channel in range(3))
    return red + 256 * green + 65536 * blue


# How the pixels of an RGB file become numbers, by `sources.base.CHANNELS`.
NUMBERS: dict[str, Callable[[Pixels], Numbers]] = {
    "blue": lambda pixels: pixels[..., 2].astype(np.int32),
    "red_green_blue": _all_three,
}


def read_pixels(files: SourceFiles, name: str, where: str) -> Pixels:
    """Read a mask file as it is stored, uint8 (H, W, 3).

    Raises
    ------
    InputError
        If it is missing, does not decode, or is no RGB image of 8 bits.
    """
    place = f"{files.path(name)} ({where})"
    if not files.exists(name):
        raise InputError(
            place, "there is no such mask",
            "unpack the masks again, or list the image under `source.skip`",
        )  # fmt: skip
    try:
        with Image.open(io.BytesIO(files.read(name))) as opened:
            if opened.mode != "RGB":
                raise InputError(
                    place, f"is a mask of mode {opened.mode}, not RGB with 8 bits",
                    "bring the release's own file back: numbers stand in its three channels",
                )  # fmt: skip
            refuse_pixels(opened, place)
            return np.asarray(opened, np.uint8)
    except UNDECODED as error:
        raise InputError(
            place, f"does not decode as a mask ({first_line(error)})",
            "unpack it again, or list the image under `source.skip`",
        ) from error  # fmt: skip


def image_size(files: SourceFiles, image: str, where: str) -> tuple[int, int]:
    """Return width and height of an image all of whose bytes decode.

    Raises
    ------
    InputError
        If it does not decode, or has too many pixels.
    """
    place = f"{files.path(image)} ({where})"
    try:
        with Image.open(io.BytesIO(files.read(image))) as opened:
            size = opened.size
            refuse_pixels(opened, place)
            opened.draft("RGB", _DRAFT)  # of a JPEG: all bytes are read, few pixels computed
            opened.load()
    except UNDECODED as error:
        raise InputError(
            place, f"does not decode as an image ({first_line(error)})",
            "unpack it again, or list the image under `source.skip`",
        ) from error  # fmt: skip
    return size


def refuse_pixels(image: Image.Image, place: str) -> None:
    """Refuse an image that takes too much memory once decoded; only its head was read so far.

    Raises
    ------
    InputError
        If it has more than `LARGEST_PIXELS`.
    """
    if image.width * image.height > LARGEST_PIXELS:
        raise InputError(
            place, f"has {image.width} x {image.height} pixels; {LARGEST_PIXELS:,} can be read",
            "make it smaller, and its boxes and mask with it; or leave the image out",
        )  # fmt: skip


def refuse_size(mask: tuple[int, int], image: tuple[int, int], place: str) -> None:
    """Refuse a mask of another size, width and height, than its image; `place` names it.

    Raises
    ------
    InputError
        If they differ.
    """
    if mask != image:
        raise InputError(
            place, f"is {mask[0]} x {mask[1]} pixels, and its image {image[0]} x {image[1]}",
            "bring both back as the release has them, or leave the image out (`source.skip`, "
            "`source.bad_masks: skip`)",
        )  # fmt: skip


def read_mask(files: SourceFiles, segments: Segments, where: str) -> npt.NDArray[np.uint16]:
    """Read which object every pixel is of.

    Parameters
    ----------
    files
        The files of a source.
    segments
        The mask file, and the number of each object in it.
    where
        What to call the image in a message.

    Returns
    -------
    ndarray
        uint16 (H, W): j for the j-th object, from 1 on; 0 where no object is.

    Raises
    ------
    InputError
        As `read_pixels`, or if the mask has no pixel of an object.
    """
    numbers = NUMBERS[segments.channels](read_pixels(files, segments.file, where))
    known = np.array(segments.ids, np.int32)
    order = np.argsort(known)
    ranked = np.searchsorted(known[order], numbers).clip(max=len(known) - 1)
    found = np.where(known[order][ranked] == numbers, order[ranked] + 1, 0).astype(np.uint16)
    seen = np.bincount(found.ravel(), minlength=len(known) + 1)[1:]
    if not seen.all():
        raise InputError(
            f"{files.path(segments.file)} ({where})",
            f"has no pixel with the number {known[seen == 0][0]}, which the labels give to an "
            "object",
            "mask and labels are not of the same release: unpack both again",
        )
    return found


def shrink(mask: npt.NDArray[np.uint16], height: int, width: int) -> npt.NDArray[np.uint16]:
    """Resize a mask to (height, width): every pixel is that of the nearest one's centre.

    Nothing is interpolated, so that no label appears that the mask does not hold. What is smaller
    than a pixel may disappear.
    """
    rows, columns = _nearest(mask.shape[0], height), _nearest(mask.shape[1], width)
    return mask[rows[:, None], columns]


def _nearest(old: int, new: int) -> npt.NDArray[np.intp]:
    return ((2 * np.arange(new) + 1) * old // (2 * new)).astype(np.intp)
