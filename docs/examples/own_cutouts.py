"""Make a small folder of cut-outs for docs/studies/binding_id_task.md: `own_cutouts.py FOLDER`.

No photos: things are solids of the project's renderer on transparent ground, and backgrounds are
noise. Of every noun in every colour there are two "photos", one dull, one of metal.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from bindscope.scenes.solids.portraits import Material, portrait
from bindscope.scenes.solids.world import from_srgb, to_srgb
from bindscope.scenes.sprite_palette import BODIES, COLOURS, RGB, SHAPES

MATERIALS: tuple[Material, ...] = ("rubber", "metal")


def main(
    folder: Path, n_words: int = 4, side_px: int = 96, materials: Sequence[Material] = MATERIALS
) -> None:
    """Write things of `n_words` nouns and colours a split, `cutouts.csv`, and `backgrounds`."""
    (folder / "things").mkdir(parents=True, exist_ok=True)
    with (folder / "cutouts.csv").open("w", newline="") as handle:
        table = csv.writer(handle, lineterminator="\n")
        table.writerow(["file", "noun", "colour", "split"])
        for split in SHAPES:
            words = SHAPES[split][:n_words], COLOURS[split][:n_words], materials
            for noun, colour, material in product(*words):
                name = f"things/{noun}-{colour}-{material}.png"
                cut_out(noun, colour, material, side_px).save(folder / name)
                table.writerow([name, noun, colour, split])
    (folder / "backgrounds").mkdir(exist_ok=True)
    for number in range(4):
        background(number, 4 * side_px).save(folder / "backgrounds" / f"{number}.png")


def cut_out(noun: str, colour: str, material: Material, side_px: int) -> Image.Image:
    """Draw a solid on transparent ground."""
    face = portrait(BODIES.get(noun, noun), material, side_px, side_px, 1.0, 4, 3)
    light = face.body[..., None] * from_srgb(np.array(RGB[colour])) + face.shine[..., None]
    rgb = to_srgb(light / np.maximum(face.covered, 1e-9)[..., None])
    alpha = np.rint(255 * face.covered).astype(np.uint8)
    return Image.fromarray(np.dstack([rgb, alpha]))


def background(seed: int, height: int) -> Image.Image:
    """Draw something like a photo: noise of several grains over a gradient, 4 : 3."""
    rng = np.random.default_rng(seed)
    size = (height * 4 // 3, height)
    grey, tint = rng.uniform(60, 200, (2, 1)), rng.uniform(-25, 25, (2, 3))
    top, bottom = grey + tint
    image = np.linspace(top, bottom, height)[:, None] + np.zeros((1, size[0], 1))
    for grain in (3, 12, 48):
        coarse = rng.integers(0, 256, (grain, grain), np.uint8)
        noise = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
        image += (np.asarray(noise, float)[..., None] - 127) * 0.8 / (1 + grain / 8)
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
