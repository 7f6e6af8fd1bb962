"""Small files in the formats of the releases that are read, made by us."""

import csv
import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bindscope.scenes.pug_spare_values import TABLE
from bindscope.scenes.solids.values import VALUES

# Visual Genome's annotations, and the folders of the images that they are of.
GENOME = Path(__file__).parents[1] / "fixtures" / "visual_genome"
GENOME_PHOTOS = {2: "VG_100K", 3: "VG_100K", 6: "VG_100K", 7: "VG_100K", 8: "VG_100K_2"}


def write_genome_photos(folder: Path) -> Path:
    """Images of one color, where Visual Genome's archives unpack them to."""
    for number, part in GENOME_PHOTOS.items():
        path = folder / part / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (400, 300), (number * 20, 100, 100)).save(path)
    return folder


def write_genome_archives(folder: Path) -> list[Path]:
    """Annotations and images as released: an archive of each part."""
    photos = write_genome_photos(folder / "photos")
    files = {f"{path.name}.zip": (path.parent, [path]) for path in sorted(GENOME.glob("*.json"))}
    for name, part in (("images.zip", "VG_100K"), ("images2.zip", "VG_100K_2")):
        files[name] = photos, sorted((photos / part).iterdir())
    for name, (root, members) in files.items():
        with zipfile.ZipFile(folder / name, "w") as archive:
            for path in members:
                archive.write(path, path.relative_to(root))
    return [folder / name for name in files]


def clevr_object(rng: np.random.Generator) -> dict[str, Any]:
    """An object as in CLEVR's scene files, keys that we do not read included."""
    values = {group: str(rng.choice(known)) for group, known in VALUES.items()}
    return {
        **values,
        "3d_coords": [0.1, -2.0, 0.35],
        "rotation": 30.0,
        "pixel_coords": [120, 80, 11.5],
    }


def write_clevr(
    folder: Path, train: int = 6, val: int = 3, size: tuple[int, int] = (48, 32)
) -> dict[str, list[dict[str, Any]]]:
    """Scenes of CLEVR's train part and of val; every third has five objects, else six."""
    rng = np.random.default_rng(0)
    parts = {}
    for part, n in (("train", train), ("val", val)):
        scenes = []
        for index in range(n):
            name = f"CLEVR_{part}_{index:06d}.png"
            objects = [clevr_object(rng) for _ in range(5 if index % 3 == 2 else 6)]
            scenes.append(
                {
                    "image_index": index,
                    "split": part,
                    "image_filename": name,
                    "objects": objects,
                    "relationships": {"left": [[] for _ in objects]},
                    "directions": {},
                }
            )
            image = folder / "images" / part / name
            image.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGBA", size, (index * 20 % 256, 100, 100, 255)).save(image)
        info = {"split": part, "license": "Creative Commons Attribution (CC BY 4.0)"}
        (folder / "scenes").mkdir(exist_ok=True)
        path = folder / "scenes" / f"CLEVR_{part}_scenes.json"
        path.write_text(json.dumps({"info": info, "scenes": scenes}))
        parts[part] = scenes
    return parts


def zipped(folder: Path, archive: Path) -> Path:
    """Pack a folder as the official archive is packed: below CLEVR_v1.0/."""
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                packed.write(path, f"CLEVR_v1.0/{path.relative_to(folder)}")
    return archive


def write_pug_spare(
    folder: Path, scenes: Iterable[tuple[str, ...]], save: Callable[[Path], None]
) -> None:
    """Files in the layout of PUG:SPARE; a scene has its world, characters, textures and places."""
    with (folder / TABLE).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "filename",
                "world_name",
                "character_name",
                "character2_name",
                "character_texture",
                "character2_texture",
                "character_pos",
                "character2_pos",
            ]
        )
        for i, scene in enumerate(scenes):
            path = folder / scene[0] / f"{i:07d}.png"
            path.parent.mkdir(exist_ok=True)
            writer.writerow([path.name, *scene])
            save(path)
