"""Copy the figures of runs, smaller, to docs/images, where the gallery shows them.

    python tools/gallery.py results/figures elsewhere/results/figures

The first folder that draws a figure gives its image.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from bindscope.core.registries import studies
from bindscope.figures.colors import is_empty

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH_PX = 1000
COLORS = 128


def main() -> int:
    """Write the images, and name the figures that no folder draws."""
    missing = []
    for name in (entry.name for study in studies().values() for entry in study.wide_figures):
        files = (Path(folder) / f"{name}.svg" for folder in sys.argv[1:])
        if svg := next((file for file in files if file.exists() and not is_empty(file)), None):
            with Image.open(svg.with_suffix(".png")) as image:
                size = (WIDTH_PX, round(image.height * WIDTH_PX / image.width))
                small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            small.quantize(COLORS).save(IMAGES / f"{name}.png", optimize=True)
        else:
            missing.append(name)
    print("not drawn:", *(missing or ["none"]))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
