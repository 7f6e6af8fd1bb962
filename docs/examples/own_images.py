"""Make photos, masks and labels for docs/own_datasets.md: `own_images.py FOLDER [NUMBER]`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

COLORS = {"red": (220, 20, 60), "green": (34, 139, 34), "blue": (30, 144, 255)}
SHAPES = ("circle", "square")
HEADER = ("image", "mask", "id", "color", "shape", "x", "y", "width", "height")
TURNED = 6  # EXIF: viewers turn the stored pixels by 90 degrees, clockwise
ORIENTATION = 0x0112


def main(folder: Path, n_images: int = 240) -> None:
    """Draw photos of one to three objects with a mask each, and write `objects.csv` beside them.

    As a phone does, every tenth photo is stored on its side. Masks are of mode P or L.
    """
    rng = np.random.default_rng(0)
    for name in ("photos", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    types = [(color, shape) for color in COLORS for shape in SHAPES]
    with (folder / "objects.csv").open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(HEADER)
        for number in range(n_images):
            photo, mask = Image.new("RGB", (48, 32), "white"), Image.new("L", (48, 32))
            files = f"photos/{number:03d}.jpg", f"masks/{number:03d}.png"
            chosen = rng.permutation(len(types))[: rng.integers(1, 4)]
            for id_, (kind, cell) in enumerate(zip(chosen, rng.permutation(6), strict=False), 1):
                color, shape = types[kind]
                left, top = 16 * int(cell % 3) + 2, 16 * int(cell // 3) + 2
                for image, fill in ((photo, COLORS[color]), (mask, id_)):
                    drawing = ImageDraw.Draw(image)
                    draw = drawing.ellipse if shape == "circle" else drawing.rectangle
                    draw((left, top, left + 11, top + 11), fill=fill)
                table.writerow([*files, id_, color, shape, left, top, 12, 12])
            exif = Image.Exif()
            if number % 10 == 0:
                photo, exif[ORIENTATION] = photo.transpose(Image.Transpose.ROTATE_90), TURNED
            photo.save(folder / files[0], quality=95, exif=exif)
            if number % 2:
                mask = mask.convert("P")
            mask.save(folder / files[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
