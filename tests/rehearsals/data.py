"""Stand-ins for the releases of images: their byte formats, at the sizes of their images.

Photos are of odd sizes, gray, CMYK, turned by their EXIF tag, and one JPEG is cut off.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from releases import write_clevr, write_pug_spare, zipped
from segmented_releases import (
    BUILDING,
    CAR,
    COCO_CATEGORIES,
    WALL,
    ZITHER,
    Photo,
    draw,
    write_ade20k,
    write_coco,
)

from bindscope.scenes.pug_spare_values import VALUES
from bindscope.sources.genome.vocabulary import COLOR_WORDS

CUT = "cut_off"  # in the name of the JPEG that is truncated
SIZES = ((683, 512), (256, 256), (640, 480), (375, 501), (1023, 767), (2400, 1600))
_TURNED = 6  # of the EXIF tag: the camera was on its side
_ORIENTATION = 0x0112


def jpeg(image: Image.Image, path: Path) -> None:
    """Save as cameras do."""
    image.save(path, "JPEG", quality=85)


def cmyk(image: Image.Image, path: Path) -> None:
    """Save with four inks."""
    image.convert("CMYK").save(path, "JPEG", quality=85)


def turned(image: Image.Image, path: Path) -> None:
    """Save with a tag that says that the camera was turned."""
    tags = Image.Exif()
    tags[_ORIENTATION] = _TURNED
    image.save(path, "JPEG", quality=85, exif=tags)


def cut_off(image: Image.Image, path: Path) -> None:
    """Save the first two thirds of the bytes."""
    jpeg(image, path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


def photos(n: int, part: str, classes: Sequence[int], prefix: str) -> Iterator[Photo]:
    """Draw photos of one part of a release, every kind of file among them."""
    ways: tuple[Callable[[Image.Image, Path], None], ...] = (jpeg, jpeg, cmyk, turned)
    rng = np.random.default_rng(n)
    for i in range(n):
        size = SIZES[i % (len(SIZES) - 1)] if i % 11 else SIZES[-1]
        some = tuple(int(code) for code in rng.choice(classes, rng.integers(2, 7)))
        photo = draw(f"{prefix}_{i:08d}", size, some, part, grey=i % 7 == 3)
        save = jpeg if photo.image.ndim == 2 else ways[i % len(ways)]
        yield replace(photo, save=save)


def broken(part: str, classes: Sequence[int], prefix: str) -> Photo:
    """Draw a photo whose file is cut off."""
    photo = draw(f"{prefix}_{CUT}", SIZES[0], classes[:2], part)
    return replace(photo, save=cut_off)


def ade20k(folder: Path) -> Path:
    """Write ADE20K, of which one image in five of `training` is for validation."""
    classes = (CAR, BUILDING, WALL, ZITHER, 774, 1023, 1024)
    pictures = [
        *photos(36, "training", classes, "ADE_train"),
        *photos(10, "validation", classes, "ADE_val"),
        broken("training", classes, "ADE_train"),
    ]
    return write_ade20k(folder, pictures)


def coco(folder: Path) -> Path:
    """Write COCO 2017 with panoptic annotations."""
    classes = [int(str(category["id"])) for category in COCO_CATEGORIES]
    pictures = [
        *photos(24, "train2017", classes, "0000"),
        *photos(8, "val2017", classes, "0001"),
        broken("train2017", classes, "0000"),
    ]
    return write_coco(folder, pictures)


def clevr(folder: Path) -> Path:
    """Write CLEVR's archive."""
    write_clevr(folder / "unpacked", 72, 24, (480, 320))
    return zipped(folder / "unpacked", folder / "CLEVR_v1.0.zip")


def genome(folder: Path, n_images: int = 160) -> list[Path]:
    """Write Visual Genome's archives: 60 names of objects, the colors and 30 further attributes."""
    rng = np.random.default_rng(1)
    colors = sorted(COLOR_WORDS)
    further = [f"quality{i}" for i in range(30)]
    about, objects, attributes = [], [], []
    for i in range(n_images):
        number = 1 + i
        width, height = SIZES[i % len(SIZES)]
        part = ("VG_100K", "VG_100K_2")[i % 2]
        url = f"https://cs.stanford.edu/people/rak248/{part}/{number}.jpg"
        about.append(
            {
                "image_id": number,
                "url": url,
                "width": width,
                "height": height,
                "coco_id": 9000 + i if i % 8 else None,
                "flickr_id": None,
            }
        )
        things = _things(rng, number, (width, height))
        url = {"image_url": url}
        objects.append({"image_id": number, "objects": things, **url})
        described = [
            {**thing, "attributes": [str(rng.choice(colors)), str(rng.choice(further))]}
            for thing in things
            if rng.random() < 0.8
        ]
        attributes.append({"image_id": number, "attributes": described})
        path = folder / "photos" / part / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
        image = Image.fromarray(pixels).resize((width, height))
        (jpeg, jpeg, cmyk, turned)[i % 4](
            image.convert("L") if i % 9 == 0 and i % 4 < 2 else image, path
        )
    return _genome_archives(
        folder, {"objects": objects, "attributes": attributes, "image_data": about}
    )


def _things(rng: np.random.Generator, number: int, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Draw the objects of one image."""
    (width, height), names = size, [f"thing{i}" for i in range(60)]
    things = []
    for k in range(int(rng.integers(3, 14))):
        x, y = int(rng.integers(0, width // 2)), int(rng.integers(0, height // 2))
        things.append(
            {
                "object_id": 1000 * number + k,
                "names": [str(rng.choice(names))],
                "synsets": [],
                "merged_object_ids": [],
                "x": x,
                "y": y,
                "w": int(rng.integers(20, width // 2)),
                "h": int(rng.integers(20, height // 2)),
            }
        )
    return things


def _genome_archives(folder: Path, annotations: Mapping[str, Any]) -> list[Path]:
    """Pack annotations and the images of `folder/photos`."""
    archives = []
    for name, content in annotations.items():
        archives.append(folder / f"{name}.json.zip")
        with zipfile.ZipFile(archives[-1], "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.json", json.dumps(content))
    for name, part in (("images", "VG_100K"), ("images2", "VG_100K_2")):
        archives.append(folder / f"{name}.zip")
        with zipfile.ZipFile(archives[-1], "w") as archive:
            for path in sorted((folder / "photos" / part).iterdir()):
                archive.write(path, f"{part}/{path.name}")
    return archives


def pug_spare(folder: Path) -> Path:
    """Write PUG:SPARE: four characters and four textures of a world, and what is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    rows = [
        ("Desert", *pair, *texture, "", "")
        for pair in permutations(VALUES["character"][:4], 2)
        for texture in permutations(VALUES["texture"][:4], 2)
    ]
    rows += [
        ("Arena", *rows[0][1:]),
        ("Desert", *rows[0][1:5], "top", "bottom"),
        ("Desert", rows[0][1], "blank", rows[0][3], "", "", ""),
    ]

    def save(path: Path) -> None:
        pixels = rng.integers(0, 256, (64, 64, 3), np.uint8)
        image = Image.fromarray(pixels).resize((512, 512)).convert("RGBA")
        image.save(path, compress_level=1)  # the default takes ten times as long

    write_pug_spare(folder, rows, save)
    return folder
