"""Make a small folder of images and labels for docs/own_datasets.md: `own_images.py FOLDER`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

COLORS = {"red": (220, 20, 60), "green": (34, 139, 34), "blue": (30, 144, 255)}
SHAPES = ("circle", "square")


def main(folder: Path, n_images: int = 240) -> None:
    """Draw images of one to three different objects, and write `objects.csv` beside them."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    types = [(color, shape) for color in COLORS for shape in SHAPES]
    with (folder / "objects.csv").open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["image", "color", "shape", "x0", "y0", "x1", "y1"])
        for number in range(n_images):
            image = Image.new("RGB", (48, 32), "white")
            drawing = ImageDraw.Draw(image)
            chosen = rng.permutation(len(types))[: rng.integers(1, 4)]
            places = rng.permutation(6)
            for kind, place in zip(chosen, places, strict=False):
                color, shape = types[kind]
                left, top = 16 * int(place % 3) + 2, 16 * int(place // 3) + 2
                box = (left, top, left + 11, top + 11)
                draw = drawing.ellipse if shape == "circle" else drawing.rectangle
                draw(box, fill=COLORS[color])
                edges = (left, top, left + 12, top + 12)
                table.writerow([f"{number:03d}.png", color, shape, *edges])
            image.save(folder / f"{number:03d}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
