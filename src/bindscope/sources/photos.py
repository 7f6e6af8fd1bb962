"""From image files to the shards that models see."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from bindscope.core.errors import InputError
from bindscope.core.store.writer import StoreWriter
from bindscope.scenes.shards import write_blocks
from bindscope.sources.base import SourceFiles
from bindscope.sources.records import Record, read_records

BLOCK = 64  # scenes that are held in memory at a time

_EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr")


def write_photos(
    records: Path | str,
    split: str,
    start: int,
    stop: int,
    size_px: int,
    max_objects: int,
    writer: StoreWriter,
) -> None:
    """Read the images of a shard into a store.

    Parameters
    ----------
    records
        What `bindscope.sources.records` wrote.
    split, start, stop
        Which scenes.
    size_px, max_objects
        Side of the stored images, and M below.
    writer
        A store that is being written. The arrays are `images` uint8 (n, size_px, size_px, 3), RGB;
        `cells` int16 (n, M), the object-code index of the j-th object in the source's order, -1 =
        none; `boxes` int16 (n, M, 4): x0 y0 x1 y1 in stored pixels, -1 where there is none. There
        are no masks.

    Raises
    ------
    InputError
        For an image that cannot be read or decoded.
    """
    found = read_records(records, split, start, stop)
    files = SourceFiles(found.images)

    def decoded(first: int, last: int) -> dict[str, npt.NDArray[np.integer]]:
        return _arrays(files, found.scenes[first:last], size_px, max_objects)

    writer.attributes.update(split=split, start=start)
    write_blocks(writer, len(found.scenes), BLOCK, "images", decoded)


def _arrays(
    files: SourceFiles, records: tuple[Record, ...], size_px: int, max_objects: int
) -> dict[str, npt.NDArray[np.integer]]:
    images = np.empty((len(records), size_px, size_px, 3), np.uint8)
    cells = np.full((len(records), max_objects), -1, np.int16)
    boxes = np.full((len(records), max_objects, 4), -1, np.int16)
    for i, record in enumerate(records):
        images[i], scale = load_image(files, record, size_px)
        cells[i, : len(record.cells)] = record.cells
        if record.boxes:
            edges = np.rint(np.array(record.boxes) * [*scale, *scale])
            boxes[i, : len(record.boxes)] = np.clip(edges, 0, size_px)
    return {"images": images, "cells": cells, "boxes": boxes}


def load_image(
    files: SourceFiles, record: Record, size_px: int
) -> tuple[npt.NDArray[np.uint8], tuple[float, float]]:
    """Decode an image and resize the whole of it to a square.

    It is turned upright as its EXIF tag says; what is transparent becomes white.

    Parameters
    ----------
    files, record
        The image and its record.
    size_px
        Side of the square.

    Returns
    -------
    ndarray, (float, float)
        uint8 (size_px, size_px, 3), and the factors of the horizontal and vertical axis.

    Raises
    ------
    InputError
        If it cannot be decoded, or has more than 8 bits per channel.
    """
    content = files.read(record.image)
    where = f"{files.path(record.image)} ({record.where})"
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if opened.mode not in _EIGHT_BIT:
                raise InputError(
                    where, f"has pixels of mode {opened.mode}, not 8 bits per channel",
                    "convert it to 8-bit grey or RGB",
                )  # fmt: skip
            upright = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            where, f"does not decode as an image ({error})",
            "replace the file, or take its scene out of the labels",
        ) from error  # fmt: skip
    white = Image.new("RGBA", upright.size, "white")
    image = Image.alpha_composite(white, upright).convert("RGB")
    scale = size_px / image.width, size_px / image.height
    if image.size != (size_px, size_px):
        image = image.resize((size_px, size_px), Image.Resampling.BICUBIC)
    return np.asarray(image, np.uint8), scale
