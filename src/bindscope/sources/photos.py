"""From image files to the shards that models see."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from bindscope.config.observed import PhotosRenderer
from bindscope.core.errors import InputError, first_line
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.shards import write_blocks
from bindscope.sources.base import LEAVE_OUT, SourceFiles
from bindscope.sources.masks import (
    LARGEST_PIXELS,
    ON_ITS_SIDE,
    UNDECODED,
    read_mask,
    refuse_other_size,
    refuse_pixels,
    refuse_size,
    shrink,
)
from bindscope.sources.records import Record, read_records

BLOCK = 64  # scenes that are held in memory at a time
PADDING = (124, 116, 104)  # ImageNet's mean: near zero once a model has normalised it

_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr")


@dataclass(frozen=True)
class Placed:
    """Where an image lies in the stored square: its size, left and upper edge.

    `original` is width and height in its own pixels. With `crops` (along the shorter and the longer
    side, at most) squares of `side` are cut out of the image and put next to each other, in raster
    order: as few as cover the image. The rest of the sheet is empty.
    """

    original: tuple[int, int]
    size: tuple[int, int]
    corner: tuple[int, int]
    side: int
    crops: tuple[int, int] | None = None

    @classmethod
    def fit_into(cls, original: tuple[int, int], render: PhotosRenderer) -> Self:
        """Place an image; see `PhotosRenderer.fit`."""
        side = render.size_px
        if render.fit == "squash":
            return cls(original, (side, side), (0, 0), side)
        if render.short_px is not None:
            shorter = min(original)
            width, height = (round(render.short_px * length / shorter) for length in original)
            return cls(original, (width, height), (0, 0), side, render.crops)
        longer = max(original)
        width, height = (max(1, round(side * length / longer)) for length in original)
        return cls(original, (width, height), ((side - width) // 2, (side - height) // 2), side)

    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the square that the image fills."""
        (left, top), (width, height) = self.corner, self.size
        return slice(top, top + height), slice(left, left + width)

    def arranged(self, pixels: npt.NDArray[Any], empty: Any) -> npt.NDArray[Any]:
        """Return pixels (height, width, ...) of `size` as they are stored."""
        side, channels = self.side, pixels.shape[2:]
        if self.crops is None:
            square = np.full((side, side, *channels), empty, pixels.dtype)
            square[self.window()] = pixels
            return square
        (rows, columns), corners = self.crops, self.corners()
        sheet = np.full((rows * columns, side, side, *channels), empty, pixels.dtype)
        for crop, (y, x) in zip(sheet, corners, strict=False):
            crop[...] = pixels[y : y + side, x : x + side]
        sheet = sheet.reshape(rows, columns, side, side, *channels)
        return sheet.swapaxes(1, 2).reshape(rows * side, columns * side, *channels)

    def corners(self) -> list[tuple[int, int]]:
        """Return upper and left edge of each crop; none of an image that is stored whole."""
        if self.crops is None:
            return []
        width, height = self.size
        most = self.crops if width >= height else self.crops[::-1]
        tops, lefts = (
            _spread(length - self.side, min(n, -(-length // self.side)))
            for length, n in zip((height, width), most, strict=True)
        )
        return [(y, x) for y in tops for x in lefts]

    def boxes(self, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.int16]:
        """Bring boxes (M, 4), in pixels of the image, to whole stored pixels."""
        scale = np.array(self.size) / self.original
        moved = boxes * np.tile(scale, 2) + np.tile(self.corner, 2)
        inside: npt.NDArray[np.float64] = np.clip(np.rint(moved), 0, self.side)
        return inside.astype(np.int16)


def _spread(room: int, n: int) -> list[int]:
    """Return where n crops begin: from 0 to `room`, evenly apart."""
    return [room * i // max(n - 1, 1) for i in range(n)]


def write_photos(
    records: Path | str,
    split: str,
    start: int,
    stop: int,
    render: PhotosRenderer,
    max_objects: int,
    writer: StoreWriter,
) -> None:
    """Read a shard's images, scenes `start` to `stop`, into a store being written.

    Arrays are `images` uint8 (n, size_px, size_px, 3), RGB; `cells` int16 (n, M), the object-code
    index of the j-th object in the source's order, -1 = none; `boxes` int16 (n, M, 4): x0 y0 x1 y1
    in stored pixels, -1 where there is none. Where the source has masks also `masks` (n, size_px,
    size_px), uint8, or uint16 where M is above 255: j where the j-th object is, from 1 on, 0 where
    none is; `classes` int16 (n, M), the class of each object from 1 on, 0 = none; `stuff` uint8 (n,
    M), 1 = stuff. Of crops, images and masks are sheets of them without boxes, of which `n_crops`
    int16 (n,) are filled. An image or mask that cannot be read, or a mask of another size, is an
    InputError.
    """
    stored = read_records(records, split, start, stop)
    files = SourceFiles(stored.images)
    masked = [record.segments is not None for record in stored.scenes]
    if any(masked) and not all(masked):
        without = stored.scenes[masked.index(False)]
        raise InputError(
            f"{without.image} ({without.where})",
            "has no mask, and other images of its shard do",
            "let the reader give a mask for every image, or for none",
        )

    def decoded(first: int, last: int) -> dict[str, npt.NDArray[np.integer]]:
        return _arrays(files, stored.scenes[first:last], render, max_objects, masked=any(masked))

    writer.attributes.update(split=split, start=start)
    if render.crops:
        writer.attributes["crops"] = list(render.crops)
    write_blocks(writer, len(stored.scenes), BLOCK, "images", decoded)


def _arrays(
    files: SourceFiles,
    records: tuple[Record, ...],
    render: PhotosRenderer,
    max_objects: int,
    masked: bool,
) -> dict[str, npt.NDArray[np.integer]]:
    n, sheet = len(records), render.crops or (1, 1)
    stored = tuple(crops * render.size_px for crops in sheet)
    arrays: dict[str, npt.NDArray[np.integer]] = {
        "images": np.empty((n, *stored, 3), np.uint8),
        "cells": np.full((n, max_objects), -1, np.int16),
        "boxes": np.full((n, max_objects, 4), -1, np.int16),
    }
    if render.crops:
        arrays["n_crops"] = np.zeros(n, np.int16)
    if masked:
        arrays |= {
            "masks": np.zeros((n, *stored), np.uint8 if max_objects < 256 else np.uint16),
            "classes": np.zeros((n, max_objects), np.int16),
            "stuff": np.zeros((n, max_objects), np.uint8),
        }
    for i, record in enumerate(records):
        arrays["images"][i], placed = load_image(files, record, render)
        if render.crops:
            arrays["n_crops"][i] = len(placed.corners())
        objects = len(record.cells)
        arrays["cells"][i, :objects] = record.cells
        if record.boxes and render.crops is None:
            arrays["boxes"][i, :objects] = placed.boxes(np.array(record.boxes))
        if record.segments:
            arrays["masks"][i] = load_mask(files, record, placed)
            arrays["classes"][i, :objects] = np.array(record.cells) + 1
            arrays["stuff"][i, :objects] = record.segments.stuff
    return arrays


def load_image(
    files: SourceFiles, record: Record, render: PhotosRenderer
) -> tuple[npt.NDArray[np.uint8], Placed]:
    """Decode an image and bring it into a square, or a sheet of crops, uint8 (height, width, 3).

    It is turned upright as its EXIF tag says, unless its record is of the stored pixels; what is
    transparent becomes white. A JPEG beyond `LARGEST_PIXELS` is decoded at a fraction of its size.
    InputError if it cannot be decoded, is too large, has more than 8 bits per channel, or is not of
    the size that its boxes are of.
    """
    content = files.read(record.image)
    where = f"{files.path(record.image)} ({record.where})"
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if opened.mode not in _EIGHT_BIT:
                raise InputError(
                    where,
                    f"has pixels of mode {opened.mode}, not 8 bits per channel",
                    "convert it to 8-bit grey or RGB",
                )
            original = opened.size
            if opened.width * opened.height > LARGEST_PIXELS:
                side = 2 * (render.short_px or render.size_px)
                opened.draft("", (side, side))
            refuse_pixels(opened, where)
            if record.upright:
                if opened.getexif().get(Base.Orientation) in ON_ITS_SIDE:
                    original = original[::-1]
                ImageOps.exif_transpose(opened, in_place=True)
            image = _opaque(opened)
    except UNDECODED as error:
        raise InputError(
            where,
            f"does not decode as an image ({first_line(error)})",
            f"replace the file, or {LEAVE_OUT}",
        ) from error
    if record.size:
        refuse_other_size(original, record.size, where)
    placed = Placed.fit_into(original, render)
    if image.size != placed.size:
        image = image.resize(placed.size, Image.Resampling.BICUBIC)
    return placed.arranged(np.asarray(image, np.uint8), PADDING), placed


def _opaque(image: Image.Image) -> Image.Image:
    """Return an image as RGB, on white where it is transparent; each copy counts in large ones."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("RGB")


def load_mask(files: SourceFiles, record: Record, placed: Placed) -> npt.NDArray[np.uint16]:
    """Decode the mask of an image and bring it to where the image is, without interpolating.

    uint16 (height, width): j where the j-th object is, from 1 on, 0 where none is or no image.
    Errors are those of `read_mask`, and InputError if the mask is not of the image's size.
    """
    assert record.segments is not None
    mask = read_mask(files, record.segments, record.where, record.upright)
    height, width = mask.shape
    place = f"{files.path(record.segments.file)} ({record.where})"
    refuse_size((width, height), placed.original, place)
    return placed.arranged(shrink(mask, placed.size[1], placed.size[0]), 0)
